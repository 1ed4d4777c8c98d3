"""Types of JSON Schemas: Flink's JsonRowSchemaConverter, and what the specification (2020-12) says of the words that it does not know."""

import datetime as dt
import json
from decimal import Decimal

import jsonschema
import pytest

from penstock.common import Row, Types
from penstock.formats.json_schema import shape_of_schema, type_of_schema, writer_of

SCHEMA = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "price": {"type": "number"},
        "sold": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "noon": {"type": "string", "format": "time"},
        "at": {"type": "string", "format": "date-time"},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "inner": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}},
        "nothing": {"type": "null"},
    },
}
WRITE = writer_of(shape_of_schema(json.dumps(SCHEMA)))
BARE = {"id": 1, "name": None}


def written(value):
    text = WRITE(value)
    found = json.loads(text, parse_float=Decimal)
    jsonschema.validate(json.loads(text), SCHEMA)
    return found


def test_all_types_are_written_as_the_schema_has_them():
    row = Row(
        id=2**70, name="ä\n", price=Decimal("1.10"), sold=True, day=dt.date(2020, 2, 29),
        noon=dt.time(12), at=dt.datetime.fromisoformat("2020-01-02T03:04:05"), raw=b"\x00\xff",
        tags=["x", None], pair=Row(1, False), counts={"a": 1}, inner=Row(x=0), nothing=None,
    )  # fmt: skip
    assert written(row) == {
        "id": 2**70, "name": "ä\n", "price": Decimal("1.10"), "sold": True, "day": "2020-02-29",
        "noon": "12:00:00Z", "at": "2020-01-02T03:04:05Z", "raw": "AP8=", "tags": ["x", None],
        "pair": [1, False], "counts": {"a": 1}, "inner": {"x": 0}, "nothing": None,
    }  # fmt: skip


def test_none_is_null_where_that_is_taken_and_left_out_where_not():
    expected = {"id": 1, "name": None, "nothing": None}
    assert written(BARE) == expected
    assert written(Row(1, *[None] * 12)) == expected
    assert written((1, *[None] * 12)) == expected


@pytest.mark.parametrize("value", [1, 0.1, 1e300, Decimal("1E+2"), Decimal("-0.5")])
def test_numbers_keep_their_value(value):
    assert written({**BARE, "price": value})["price"] == Decimal(str(value))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"id": None}, "id: it is None, and the schema requires a value"),
        ({"id": True}, "id: expected a whole number, got True"),
        ({"id": 1.0}, "id: expected a whole number, got 1.0"),
        ({"name": 5}, "name: expected a string, got 5"),
        ({"price": float("nan")}, "price: expected a finite number, got nan"),
        ({"price": "1"}, "price: expected a finite number, got '1'"),
        ({"sold": 1}, "sold: expected a bool, got 1"),
        ({"day": "today"}, "day: "),
        ({"raw": 5}, "raw: "),
        ({"tags": "abc"}, "tags: expected a list, got 'abc'"),
        ({"counts": 5}, "counts: "),
        ({"pair": (1,)}, "pair: expected 2 fields"),
        ({"pair": (None, True)}, "pair: the schema does not take null"),
        ({"counts": {"a": None}}, "counts: the schema does not take null"),
        ({"counts": {1: 1}}, "counts: expected a string, got 1"),
        ({"inner": {}}, "inner: x: it is None"),
        ({"nothing": 1}, "nothing: expected None, got 1"),
        ({"idd": 1}, "the schema has no field 'idd', only"),
    ],
)
def test_what_the_schema_does_not_take_names_the_field(fields, text):
    with pytest.raises(ValueError, match=text):
        WRITE({**BARE, **fields})


def test_another_number_of_fields_is_refused():
    with pytest.raises(ValueError, match="expected 13 fields"):
        WRITE((1, "a"))
    with pytest.raises(TypeError, match="expected a Row, a tuple or a dict"):
        WRITE("text")


STRING, WHOLE, NUMBER = Types.STRING(), Types.BIG_INT(), Types.BIG_DEC()


def type_of(schema, **root):
    """Of the field `a` with this schema."""
    whole = {"type": "object", "properties": {"a": schema}, **root}
    return type_of_schema(json.dumps(whole)).get_field_types()[0]


