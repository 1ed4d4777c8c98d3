"""Records are cut out of pages of JSON as the server has written them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.http.source import json_page

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=5), st.dictionaries(st.text(), VALUES), st.sampled_from([None, 2]))
def test_records_are_those_that_json_has(records, others, indent):
    page = {**others, "items": records, "next": 7}
    found = json_page(json.dumps(page, indent=indent).encode(), "items", "next")
    assert [json.loads(one) for one in found.records] == records
    assert found.cursor == 7
    alone = json_page(json.dumps(records, indent=indent).encode(), None, None)
    assert [json.loads(one) for one in alone.records] == records


def test_a_record_is_as_the_server_has_written_it():
    page = b' { "items" : [ {"a" : 1.10, "b":"\\u00e9"} , 1e400,[ ] ] , "next":null} '
    assert json_page(page, "items", "next").records == [
        b'{"a" : 1.10, "b":"\\u00e9"}', b"1e400", b"[ ]",
    ]  # fmt: skip
    assert json_page(
        "[\ufeff]".replace("\ufeff", '"\u00e4"').encode("utf-16"), None, None
    ).records == ['"\u00e4"'.encode()]


def test_of_two_fields_of_a_name_the_last_one_counts_as_in_json():
    assert json_page(b'{"i": [1], "i": [2, 3]}', "i", None).records == [b"2", b"3"]


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (b"[1] x", "Extra data"),
        (b"{}", "the list 'i', got the fields"),
        (b"[]", "the list 'i', got list"),
        (b'{"i": {}}', "a list of records, got dict"),
        (b"\xff", "utf-8"),
    ],
)
def test_what_is_no_page_is_told(page, error):
    with pytest.raises((ValueError, TypeError), match=error):
        json_page(page, "i", None)
