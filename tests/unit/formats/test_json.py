"""Rows as JSON: values from the rules of Flink's JsonRowDeserializationSchema and JsonRowSerializationSchema."""

import datetime as dt
import json
import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Instant, Row, Types
from penstock.engine.model.errors import ConfigurationError
from penstock.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

ALL = Types.ROW_NAMED(
    ["i", "s", "d", "l", "m", "t", "row", "bytes", "day", "time", "flag", "any"],
    [
        Types.INT(),
        Types.STRING(),
        Types.BIG_DEC(),
        Types.LIST(Types.DOUBLE()),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.SQL_TIMESTAMP(),
        Types.ROW_NAMED(["x"], [Types.BIG_INT()]),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.BOOLEAN(),
        Types.PICKLED_BYTE_ARRAY(),
    ],
)
TEXT = (
    '{"i":1,"s":"ä","d":1.10,"l":[1.0,2.5],"m":{"a":3},"t":"2020-01-02T03:04:05.500000Z","row":{"x":12345678901234567890},'
    '"bytes":"AAH/","day":"2020-01-02","time":"03:04:05Z","flag":true,"any":[1,{"b":null}]}'
)
ROW = Row(
    i=1,
    s="ä",
    d=Decimal("1.10"),
    l=[1.0, 2.5],
    m={"a": 3},
    t=dt.datetime(2020, 1, 2, 3, 4, 5, 500_000),  # ruff: ignore[call-datetime-without-tzinfo]
    row=Row(x=12345678901234567890),
    bytes=b"\x00\x01\xff",
    day=dt.date(2020, 1, 2),
    time=dt.time(3, 4, 5),
    flag=True,
    any=[1, {"b": None}],
)


def reader(type_info=ALL):
    return JsonRowDeserializationSchema.builder().type_info(type_info).build()


def writer(type_info=ALL):
    return JsonRowSerializationSchema.builder().with_type_info(type_info).build()


def one(type_info, text):
    return reader(Types.ROW_NAMED(["a"], [type_info])).deserialize(f'{{"a":{text}}}'.encode())[0]


def test_every_kind_of_value_is_read_and_written():
    found = reader().deserialize(TEXT.encode())
    assert found == ROW
    assert str(found["d"]) == "1.10"
    assert writer().serialize(ROW) == TEXT.encode()


def test_a_schema_that_was_used_travels():
    schema, back = reader(), writer()
    schema.deserialize(TEXT.encode())
    back.serialize(ROW)
    assert pickle.loads(pickle.dumps(schema)).deserialize(TEXT.encode()) == ROW
    assert pickle.loads(pickle.dumps(back)).serialize(ROW) == TEXT.encode()


def test_missing_fields_and_nulls_are_none_and_unknown_fields_are_passed_over():
    type_info = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.ROW([Types.INT()])])
    assert reader(type_info).deserialize(b'{"c":1,"b":null}') == Row(a=None, b=None)
    assert writer(type_info).serialize(Row(None, Row(None))) == b'{"a":null,"b":{"f0":null}}'


def test_an_empty_message_gives_no_record():
    assert reader().deserialize(b"") is None


def test_a_missing_field_can_be_an_error():
    schema = (
        JsonRowDeserializationSchema
        .builder()
        .type_info(Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()]))
        .fail_on_missing_field()
        .build()
    )
    assert schema.deserialize(b'{"a":1,"b":null}') == Row(a=1, b=None)
    with pytest.raises(ValueError, match="could not find field with name 'b'"):
        schema.deserialize(b'{"a":1}')


def test_errors_name_the_field_and_show_the_message():
    with pytest.raises(ValueError, match=r"field 'row': field 'x': .*'nine'") as caught:
        reader().deserialize(b'{"row":{"x":"nine"}}')
    assert '{"row":{"x":"nine"}}' in str(caught.value)
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        reader().deserialize(b"{")


UNREADABLE = [
    (Types.INT(), '"one"', None),
    (Types.BIG_DEC(), '"1.2.3"', None),
    (Types.SQL_TIME(), '"18:00:243"', None),
    (Types.SQL_TIMESTAMP(), '"0001-01-01T00:00:00+10:00"', None),
    (Types.ROW_NAMED(["b"], [Types.INT()]), '{"b":"x"}', Row(b=None)),
    (Types.OBJECT_ARRAY(Types.INT()), '[1,"x"]', [1, None]),
    (Types.MAP(Types.STRING(), Types.INT()), '{"k":"1","l":"x"}', {"k": 1, "l": None}),
    (Types.LIST(Types.INT()), "5", None),
]