def row(**types):
    return Types.ROW_NAMED(list(types), list(types.values()))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, WHOLE),  # as Pydantic writes it
        ({"oneOf": [{"type": "null"}, {"type": "number"}]}, NUMBER),
        ({"type": ["null", "string"], "format": "date"}, Types.SQL_DATE()),
        ({"type": "string", "format": "time"}, Types.SQL_TIME()),
        ({"type": "string", "format": "email"}, STRING),
        ({"enum": ["x", "y", None]}, STRING),
        ({"const": 1}, WHOLE),
        ({"enum": [True]}, Types.BOOLEAN()),
        ({"type": "null"}, Types.PICKLED_BYTE_ARRAY()),
        ({"properties": {"b": {"type": "string"}}}, row(b=STRING)),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, Types.MAP(STRING, WHOLE)),
        ({"type": "object"}, Types.ROW_NAMED([], [])),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False},
         Types.ROW([STRING])),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
         Types.OBJECT_ARRAY(STRING)),
        ({"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "number"}},
          "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, row(b=STRING, c=NUMBER)),
        ({"allOf": [{"type": "string"}]}, STRING),
        ({"allOf": [{"properties": {"b": {"type": "string"}}}, {"if": {}, "then": {}}],
          "properties": {"c": {"type": "number"}}}, row(b=STRING, c=NUMBER)),
    ],
)  # fmt: skip
def test_a_place_has_the_type_of_what_it_takes(schema, expected):
    assert type_of(schema) == expected


@pytest.mark.parametrize(
    "pointer",
    ["#/$defs/a~1b~0c%20d", "#/$defs/more/anyOf/1", "#/definitions/deep/properties/x"],
)
def test_references_are_json_pointers(pointer):
    """RFC 6901: ~1 is a slash, ~0 a tilde; in fragments of URIs %20 is a space; numbers are places in lists."""
    found = type_of(
        {"$ref": pointer},
        **{
            "$defs": {"a/b~c d": {"type": "number"}, "more": {"anyOf": [{}, {"type": "number"}]}},
            "definitions": {"deep": {"properties": {"x": {"type": "number"}}}},
        },
    )
    assert found == NUMBER


def test_a_schema_may_begin_with_a_reference_and_use_one_twice():
    place = {"type": "object", "properties": {"x": {"type": "number"}}}
    schema = {
        "$ref": "#/$defs/Trip",
        "$defs": {
            "Place": place,
            "Trip": {
                "properties": {"a": {"$ref": "#/$defs/Place"}, "b": {"$ref": "#/$defs/Place"}}
            },
        },
    }
    assert type_of_schema(json.dumps(schema)) == row(a=row(x=NUMBER), b=row(x=NUMBER))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (True, "at <root>/a allows any value"),
        ({}, "at <root>/a allows any value"),
        ({"description": "x"}, "at <root>/a: it has no 'type'"),
        ({"enum": ["x", 1]}, "at <root>/a allows several types"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "at <root>/a allows several types"),
        ({"$ref": "https://x/y.json"}, "'https://x/y.json' at <root>/a is not within"),
        ({"$ref": "#anchor"}, "'#anchor' at <root>/a is not within"),
        ({"$ref": "#"}, "at <root>/a/a refers to itself: #. A ROW cannot contain itself"),
        ({"type": "object", "patternProperties": {"^x": {"type": "string"}}}, "patternProperties"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
         "at <root>/a has additional items"),
        ({"allOf": [{"type": "string"}, {"type": "number"}]}, "'allOf' of other than objects"),
        ({"allOf": [{"properties": {"b": {"type": "string"}}},
                    {"properties": {"b": {"type": "number"}}}]}, "two types for 'b'"),
        ({"type": "object", "properties": {"b": {"type": "array", "items": {"type": "fish"}}}},
         "unsupported type 'fish' in the JSON schema at <root>/a/b/items"),
    ],
)  # fmt: skip
def test_what_a_row_cannot_hold_is_refused_with_its_place(schema, text):
    with pytest.raises(ValueError, match=text):
        type_of(schema)


@pytest.mark.parametrize(
    "schema", [{"oneOf": []}, {"allOf": {}}, 5, {"type": "object", "properties": []}]
)
def test_what_is_no_schema_is_a_type_error(schema):
    with pytest.raises(TypeError, match="invalid JSON schema at <root>/a"):
        type_of(schema)


def test_required_fields_and_null_are_known():
    schema = {
        "allOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": ["string", "null"]}}, "required": ["b"]},
        ]
    }
    shape = shape_of_schema(json.dumps(schema))
    assert shape.required == {"a", "b"}
    assert [part.takes_null for part in shape.parts] == [False, True]
