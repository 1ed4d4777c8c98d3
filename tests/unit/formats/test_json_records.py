"""What msgspec decodes at once is as Python's JSON reads each line, or is not decoded so."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.formats.json_columns import lines_with_objects, record_decoder

SCHEMA = pa.schema([
    ("n", pa.int64()), ("small", pa.int8()), ("price", pa.float64()), ("is_on", pa.bool_()),
    ("text", pa.string()),
])  # fmt: skip
VALUES = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "price": st.floats(allow_nan=False, allow_infinity=False),
    "is_on": st.booleans(),
    "text": st.text(st.characters(exclude_categories=["Cs"])),
    "unread": st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=3),
}
OBJECTS = st.fixed_dictionaries({}, optional={n: st.none() | one for n, one in VALUES.items()})


def columns_of(*lines, schema=SCHEMA):
    """The columns of a decoder that has refused nothing, as lists; None: it has none."""
    decoder = record_decoder(schema)
    decoder._texts = decoder._refused = 0
    found = decoder.columns("\n".join(lines).encode())
    return None if found is None else found.to_pydict()


@given(st.lists(OBJECTS, min_size=1, max_size=8), st.booleans())
def test_fields_that_are_missing_or_null_are_null(objects, is_ascii):
    lines = [json.dumps(one, ensure_ascii=is_ascii) for one in objects]
    found = columns_of(*lines)
    assert found == {name: [one.get(name) for one in objects] for name in SCHEMA.names}
    # Zeros are equal whatever their sign is.
    told = [one if one is None else str(one) for one in found["price"]]
    assert told == [None if (x := one.get("price")) is None else str(x) for one in objects]


def test_names_that_no_attribute_can_have_are_fields_too():
    names = ["class", "_x", "a b", "größe", "", "__init__", "n"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    line = json.dumps(dict(zip(names, range(7), strict=True)))
    assert columns_of(line, line, schema=schema) == {
        name: [at] * 2 for at, name in enumerate(names)
    }


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_line_needs_no_end(end):
    assert lines_with_objects(b'{"n": 1}\n{"n": 2}' + end.encode()) == 2
    assert columns_of('{"n": 1}', '{"n": 2}' + end)["n"] == [1, 2]


@pytest.mark.parametrize(
    "lines",
    [
        ['{"n": 1}{"n": 2}'],
        ['{"n": 1} {"n": 2}'],
        ['{"n":', "1}", '{"n": 2}'],
        ["", '{"n": 1}{"n": 2}'],
        ['{"unread": {}', '{}, "n": 1}{"n": 2}'],
        ['{"unread": "}', '{"}{"n": 1}'],
        ['{"n": 1}', "", '{"n": 2}'],
        ['{"unread": [{}', '{}]}{"n": 2}'],
        ['{"n": 1}', '{"n": 2}', "", ""],
        ['{"n": 1},', '{"n": 2}'],
        [""],
        ["[1]"],
        ["null"],
        ['{"n": 1}', "null"],
        ["[", "{}", "]"],
        ['{"n": 1}', ' {"n": 1}'],
    ],
)
def test_an_object_that_has_no_line_to_itself_is_not_decoded(lines):
    assert columns_of(*lines) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", "1.0"),
        ("n", '"1"'),
        ("n", "true"),
        ("n", str(2**63)),
        ("small", "128"),
        ("price", "NaN"),
        ("price", "1e400"),
        ("price", '"1"'),
        ("price", "true"),
        ("is_on", "1"),
        ("text", "1"),
        ("text", '"\\ud800"'),
        ("unread", "NaN"),
        ("unread", "01"),
        ("unread", "[1,]"),
    ],
)
def test_values_of_other_types_are_not_decoded(name, value):
    """Python's JSON has other rules for some, and none for others."""
    assert columns_of('{"n": 1}', f'{{"{name}": {value}}}') is None


pieces = st.sampled_from([
    "{",
    "}",
    "\n",
    '"',
    ":",
    ",",
    " ",
    '"n"',
    "1",
    "[",
    "]",
    '{"n":1}',
    "}\n{",
    "\r",
])


@given(st.lists(pieces, max_size=12).map("".join))
@example('\n{"n":1}{"n":1}')
@example('{"n":1}\n\n')
def test_what_is_decoded_has_an_object_on_each_line(text):
    found = columns_of(text)
    if found is not None:
        lines = text.removesuffix("\n").split("\n")
        assert found["n"] == [json.loads(line).get("n") for line in lines]


def test_texts_that_are_refused_again_and_again_are_not_tried_each_time(monkeypatch):
    decoder = record_decoder(SCHEMA)
    decoder._texts = decoder._refused = 0
    tried = []
    decode = decoder._decode_lines
    monkeypatch.setattr(decoder, "_decode_lines", lambda text: tried.append(text) or decode(text))
    for _ in range(80):
        assert decoder.lines(b'{"n": "1"}') is None
    assert len(tried) == 10
    for _ in range(20):
        decoder.lines(b'{"n": 1}')
    assert decoder.lines(b'{"n": 1}')[0].n == 1


def test_there_have_to_be_as_many_objects_as_were_joined():
    decoder = record_decoder(SCHEMA)
    decoder._texts = decoder._refused = 0
    assert decoder.lines(b'{"n": 1}\n{"n": 2}', 1) is None
    assert len(decoder.lines(b'{"n": 1}\n{"n": 2}', 2)) == 2
    assert decoder._refused == 0


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.float32(), pa.binary()]
)
def test_other_types_have_no_decoder(kind):
    assert record_decoder(pa.schema([("n", pa.int64()), ("other", kind)])) is None
