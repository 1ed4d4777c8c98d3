"""Avro rows and files. Bytes are those of the Avro 1.12 specification's binary encoding; types are Flink's AvroSchemaConverter's."""

import contextlib
import datetime as dt
import json
import pickle
import time
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.common import Row, Types
from penstock.connectors.file_system import BucketAssigner, FileSink, FileSource
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.formats import avro, file_access
from penstock.formats.avro import (
    AvroBulkWriters,
    AvroFormat,
    AvroInputFormat,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from penstock.formats.parquet import AvroParquetReaders, AvroParquetWriters
from tests.tools.connectors.played_by_hand import all_values, run_source, writer_context

USER = """{"type": "record", "name": "User", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": null}]}"""
WIDE = json.dumps({
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "same", "type": "Kind"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "noon", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "wall", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "f", "type": "float"}, {"name": "b", "type": "boolean"}],
            },
        },
    ],
})
WIDE_ROW = Row(
    kind="A",
    same="B",
    tags=["x", "y"],
    counts={"a": 1},
    raw=b"\x00\xff",
    hash=b"ab",
    price=Decimal("12.50"),
    day=dt.date(2020, 2, 29),
    noon=dt.time(12, 0, 1),
    at=dt.datetime.fromisoformat("2020-01-02T03:04:05.006"),
    wall=dt.datetime.fromisoformat("2020-01-02T03:04:05.000006"),
    inner=Row(f=1.5, b=True),
)
NODE = """{"type": "record", "name": "Node", "fields": [
    {"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"]}]}"""
TREE = """{"type": "record", "name": "Tree", "fields": [
    {"name": "v", "type": "long"},
    {"name": "children", "type": {"type": "array", "items": "Tree"}}]}"""
MUTUAL = """{"type": "record", "name": "A", "fields": [{"name": "b", "type": ["null",
    {"type": "record", "name": "B", "fields": [
        {"name": "many", "type": {"type": "array", "items": "A"}}]}]}]}"""


def written(tmp_path, factory, values, attempt=0):
    sink = (
        FileSink
        .for_bulk_format(str(tmp_path), factory)
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    assert sink.accepts is Accepts.ROWS
    writer = sink.create_writer(writer_context(attempt=attempt))
    with contextlib.closing(writer):
        writer.write(RowBatch(values), 0)
        prepared = writer.prepare_commit()
    sink.create_committer().commit(prepared)
    return prepared[0][1]


def test_a_row_is_the_bytes_of_the_specification():
    schema = AvroRowSerializationSchema(avro_schema_string=USER)
    assert schema.serialize(Row(3, "ab")) == b"\x06\x02\x04ab"
    assert schema.serialize(Row(id=-1, name=None)) == b"\x01\x00"


def test_bytes_are_a_row_of_the_schemas_type():
    schema = AvroRowDeserializationSchema(avro_schema_string=USER)
    assert schema.deserialize(b"\x06\x02\x04ab") == Row(id=3, name="ab")
    assert schema.deserialize(b"\x01\x00") == Row(id=-1, name=None)
    assert schema.deserialize(b"") is None
    assert schema.produced_type == Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def test_every_kind_of_field_comes_back():
    there = AvroRowSerializationSchema(avro_schema_string=WIDE)
    back = AvroRowDeserializationSchema(avro_schema_string=WIDE)
    found = back.deserialize(there.serialize(WIDE_ROW))
    assert found == WIDE_ROW
    assert str(back.produced_type) == (
        "RowTypeInfo(kind: String, same: String, tags: ObjectArrayTypeInfo<String>, counts: MapTypeInfo<String, Integer>, "
        "raw: PrimitiveArrayTypeInfo<Byte>, hash: PrimitiveArrayTypeInfo<Byte>, price: BigDecimal, day: DateTypeInfo, "
        "noon: TimeTypeInfo, at: TimestampTypeInfo, wall: TimestampTypeInfo, inner: RowTypeInfo(f: Float, b: Boolean))"
    )


def test_a_type_that_a_union_defines_may_be_named_later():
    """Nobody looks into the branches of a union of several types, but the name is known behind it."""
    place = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "by", "type": ["null", "string", place]},
            {"name": "stops", "type": {"type": "array", "items": "Place"}},
        ],
    }
    text = json.dumps(schema)
    reads = AvroRowDeserializationSchema(avro_schema_string=text)
    assert str(reads.produced_type.get_field_types()[1]) == str(
        Types.OBJECT_ARRAY(Types.ROW_NAMED(["x"], [Types.INT()]))
    )
    data = AvroRowSerializationSchema(avro_schema_string=text).serialize(Row("train", [Row(1)]))
    assert reads.deserialize(data) == Row(by="train", stops=[Row(x=1)])


