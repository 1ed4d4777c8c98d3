"""Lines of one form are read as a JSON parser reads them; all others are not read."""

import json
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datastream.formats.json_blocks.objects import read_forms

LINES = 1200
SCHEMA = pa.schema([
    ("n", pa.int64()), ("text", pa.string()), ("price", pa.float64()), ("is_on", pa.bool_()),
])  # fmt: skip
VALUES = {
    pa.int64(): st.integers(-(10**18), 10**18),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.decimals(-9999, 9999, places=2).map(float) | st.integers(1, 9),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_characters='"\\', min_codepoint=32)),
}


def record(number):
    return {"n": number, "text": f"the {number}.", "price": number / 8, "is_on": number % 3 == 0}


def lines_of(records, **form):
    return [json.dumps(one, ensure_ascii=False, **form) for one in records]


def block_of(lines):
    return "\n".join(lines).encode()


ORDINARY = lines_of(map(record, range(LINES)))


def rows_of(batch):
    return batch.to_pylist()


@st.composite
def tables(draw):
    """Fields with their types, and records that have them in the same order."""
    names = draw(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters='"\\', min_codepoint=32)),
                 min_size=1, max_size=5, unique=True)
    )  # fmt: skip
    schema = pa.schema([(name, draw(st.sampled_from(list(VALUES)))) for name in names])
    values = {
        field.name: VALUES[field.type]
        if pa.types.is_string(field.type)
        else VALUES[field.type] | st.none()
        for field in schema
    }
    drawn = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=6))
    records = [{name: one[name] for name in names} for one in drawn]
    return schema, sorted(records, key=lambda one: len(json.dumps(one)))


@given(tables(), st.sampled_from([(",", ":"), (", ", ": "), (" ,", "  :")]), st.data())
def test_records_of_one_form_are_read_and_fields_that_nobody_asks_for_are_left_out(
    table, separators, data
):
    schema, records = table
    lines = lines_of(records, separators=separators) * (LINES // len(records) + 1)
    asked = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    wanted = pa.schema([schema.field(name) for name in asked])
    found = read_forms(block_of(lines), wanted)
    # A null in the line that gives the form is a value like others.
    assert found is not None
    assert found.schema == wanted
    assert found.num_rows == len(lines)
    expected = [{name: one[name] for name in asked} for one in records]
    assert rows_of(found)[: len(records)] == expected


@given(
    st.integers(0, len(ORDINARY[700])),
    st.integers(0, 3),
    st.text('{}[]":,.-0123456789 \n\\\t\x00\u2028nulltrue', max_size=4),
)
def test_a_damaged_line_is_read_as_a_parser_does_or_not_at_all(at, cut, put):
    lines = list(ORDINARY)
    lines[700] = lines[700][:at] + put + lines[700][at + cut :]
    block = block_of(lines)
    found = read_forms(block, SCHEMA)
    if found is not None:
        assert rows_of(found) == [json.loads(line) for line in block.decode().split("\n")]


def test_ordinary_lines_are_read_with_and_without_the_last_end():
    expected = list(map(record, range(LINES)))
    assert rows_of(read_forms(block_of(ORDINARY), SCHEMA)) == expected
    assert rows_of(read_forms(block_of([*ORDINARY, ""]), SCHEMA)) == expected


@pytest.mark.parametrize(
    "line",
    [
        '{"n": 1, "text": "a", "price": 1.5}',
        '{"n": 1, "text": "a", "price": 1.5, "is_on": true, "more": 1}',
        '{"text": "a", "n": 1, "price": 1.5, "is_on": true}',
        '{"n": 1, "text": null, "price": 1.5, "is_on": true}',
        '{"n": 1, "text": "a", "price": 1.5, "is_on": true} ',
        ' {"n": 1, "text": "a", "price": 1.5, "is_on": true}',
        '{"n": 1, "text": "a", "price": 1.5, "is_on": true}}',
        '{"n": 1, "text": "a", "price": 1.5, "is_on": true}{}',
        '{"n":  1, "text": "a", "price": 1.5, "is_on": true}',
        '{"n": 1, "text": "a\tb", "price": 1.5, "is_on": true}',
        '{"n": 1, "text": "a\\tb", "price": 1.5, "is_on": true}',
        '{"n": 1, "text": "a", "price": 1.5, "is_on": True}',
        '{"n": 1, "text": "a", "price": NaN, "is_on": true}',
        '{"n": 1.0, "text": "a", "price": 1.5, "is_on": true}',
        '{"n": {}, "text": "a", "price": 1.5, "is_on": true}',
        '{"n": [1], "text": "a", "price": 1.5, "is_on": true}',
        '{"n": nul, "text": "a", "price": 1.5, "is_on": true}',
        '{"n": , "text": "a", "price": 1.5, "is_on": true}',
        '{"n": 1, "text": "a", "price": 1.5, "is_on": }',
        '{"m": 1, "text": "a", "price": 1.5, "is_on": true}',
        "null",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 700, LINES - 1])
def test_a_line_of_another_form_is_left_to_a_parser(line, place):
    lines = list(ORDINARY)
    lines[place] = line
    assert read_forms(block_of(lines), SCHEMA) is None


def test_a_blank_line_is_left_to_a_parser():
    assert read_forms(block_of([*ORDINARY, "", *ORDINARY]), SCHEMA) is None


def test_quotes_that_are_missing_on_one_line_and_too_many_on_the_next_are_seen():
    lines = list(ORDINARY)
    lines[700] = '{"n": 1, "text: "a", "price": 1.5, "is_on": true}'
    lines[701] = '{"n": 1, ""text": "a", "price": 1.5, "is_on": true}'
    assert read_forms(block_of(lines), SCHEMA) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"n": 1, "n": 2}',
        '{"n" 1}',
        '{"n": 1 "m": 2}',
        '{"n": 1{"m": 2}',
        '{"n": 1,, "m": 2}',
        '{"n": {"m": 2}}',
        '{"n": 1, "m": "2}',
        '{, "n": 1}',
        '["n", 1]',
        '{"m": 1}',
        "{}",
        '{"n": "1"}',
        '{"n": true}',
        '{"n": 1}\r',
        '\ufeff{"n": 1}',
    ],
)
def test_lines_that_are_all_so_have_no_form_or_no_such_field(line):
    schema = pa.schema([("n", pa.int64())])
    assert read_forms(block_of([line] * LINES), schema) is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1", pa.string()), ("128", pa.int8()), ("1.5", pa.bool_()), ("1.5", pa.float32()),
     ("true", pa.float64()), ('"1"', pa.float64()), ("1", pa.list_(pa.int64()))],
)  # fmt: skip
def test_values_that_are_not_of_the_type_are_left_to_a_parser(value, kind):
    lines = [f'{{"n": {value}}}'] * LINES
    assert read_forms(block_of(lines), pa.schema([("n", kind)])) is None


def test_a_field_that_nobody_asks_for_has_to_be_valid_too():
    lines = ['{"n": 1, "m": 2}'] * LINES
    schema = pa.schema([("n", pa.int64())])
    assert read_forms(block_of(lines), schema).num_rows == LINES
    lines[700] = '{"n": 1, "m": 02}'
    assert read_forms(block_of(lines), schema) is None


def test_few_lines_are_left_to_a_parser():
    assert read_forms(block_of(ORDINARY[:100]), SCHEMA) is None
    assert read_forms(b"", SCHEMA) is None
    assert read_forms(b"\n" * LINES, SCHEMA) is None


def test_pandas_is_not_needed(monkeypatch):
    """Spark does not need it either."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert read_forms(block_of(ORDINARY), SCHEMA).num_rows == LINES
