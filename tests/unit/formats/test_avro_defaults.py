"""Defaults of Avro's schemas are values of their types: what a reader adds, and what a writer adds. By Avro 1.12, "Complex Types"."""

import datetime as dt
import io
import json
from decimal import Decimal
from uuid import UUID

import fastavro
import pytest

from penstock.common import Row
from penstock.engine.runtime.elements import RowBatch
from penstock.formats.avro import (
    AvroBulkWriters,
    AvroFormat,
    AvroRowSerializationSchema,
    AvroSchema,
    with_values,
)
from penstock.formats.registry.avro import ConfluentRegistryAvroDeserializationSchema

UTC_SECOND = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
DATE = {"type": "int", "logicalType": "date"}
NESTED = {"type": "record", "name": "In", "fields": [
    {"name": "day", "type": DATE}, {"name": "raw", "type": "bytes", "default": "\u00fe"},
]}  # fmt: skip
CASES = [
    ("bytes", "\u00ff\u0000", b"\xff\x00"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\x01"),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        "\u0004\u00d2",
        Decimal("12.34"),
    ),
    (DATE, 1, dt.date(1970, 1, 2)),
    ({"type": "int", "logicalType": "time-millis"}, 1000, dt.time(0, 0, 1)),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1000, UTC_SECOND),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1_000_000, UTC_SECOND),
    (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        1000,
        UTC_SECOND.replace(tzinfo=None),
    ),
    ({"type": "string", "logicalType": "uuid"}, str(UUID(int=5)), UUID(int=5)),
    ("float", 1, 1.0),
    ("double", 2, 2.0),
    ("long", 3, 3),
    ("boolean", True, True),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    (["null", DATE], None, None),
    ([DATE, "null"], 1, dt.date(1970, 1, 2)),
    (["int", "boolean"], True, True),
    ({"type": "array", "items": DATE}, [1], [dt.date(1970, 1, 2)]),
    ({"type": "map", "values": "bytes"}, {"k": "\u00fd"}, {"k": b"\xfd"}),
    (NESTED, {"day": 1}, {"day": dt.date(1970, 1, 2), "raw": b"\xfe"}),
]


def record(*more):
    fields = [{"name": "a", "type": "int"}, *more]
    return {"type": "record", "name": "R", "fields": fields}


def with_default(kind, default):
    return record({"name": "x", "type": kind, "default": default})


@pytest.mark.parametrize(("kind", "default", "value"), CASES)
def test_a_field_that_the_writer_did_not_have_has_its_default(registry, kind, default, value):
    number = registry.add("s-value", json.dumps(record()))
    message = b"\x00" + number.to_bytes(4, "big") + b"\x02"
    schema = AvroSchema.parse_string(json.dumps(with_default(kind, default)))
    made = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, registry.url)
    found = made.deserialize(message)["x"]
    assert (found, type(found)) == (value, type(value))


def test_rows_have_defaults_of_their_types(registry):
    number = registry.add("s-value", json.dumps(record()))
    message = b"\x00" + number.to_bytes(4, "big") + b"\x02"
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record(
        {"name": "at", "type": moment, "default": 1000},
        {"name": "in", "type": NESTED, "default": {"day": 1}},
    )
    made = ConfluentRegistryAvroDeserializationSchema.for_row(
        AvroSchema.parse_string(json.dumps(schema)), registry.url
    )
    inner = Row(day=dt.date(1970, 1, 2), raw=b"\xfe")
    assert made.deserialize(message) == Row(**{
        "a": 1,
        "at": UTC_SECOND.replace(tzinfo=None),
        "in": inner,
    })


@pytest.mark.parametrize(("kind", "default", "value"), CASES)
def test_a_field_that_is_left_out_is_written_with_its_default(kind, default, value):
    schema = with_default(kind, default)
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    data = AvroRowSerializationSchema(avro_schema_string=json.dumps(schema)).serialize({"a": 1})
    assert fastavro.schemaless_reader(io.BytesIO(data), parsed, None) == {"a": 1, "x": value}


def test_files_have_them_too(tmp_path):
    old, new = (
        AvroSchema.parse_string(json.dumps(one)) for one in (record(), with_default(DATE, 1))
    )
    paths = []
    for schema in (old, new):
        path = tmp_path / f"{len(paths)}.avro"
        with path.open("wb") as file:
            writer = AvroBulkWriters.for_generic_record(schema).create(file, None)
            writer.write(RowBatch([{"a": 1}]))
            writer.finish()
        paths.append(str(path))
    made = AvroFormat(new)
    found = [
        value
        for path in paths
        for piece in made.pieces(path, 1 << 20)
        for batch in made.read(piece)
        for value in batch.values
    ]
    assert found == [{"a": 1, "x": dt.date(1970, 1, 2)}] * 2


def test_types_that_are_named_twice_and_that_contain_themselves_are_followed():
    inner = {"type": "record", "name": "In", "fields": [
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "next", "type": ["null", "In"], "default": None},
    ]}  # fmt: skip
    schema = record({"name": "x", "type": inner}, {"name": "y", "type": "In", "default": {}})
    parsed = fastavro.parse_schema(schema)
    made = with_values(parsed)
    writers = fastavro.parse_schema(record({"name": "x", "type": {**inner, "fields": []}}))
    found = fastavro.schemaless_reader(io.BytesIO(b"\x02"), writers, made)
    own = {"raw": b"\xff", "next": None}
    assert found == {"a": 1, "x": own, "y": own}
    assert parsed["fields"][2]["default"] == {}, "the schema that was given stays as it is"