def test_schemas_that_were_used_travel():
    there = AvroRowSerializationSchema(avro_schema_string=USER)
    back = AvroRowDeserializationSchema(avro_schema_string=USER)
    data = there.serialize(Row(1, "a"))
    back.deserialize(data)
    assert pickle.loads(pickle.dumps(there)).serialize(Row(1, "a")) == data
    assert pickle.loads(pickle.dumps(back)).deserialize(data) == Row(id=1, name="a")


@pytest.mark.parametrize("data", [b"\x06", b"\x06\x08ab", b"\x06\x02\xff"])
def test_what_is_no_avro_is_named(data):
    schema = AvroRowDeserializationSchema(avro_schema_string=USER)
    with pytest.raises(ValueError, match="cannot be read as Avro of RowTypeInfo.* Message: b'"):
        schema.deserialize(data)


@pytest.mark.parametrize("value", [Row("x", "y"), Row(1), 5])
def test_a_record_of_another_shape_is_named(value):
    schema = AvroRowSerializationSchema(avro_schema_string=USER)
    with pytest.raises(ValueError, match="a record does not have the type RowTypeInfo"):
        schema.serialize(value)


@pytest.mark.parametrize("tags", ["ab", b"ab", {"a": 1}])
def test_what_only_looks_like_a_list_is_no_array(tags):
    text = """{"type": "record", "name": "Tagged", "fields": [
        {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""
    schema = AvroRowSerializationSchema(avro_schema_string=text)
    with pytest.raises(ValueError, match="a record does not have the type RowTypeInfo") as raised:
        schema.serialize(Row(tags=tags))
    assert "expected a list, got" in str(raised.value.__cause__ or raised.value)


def test_schemas_are_checked_when_they_are_made(tmp_path):
    for text in ("{", '{"type": "recrod", "name": "A", "fields": []}', "[1]"):
        with pytest.raises(ConfigurationError, match="not an Avro schema"):
            AvroSchema.parse_string(text)
    for kind in (AvroRowSerializationSchema, AvroRowDeserializationSchema):
        with pytest.raises(ConfigurationError, match="a Java class"):
            kind("com.shop.User")
        with pytest.raises(TypeError, match="needs avro_schema_string"):
            kind()
        with pytest.raises(ConfigurationError, match="schema of a record"):
            kind(avro_schema_string='"int"')
        with pytest.raises(ConfigurationError, match="'Node' contains itself"):
            kind(avro_schema_string=NODE)
    path = tmp_path / "user.avsc"
    path.write_text(USER)
    assert str(AvroSchema.parse_file(str(path))) == str(AvroSchema.parse_string(USER))


def test_the_type_of_generic_records_is_its_schema():
    kind = GenericRecordAvroTypeInfo(AvroSchema.parse_string(USER))
    assert str(kind).startswith('GenericRecord("{"type":"record","name":"User"')
    assert kind == GenericRecordAvroTypeInfo(AvroSchema.parse_string(USER))
    assert kind != GenericRecordAvroTypeInfo(AvroSchema.parse_string(NODE))
    assert pickle.loads(pickle.dumps(kind)) == kind


def test_a_file_is_written_and_read_by_others(tmp_path):
    schema = AvroSchema.parse_string(USER)
    path = written(
        tmp_path,
        AvroBulkWriters.for_generic_record(schema),
        [{"id": 1, "name": "a"}, {"id": 2}, Row(3, "c")],
    )
    with open(path, "rb") as file:
        found = list(fastavro.reader(file))
    assert found == [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]


def source_of(read):
    """As `env.create_input` makes it."""
    return FileSource.for_record_stream_format(read.file_format, read.path).build()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (NODE, {"value": 1, "next": {"value": 2, "next": None}}),
        (TREE, {"v": 1, "children": [{"v": 2, "children": []}, {"v": 3, "children": []}]}),
        (MUTUAL, {"b": {"many": [{"b": None}, {"b": {"many": []}}]}}),
    ],
)
def test_records_that_contain_themselves_are_generic_ones(text, value, tmp_path):
    schema = AvroSchema.parse_string(text)
    path = written(tmp_path, AvroBulkWriters.for_generic_record(schema), [value])
    source = source_of(AvroInputFormat(path, schema))
    assert all_values(run_source(source)) == [value]


def test_a_record_that_does_not_fit_names_itself(tmp_path):
    factory = AvroBulkWriters.for_generic_record(AvroSchema.parse_string(USER))
    with pytest.raises(ValueError, match=r"does not fit the Avro schema .* Record: \{'id': 'x'"):
        written(tmp_path, factory, [{"id": "x", "name": "a"}])


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_file_is_read_in_pieces(tmp_path, codec):
    schema = AvroSchema.parse_string(USER)
    records = [{"id": number, "name": f"user {number}"} for number in range(2000)]
    path = tmp_path / "users.avro"
    with path.open("wb") as file:
        fastavro.writer(file, schema.parsed(), records, codec=codec, sync_interval=500)
    form = AvroFormat(schema)
    pieces = list(form.pieces(str(path), 2000))
    assert len(pieces) > 3
    assert pieces[-1].stop == path.stat().st_size
    found = [[value for batch in form.read(one) for value in batch.values] for one in pieces]
    assert all(found)
    assert [value for part in found for value in part] == records
    source = FileSource.for_record_stream_format(form, str(path)).set_split_size(2000).build()
    assert source.produced_type == GenericRecordAvroTypeInfo(schema)
    assert sorted(one["id"] for one in all_values(run_source(source, parallelism=2))) == [
        *range(2000)
    ]


def test_the_size_of_a_file_is_asked_for_once_in_a_piece(tmp_path, monkeypatch):
    schema = AvroSchema.parse_string(USER)
    path = tmp_path / "users.avro"
    with path.open("wb") as file:
        users = [{"id": number, "name": "a"} for number in range(100)]
        fastavro.writer(file, schema.parsed(), users, sync_interval=50)
    form = AvroFormat(schema)
    [piece] = form.pieces(str(path), 1 << 20)
    asked = []
    monkeypatch.setattr(
        avro, "size_of", lambda path: asked.append(path) or file_access.size_of(path)
    )
    assert [value for batch in form.read(piece) for value in batch.values] == users
    assert asked == [str(path)]


def test_a_file_is_read_as_the_readers_schema_says(tmp_path):
    path = tmp_path / "users.avro"
    with path.open("wb") as file:
        fastavro.writer(file, AvroSchema.parse_string(USER).parsed(), [{"id": 1, "name": "a"}])
    wanted = AvroSchema.parse_string(
        '{"type": "record", "name": "User", "namespace": "shop", "fields": ['
        '{"name": "name", "type": ["null", "string"]}, {"name": "age", "type": "int", "default": 7}]}'
    )
    source = source_of(AvroInputFormat(str(path), wanted))
    assert all_values(run_source(source)) == [{"name": "a", "age": 7}]
    other = AvroSchema.parse_string(
        '{"type": "record", "name": "User", "fields": [{"name": "age", "type": "int"}]}'
    )
    with pytest.raises(UserCodeError, match="cannot be read as Avro"):
        all_values(run_source(source_of(AvroInputFormat(str(path), other))))


def test_the_schemas_of_a_file_are_not_compared_for_each_record(tmp_path, monkeypatch):
    schema = AvroSchema.parse_string(USER)
    records = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    path = written(tmp_path, AvroBulkWriters.for_generic_record(schema), records)
    monkeypatch.setattr(
        fastavro, "schemaless_reader", None
    )  # It compares them whenever it is called.
    assert all_values(run_source(source_of(AvroInputFormat(path, schema)))) == records


def test_an_empty_file_has_no_records_and_a_damaged_one_is_named(tmp_path):
    schema = AvroSchema.parse_string(USER)
    path = tmp_path / "users.avro"
    with path.open("wb") as file:
        fastavro.writer(file, schema.parsed(), [])
    source = source_of(AvroInputFormat(str(path), schema))
    assert all_values(run_source(source)) == []
    with path.open("wb") as file:
        fastavro.writer(file, schema.parsed(), [{"id": 1, "name": "a"}])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserCodeError, match="middle of a block"):
        all_values(run_source(source))
    path.write_text("id,name\n")
    with pytest.raises(UserCodeError, match="not an Avro object container file"):
        all_values(run_source(source))


def test_generic_records_in_parquet(tmp_path):
    schema = AvroSchema.parse_string(WIDE)
    there = dict(zip(WIDE_ROW._fields, WIDE_ROW, strict=True))
    path = written(tmp_path, AvroParquetWriters.for_generic_record(schema), [WIDE_ROW, there])
    metadata = pq.read_schema(path)
    assert metadata.metadata[b"parquet.avro.schema"].decode() == str(schema)
    assert metadata.field("tags").nullable is False
    source = FileSource.for_record_stream_format(
        AvroParquetReaders.for_generic_record(schema), path
    ).build()
    stamped = there | {
        "at": there["at"].replace(tzinfo=dt.UTC),
        "inner": {"f": 1.5, "b": True},
    }
    assert all_values(run_source(source)) == [stamped, stamped]


def test_parquet_is_read_as_the_schema_says_and_keeps_its_rules(tmp_path):
    factory = AvroParquetWriters.for_generic_record(AvroSchema.parse_string(USER))
    path = written(tmp_path, factory, [{"id": 1, "name": None}])
    wanted = '{"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}, %s]}'
    good = AvroSchema.parse_string(wanted % '{"name": "age", "type": "int", "default": 7}')
    form = AvroParquetReaders.for_generic_record(good)
    source = FileSource.for_record_stream_format(form, path).build()
    assert all_values(run_source(source)) == [{"id": 1, "age": 7}]
    bad = AvroSchema.parse_string(wanted % '{"name": "age", "type": "int"}')
    form = AvroParquetReaders.for_generic_record(bad)
    with pytest.raises(UserCodeError, match=r"lacks the columns \['age'\]"):
        all_values(run_source(FileSource.for_record_stream_format(form, path).build()))
    with pytest.raises(ValueError, match="'id' takes no nulls"):
        written(tmp_path, factory, [{"id": None, "name": "a"}], attempt=1)
    for kind in (AvroParquetReaders, AvroParquetWriters):
        with pytest.raises(ConfigurationError, match='schema of a record.*got "int"'):
            kind.for_generic_record(AvroSchema.parse_string('"int"'))
    with pytest.raises(ConfigurationError, match="union of several types"):
        AvroParquetWriters.for_generic_record(
            AvroSchema.parse_string(wanted % '{"name": "u", "type": ["int", "string"]}')
        )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"n": 1, "ammount": 2}, "no field 'ammount', only \\['n', 'm'\\]"),
        ({"n": 1.5}, "field 'n': expected a whole number, got 1.5"),
        ({"n": 1 << 31}, "field 'n': 2147483648 does not fit into an Avro int, which has 32 bits"),
        ({"n": 1, "m": [{"i": 1 << 63}]}, "field 'm': field 'i': .* Avro long, which has 64 bits"),
    ],
)
def test_what_would_be_written_as_something_else_is_told_with_its_field(value, text):
    inner = {"type": "record", "name": "I", "fields": [{"name": "i", "type": "long"}]}
    fields = [
        {"name": "n", "type": "int"},
        {"name": "m", "type": {"type": "array", "items": inner}, "default": []},
    ]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    with pytest.raises(ValueError, match=text):
        AvroRowSerializationSchema(avro_schema_string=schema).serialize(value)


def test_whole_numbers_of_numpy_are_written_as_they_are():
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "int"]}]}'
    write = AvroRowSerializationSchema(avro_schema_string=schema).serialize
    assert write({"n": np.int64(-(1 << 31))}) == write({"n": -(1 << 31)})
    assert write({"n": None}) == b"\x00"


SECOND = dt.datetime.fromisoformat("1970-01-01T00:00:01")
"""Of 1970, without a zone."""


def test_a_time_without_a_zone_is_utc_in_a_union_of_several_types_too(monkeypatch):
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "at", "type": ["null", moment, "string"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        write = AvroRowSerializationSchema(avro_schema_string=schema).serialize
        assert write({"at": SECOND}) == b"\x02\xd0\x0f"
        assert write({"at": "x"}) == b"\x04\x02x"
    finally:
        monkeypatch.undo()
        time.tzset()