@pytest.mark.parametrize(("type_info", "text", "value"), UNREADABLE)
def test_ignoring_an_error_costs_the_field_and_nothing_else(type_info, text, value):
    row_type = Types.ROW_NAMED(["a", "z"], [type_info, Types.STRING()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type)
    message = f'{{"a":{text},"z":"kept"}}'.encode()
    with pytest.raises(ValueError, match="field 'a'"):
        schema.build().deserialize(message)
    assert schema.ignore_parse_errors().build().deserialize(message) == Row(a=value, z="kept")


def test_errors_can_be_ignored():
    schema = JsonRowDeserializationSchema.builder().type_info(ALL).ignore_parse_errors().build()
    assert schema.deserialize(b"{") is None
    assert schema.deserialize(b"5") is None
    assert schema.deserialize(b'{"i":"one"}') == schema.deserialize(b"{}")
    assert schema.deserialize(b'{"i":2}')["i"] == 2


def test_both_ways_with_errors_contradict_each_other():
    builder = JsonRowDeserializationSchema.builder().type_info(ALL)
    with pytest.raises(ConfigurationError, match="failOnMissingField and ignoreParseErrors"):
        builder.fail_on_missing_field().ignore_parse_errors().build()


@pytest.mark.parametrize(
    "make", [JsonRowDeserializationSchema.builder, JsonRowSerializationSchema.builder]
)
def test_a_type_is_needed_and_must_be_a_row(make):
    with pytest.raises(ConfigurationError, match="needs a type"):
        make().build()
    with_type = getattr(make(), "type_info", None) or make().with_type_info
    with pytest.raises(TypeError, match=r"Types\.ROW_NAMED"):
        with_type(Types.INT())


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.INT(), '"12"', 12),
        (Types.INT(), "2.0", 2),
        (Types.DOUBLE(), "3", 3.0),
        (Types.DOUBLE(), '"1e3"', 1000.0),
        (Types.BOOLEAN(), '"true"', True),
        (Types.STRING(), "2.50", "2.50"),
        (Types.STRING(), '{"a":1.5}', '{"a":1.5}'),
        (Types.BIG_DEC(), '"0.10"', Decimal("0.10")),
        (Types.INSTANT(), '"1970-01-01T00:00:01.5Z"', Instant(1, 500_000_000)),
        (Types.INSTANT(), '"1969-12-31T23:59:59.5Z"', Instant(-1, 500_000_000)),
        (Types.SQL_TIMESTAMP(), '"2020-01-02T03:00:00+01:00"', dt.datetime(2020, 1, 2, 2)),  # ruff: ignore[call-datetime-without-tzinfo]
        (Types.OBJECT_ARRAY(Types.INT()), "[1,null]", [1, None]),
        (Types.DECIMAL(10, 2), "1.1", Decimal("1.10")),
        (Types.DECIMAL(10, 2), "-7", Decimal("-7.00")),
        (Types.DECIMAL(10, 2), "1e2", Decimal("100.00")),
        (Types.DECIMAL(10, 2), "0e999999999", Decimal("0.00")),
        (Types.DECIMAL(10, 2), '" 2.50 "', Decimal("2.50")),
        (
            Types.DECIMAL(38, 20),
            "123456789012345678.12345678901234567891",
            Decimal("123456789012345678.12345678901234567891"),
        ),
        (
            Types.LIST(Types.DECIMAL(3, 1)),
            '[0.1, "0.2", null]',
            [Decimal("0.1"), Decimal("0.2"), None],
        ),
        (Types.MAP(Types.STRING(), Types.DECIMAL(3, 1)), '{"k": 0.3}', {"k": Decimal("0.3")}),
    ],
)
def test_other_forms_of_a_value(type_info, text, value):
    assert one(type_info, text) == value


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.INT(), "2147483648"),
        (Types.INT(), "1.5"),
        (Types.INT(), "true"),
        (Types.BYTE(), "-129"),
        (Types.BOOLEAN(), "1"),
        (Types.LIST(Types.INT()), "{}"),
        (Types.MAP(Types.STRING(), Types.INT()), "[]"),
        (Types.SQL_DATE(), "7"),
        (Types.SQL_DATE(), '"yesterday"'),
        (Types.DECIMAL(10, 2), "1.005"),
        (Types.DECIMAL(10, 2), "123456789"),
        (Types.DECIMAL(10, 2), '"1_0"'),
        (Types.DECIMAL(10, 2), "true"),
        (Types.DECIMAL(10, 2), "[1]"),
        (Types.DECIMAL(10, 2), "NaN"),
        (Types.DECIMAL(10, 2), '"NaN"'),
        (Types.DECIMAL(10, 2), "1e999999999"),
        (Types.DECIMAL(10, 2), "1e-999999999"),
        (Types.DECIMAL(10, 2), "1e99999999999999999999"),
        (Types.BIG_DEC(), '"1_0.5"'),
        (Types.BIG_DEC(), '"NaN"'),
        (Types.STRING(), "NaN"),
        (Types.MAP(Types.INT(), Types.INT()), '{"1_0": 1}'),
        (Types.ROW_NAMED(["x"], [Types.INT()]), "[1]"),
        (Types.ROW([Types.INT()]), "[1]"),
    ],
)
def test_what_does_not_fit_is_refused(type_info, text):
    with pytest.raises(ValueError, match="field 'a'"):
        one(type_info, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+2"), "100.00"),
        (Decimal("-0.5"), "-0.50"),
        (Decimal("0.1"), "0.10"),
        (3, "3.00"),
        (None, "null"),
    ],
)
def test_a_decimal_is_written_as_a_number_with_its_digits_and_read_again(value, text):
    kind = Types.ROW_NAMED(["a"], [Types.DECIMAL(10, 2)])
    writer = JsonRowSerializationSchema.builder().with_type_info(kind).build()
    made = writer.serialize(Row(value))
    assert made == f'{{"a":{text}}}'.encode()
    assert writer.serialize_values([Row(value)]) == [made]
    assert one(Types.DECIMAL(10, 2), text) == value
    with pytest.raises(ValueError, match="0.001 does not fit"):
        writer.serialize(Row(Decimal("0.001")))


