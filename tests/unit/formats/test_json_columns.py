"""JSON objects read as columns are what they are one by one, or are not read so."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import ColumnBatch
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.formats.json_columns import json_schema_of, read_lines

pytestmark = pytest.mark.usefixtures("parser_of_all")

WIDE = Types.ROW_NAMED(
    ["s", "b", "i", "l", "d"],
    [Types.STRING(), Types.BOOLEAN(), Types.INT(), Types.LONG(), Types.DOUBLE()],
)


def schema(row_type=WIDE, **flags):
    return JsonRowDeserializationSchema(row_type, **flags)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "s": st.none() | st.text(),
                "b": st.none() | st.booleans(),
                "i": st.none() | st.integers(-(2**31), 2**31 - 1),
                "l": st.none() | st.integers(-(2**63), 2**63 - 1),
                "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "more": st.lists(st.none() | st.integers()),
            },
        ),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_plain_objects_are_the_same_rows_either_way(items, is_ascii):
    messages = [
        json.dumps(item, ensure_ascii=is_ascii).encode("utf-8", "replace") for item in items
    ]
    one_by_one = [schema().deserialize(message) for message in messages]
    columns = schema().deserialize_columns(messages)
    if columns is not None:
        assert to_rows(ColumnBatch(columns), WIDE).values == one_by_one


def test_ordinary_objects_are_read_as_columns():
    messages = [b'{"s": "a", "i": 1, "d": 0.5, "b": true, "l": 5}', b'{"z": {"y": null}}', b"{}"]
    assert schema().deserialize_columns(messages).num_rows == 3


@pytest.mark.parametrize(
    "message",
    [
        None, b"", b"null", b"[1]", b"5", b"x", b'{"s": 5}', b'{"i": 1.0}', b'{"i": "1"}', b'{"i": 3000000000}', b'{"d": NaN}',
        b'{"d": 1e999}', b'{"b": 1}', b'{"s": "\xff"}', b'{"s":\n"a"}', b'{"s":"a"}{"s":"b"}', b'{"s":"a"} null {}', b'{"i": 1, "i": 2}',
        b'{"s": "a"', b"{]}", b'{"s": "\\ud800"}', b'{"d": -0}', b'{"d": ' + b"9" * 400 + b"}",
    ],
)  # fmt: skip
def test_anything_odd_is_left_to_be_read_one_by_one(message):
    assert schema().deserialize_columns([b'{"s": "a"}', message]) is None


@pytest.mark.parametrize("block", [b'{"i":\n1}{"i": 2}', b'{"i": 1}{"i": 2}\n \n'])
def test_as_many_objects_as_lines_do_not_make_each_line_an_object(block):
    """pyarrow would take them."""
    assert read_lines(block, json_schema_of(WIDE)) is None


@pytest.mark.parametrize("end", [b"\n", b" \n", b"\r\n", b"\t\n  "])
def test_space_around_objects_is_of_no_matter(end):
    block = b'{"i": 1}' + end + b'{"d": -0.0}' + end.rstrip(b" ")
    assert read_lines(block, json_schema_of(WIDE)).num_rows == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"i": 2, "z": ' + b"1" * 5000 + b"}", (2, None)),
        (b'{"i": 2, "z": 1e99999999999999999999}', (2, None)),
        (b'{"i": 2, "z": [0e-99999999999999999999]}', (2, None)),
        (b'{"d": 1e-99999999999999999999}', (None, 0.0)),
        (b'{"d": 0e99999999999999999999}', (None, 0.0)),
        (b'{"d": 1e400}', (None, float("inf"))),
        (b'{"d": -1e99999999999999999999}', (None, float("-inf"))),
    ],
)
def test_a_number_that_is_too_long_for_python_is_the_same_either_way(text, expected):
    row = schema().deserialize(text)
    assert (row.i, row.d) == expected
    columns = schema().deserialize_columns([b'{"i": 1}', text])
    if columns is not None:
        assert tuple(columns.to_pylist()[1][name] for name in "id") == expected


@pytest.mark.parametrize("name", "id")
def test_an_integer_that_is_too_long_for_python_is_refused(name):
    with pytest.raises(ValueError, match=f"field '{name}': expected .* a number that is too long"):
        schema().deserialize(f'{{"{name}": {"1" * 5000}}}'.encode())


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Types.STRING(), "1" * 5000, "1" * 5000),
        (Types.STRING(), "1e99999999999999999999", "1e99999999999999999999"),
        (Types.PICKLED_BYTE_ARRAY(), "[1e99999999999999999999]", [float("inf")]),
        (Types.PICKLED_BYTE_ARRAY(), "[" + "1" * 5000 + "]", None),
    ],
)
def test_a_number_that_is_too_long_for_python_is_a_text_or_refused_and_nothing_else(
    kind, text, expected
):
    row = Types.ROW_NAMED(["x", "i"], [kind, Types.INT()])
    reads = JsonRowDeserializationSchema.builder().type_info(row).build()
    message = f'{{"x": {text}, "i": 1}}'.encode()
    if expected is None:
        with pytest.raises(ValueError, match="field 'x': expected a shorter number"):
            reads.deserialize(message)
    else:
        assert reads.deserialize(message) == Row(x=expected, i=1)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\tb", "\0"])
def test_names_that_no_text_can_have_without_escapes(name):
    row_type = Types.ROW_NAMED([name, "i"], [Types.LONG(), Types.LONG()])
    message = json.dumps({name: 1, "i": 2}).encode()
    assert (
        schema(row_type).deserialize_columns([message] * 2).to_pylist() == [{name: 1, "i": 2}] * 2
    )
    assert schema(row_type).reading(["i"]).deserialize_columns([message]).rows()[0].i == 2


def test_a_char_is_one_character_either_way():
    row_type = Types.ROW_NAMED(["c", "i"], [Types.CHAR(), Types.LONG()])
    assert json_schema_of(row_type) is None
    message = b'{"c": "ab", "i": 1}'
    assert schema(row_type).deserialize_columns([message]) is None
    with pytest.raises(ValueError, match="field 'c'"):
        schema(row_type).deserialize(message)
    nested = Types.LIST(Types.ROW_NAMED(["c"], [Types.CHAR()]))
    assert json_schema_of(Types.ROW_NAMED(["deep"], [nested])) is None


def test_only_what_is_read_alike_is_read_as_columns():
    message = [b'{"s": "a"}']
    assert schema(fails_on_missing_field=True).deserialize_columns(message) is None
    for kind in (Types.FLOAT(), Types.BIG_DEC(), Types.LIST(Types.INT()), Types.SQL_DATE()):
        assert schema(Types.ROW_NAMED(["s"], [kind])).deserialize_columns(message) is None
