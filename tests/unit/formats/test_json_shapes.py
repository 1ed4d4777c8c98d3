"""JSON that a schema takes. The judge is the library jsonschema."""

import datetime as dt
import json
from decimal import Decimal

import jsonschema
import pytest

from penstock.common import Row
from penstock.formats.json_schema import shape_of_schema
from penstock.formats.json_shapes import writer_of

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