def test_a_row_of_another_width_is_refused():
    with pytest.raises(ValueError, match="different from number of field names: 1"):
        writer(Types.ROW_NAMED(["a"], [Types.INT()])).serialize(Row(1, 2))


SCHEMA = {
    "type": "object",
    "definitions": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["integer", "null"]},
        "born": {"type": "string", "format": "date"},
        "seen": {"type": "string", "format": "date-time"},
        "photo": {"type": "string", "contentEncoding": "base64"},
        "at": {"$ref": "#/definitions/place"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}]},
        "maybe": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
    },
}


def test_a_json_schema_gives_the_type():
    schema = JsonRowDeserializationSchema.builder().json_schema(json.dumps(SCHEMA)).build()
    assert schema.produced_type == Types.ROW_NAMED(
        ["name", "age", "born", "seen", "photo", "at", "tags", "pair", "maybe"],
        [
            Types.STRING(),
            Types.BIG_INT(),
            Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.ROW_NAMED(["x"], [Types.BIG_DEC()]),
            Types.OBJECT_ARRAY(Types.STRING()),
            Types.ROW([Types.BIG_INT(), Types.BOOLEAN()]),
            Types.BOOLEAN(),
        ],
    )
    found = schema.deserialize(b'{"name":"a","pair":[3,true],"at":{"x":1.50}}')
    assert found["pair"] == Row(f0=3, f1=True)
    assert found["at"] == Row(x=Decimal("1.50"))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not JSON"),
        ('{"type":"object","properties":{"a":{"type":"fish"}}}', "<root>/a"),
        ('{"type":"object","properties":{"a":{"type":"array"}}}', "'items'"),
        ('{"type":"object","properties":{"a":{"$ref":"#/no"}}}', "could not find"),
        ('{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}', "refers to itself"),
        ('{"type":"object","properties":{"a":{"type":["string","integer"]}}}', "several types"),
    ],
)
def test_a_json_schema_that_cannot_be_read_says_where(schema, text):
    with pytest.raises(ValueError, match=text):
        JsonRowDeserializationSchema.builder().json_schema(schema)


VALUES = st.tuples(
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.text(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.lists(st.none() | st.booleans()),
    st.none() | st.binary(),
    st.none() | st.datetimes(),
    st.none() | st.decimals(allow_nan=False, allow_infinity=False),
)


@given(VALUES)
def test_what_was_written_is_read(values):
    type_info = Types.ROW([
        Types.LONG(),
        Types.STRING(),
        Types.DOUBLE(),
        Types.BASIC_ARRAY(Types.BOOLEAN()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
    ])
    data = writer(type_info).serialize(Row(*values))
    assert tuple(reader(type_info).deserialize(data)) == values
