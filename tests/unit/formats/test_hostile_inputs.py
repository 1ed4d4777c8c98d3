"""Records of strangers: each is refused as a bad record, and none needs more memory than a multiple of its own bytes."""

import bz2
import gzip
import io
import json
import lzma
import tracemalloc
import zlib
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.common import Types
from penstock.connectors.file_system import StreamFormat
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.avro import AvroFormat, AvroRowDeserializationSchema, AvroSchema
from penstock.formats.avro_records import RecordReader, unpacked
from penstock.formats.csv import CsvReaderFormat, CsvRowDeserializationSchema, CsvSchema
from penstock.formats.debezium import DebeziumJsonDeserializationSchema
from penstock.formats.file_format import MOST_OF_RECORD
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.formats.protobuf import ProtobufDeserializationSchema

MIB = 1 << 20
MOST_TIMES = 16
"""Memory while a message is read, as a multiple of its bytes."""
DIGITS = b"9" * MIB
MERSENNE = (1 << 61) - 1
"""Python's hash of an int is its remainder by this."""


def long_bytes(number):
    """A number as Avro has it: zigzag, seven bits in a byte."""
    left, made = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def avro_record(*types, name="R"):
    fields = [{"name": f"f{place}", "type": one} for place, one in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def json_of(kind):
    return JsonRowDeserializationSchema.builder().type_info(row_of(kind)).build()


def csv_of(kind):
    return CsvRowDeserializationSchema.Builder(row_of(kind)).build()


def avro_of(kind):
    return AvroRowDeserializationSchema(avro_schema_string=json.dumps(avro_record(kind)))


def row_of(kind):
    return Types.ROW_NAMED(["f"], [kind])


def in_json(value):
    return b'{"f":' + value + b"}"


def nested(levels):
    return b"[" * levels + b"]" * levels


PROTOBUF = ProtobufDeserializationSchema(Timestamp)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
COLLIDING = b",".join(b'"%d":1' % (factor * MERSENNE) for factor in range(1, 2000))
MESSAGES = {
    "JSON, an exponent": (json_of(Types.LONG()), in_json(b"1e999999999")),
    "JSON, an exponent of a decimal": (json_of(Types.DECIMAL(38, 18)), in_json(b"1e999999999")),
    "JSON, an exponent of 30 digits": (json_of(Types.LONG()), in_json(b"1e" + b"9" * 30)),
    "JSON, digits of an int": (json_of(Types.LONG()), in_json(DIGITS)),
    "JSON, digits of a big int": (json_of(Types.BIG_INT()), in_json(DIGITS)),
    "JSON, digits of a decimal": (json_of(Types.DECIMAL(38, 18)), in_json(b"0." + DIGITS)),
    "JSON, digits in quotes": (json_of(Types.DECIMAL(9, 2)), in_json(b'"' + DIGITS + b'"')),
    "JSON, nested lists": (json_of(Types.PICKLED_BYTE_ARRAY()), in_json(nested(500))),
    "JSON, a million nested lists": (json_of(Types.LONG()), in_json(nested(MIB))),
    "JSON, keys that collide": (
        json_of(Types.MAP(Types.BIG_INT(), Types.LONG())), in_json(b"{" + COLLIDING + b"}"),
    ),
    "JSON, NaN": (json_of(Types.LONG()), in_json(b"NaN")),
    "JSON, a date out of range": (json_of(Types.SQL_DATE()), in_json(b'"9999-99-99"')),
    "JSON, a time out of range": (
        json_of(Types.SQL_TIMESTAMP()), in_json(b'"9999-12-31T23:59:59-10:00"'),
    ),
    "JSON, no UTF-8": (json_of(Types.STRING()), in_json(b'"\xff"')),
    "JSON, a zero byte": (json_of(Types.STRING()), in_json(b'"\0"')),
    "Debezium, nested lists": (
        DebeziumJsonDeserializationSchema(row_of(Types.PICKLED_BYTE_ARRAY())),
        b'{"op":"c","after":{"f":' + nested(500) + b"}}",
    ),
    "CSV, an exponent": (csv_of(Types.DECIMAL(38, 18)), b"1e999999999"),
    "CSV, digits of an int": (csv_of(Types.BIG_INT()), DIGITS),
    "CSV, digits of a decimal": (csv_of(Types.DECIMAL(38, 18)), DIGITS),
    "CSV, quotes that do not end": (csv_of(Types.STRING()), b'"' + b"a\n" * MIB),
    "CSV, fields": (csv_of(Types.STRING()), b"," * MIB),
    "CSV, no UTF-8": (csv_of(Types.STRING()), b"\xed\xa0\x80"),
    "Avro, an int of 64 bits": (avro_of("int"), long_bytes(1 << 60)),
    "Avro, a decimal": (avro_of(DECIMAL), long_bytes(MIB) + b"\x7f" * MIB),
    "Avro, a count": (avro_of({"type": "array", "items": "int"}), long_bytes(1 << 61) + b"\0" * 9),
    "Avro, a count of a map": (
        avro_of({"type": "map", "values": "null"}), long_bytes(1 << 61) + b"\0" * 9,
    ),
    "Avro, a length": (avro_of("string"), long_bytes(1 << 61) + b"abc"),
    "Avro, a length below zero": (avro_of("bytes"), long_bytes(-5) + b"abc"),
    "Avro, a date out of range": (
        avro_of({"type": "int", "logicalType": "date"}), long_bytes(2**31 - 1),
    ),
    "Avro, a time out of range": (
        avro_of({"type": "long", "logicalType": "timestamp-millis"}), long_bytes(2**62),
    ),
    "Protobuf, nested groups": (PROTOBUF, b"\x1b" * MIB),
    "Protobuf, a length": (PROTOBUF, b"\x1a" + b"\xff" * 8 + b"\x7f"),
    "Protobuf, a number that does not end": (PROTOBUF, b"\x08" + b"\xff" * MIB),
    "Avro, no UTF-8": (avro_of("string"), long_bytes(3) + b"\xed\xa0\x80"),
}  # fmt: skip


def peak_of(call):
    """The most memory that a call has at a time, of what Python counts."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_hostile_message_is_refused_and_costs_its_own_size(name):
    schema, message = MESSAGES[name]

    def refused():
        with pytest.raises(ValueError, match="cannot be read as"):
            schema.deserialize(message)

    _, peak = peak_of(refused)
    assert peak < MOST_TIMES * len(message) + MIB


@pytest.mark.parametrize("levels", [1, 199])
def test_what_is_nested_less_is_read(levels):
    value = json_of(Types.PICKLED_BYTE_ARRAY()).deserialize(in_json(nested(levels)))
    assert json.dumps(value.f) == nested(levels).decode()


def test_map_keys_of_any_size_are_read():
    keys = [1, 1 << 70, MERSENNE]
    message = in_json(json.dumps(dict.fromkeys(map(str, keys), 1)).encode())
    assert list(json_of(Types.MAP(Types.BIG_INT(), Types.LONG())).deserialize(message).f) == keys


# ---------------------------------------------------------------------- Avro

EMPTY = {"type": "record", "name": "E", "fields": []}
SELF = avro_record(["null", "R"])
BOMBS = {
    "nulls": {"type": "array", "items": "null"},
    "records without fields": {"type": "array", "items": EMPTY},
    "records of nulls": {"type": "array", "items": avro_record("null", "null", name="N")},
    "bytes of size 0": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
    "in a union in a map": {"type": "map", "values": ["null", {"type": "array", "items": "null"}]},
}


@pytest.mark.parametrize("name", BOMBS)
def test_lists_of_what_has_no_bytes_are_refused_with_their_schema(name):
    schema = avro_record(BOMBS[name])
    with pytest.raises(ConfigurationError, match="no bytes, so a message of a few bytes"):
        AvroRowDeserializationSchema(avro_schema_string=json.dumps(schema))
    with pytest.raises(ConfigurationError, match="no bytes, so a message of a few bytes"):
        RecordReader(fastavro.parse_schema(schema), fastavro.parse_schema(avro_record("int")))


def test_a_record_that_doubles_in_each_of_its_records_is_refused():
    schema = "null"
    for level in range(40):
        inner = schema if level == 0 else {**schema}
        schema = avro_record(inner, inner if level == 0 else f"R{level - 1}", name=f"R{level}")
    with pytest.raises(ConfigurationError, match="values in its fields"):
        RecordReader(fastavro.parse_schema(avro_record("int", schema)))


@pytest.mark.parametrize("levels", [5000, MIB])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_record_in_itself_is_an_error_and_not_the_end_of_the_process(levels, is_read):
    chain = avro_record(["null", "R"])
    outer = avro_record(chain, "int", name="Outer")
    readers = None if is_read else fastavro.parse_schema(avro_record("int", name="Outer"))
    if readers is not None:
        readers["fields"][0]["name"] = "f1"
    reader = RecordReader(fastavro.parse_schema(outer), readers)
    with pytest.raises(RecursionError):
        reader.one(long_bytes(1) * levels + b"\0\0")
    assert reader.one(long_bytes(1) * 3 + b"\0" + long_bytes(7))["f1"] == 7


def test_a_number_that_does_not_end_is_refused_where_fastavro_reads_in_python():
    reader = RecordReader(fastavro.parse_schema(avro_record(["null", "R"], "long")))
    with pytest.raises(ValueError, match="a number has more than 1024 bytes"):
        reader.one(b"\0" + b"\xff" * MIB)


@pytest.mark.parametrize("kind", ["bytes", {"type": "fixed", "name": "F", "size": 16}])
def test_decimals_are_read_as_the_writer_has_them(kind):
    logical = {"logicalType": "decimal", "precision": 9, "scale": 2}
    schema = avro_record({"type": kind, **logical} if kind == "bytes" else {**kind, **logical})
    made = io.BytesIO()
    fastavro.schemaless_writer(made, schema, {"f0": Decimal("-12.34")})
    for readers in (None, fastavro.parse_schema(schema)):
        reader = RecordReader(fastavro.parse_schema(schema), readers)
        assert reader.one(made.getvalue()) == {"f0": Decimal("-12.34")}


PACKED = {
    "deflate": lambda data: zlib.compress(data, 9)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": lambda data: (
        pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
    ),
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
    "lz4": lambda data: (
        len(data).to_bytes(4, "little") + pa.compress(data, "lz4_raw", asbytes=True)
    ),
    "null": lambda data: data,
}


@pytest.mark.parametrize("codec", PACKED)
def test_a_block_is_unpacked_up_to_its_limit(codec):
    assert unpacked(PACKED[codec](b"a" * 1000), codec, 1000) == b"a" * 1000
    bomb = PACKED[codec](bytes(64 * MIB))

    def refused():
        with pytest.raises(ValueError, match="a block of more than 1000 bytes"):
            unpacked(bomb, codec, 1000)

    _, peak = peak_of(refused)
    assert peak < 16 * MIB  # xz needs 8 for itself.


USER = json.dumps(avro_record("int"))


def avro_file(path, *blocks, schema=USER, codec="null"):
    """A file of blocks (count, bytes), whatever they are."""
    made = io.BytesIO()
    made.write(b"Obj\x01" + long_bytes(2))
    for one in (b"avro.codec", codec.encode(), b"avro.schema", schema.encode()):
        made.write(long_bytes(len(one)) + one)
    mark = b"m" * 16
    made.write(b"\0" + mark)
    for count, data in blocks:
        made.write(long_bytes(count) + long_bytes(len(data)) + data + mark)
    path.write_bytes(made.getvalue())


def read_all(form, path):
    return [
        value
        for piece in form.pieces(str(path), 64 * MIB)
        for batch in form.read(piece)
        for value in (batch.values if isinstance(batch, RowBatch) else batch.data.to_pylist())
    ]


FINE = (1, long_bytes(7))
BLOCKS = {
    "a count": ({}, (1 << 62, long_bytes(8))),
    "a bomb": ({"codec": "deflate"}, (1, zlib.compress(bytes(300 * MIB), 9)[2:-4])),
    "an unknown codec": ({"codec": "rar"}, FINE),
    "records without bytes": ({"schema": json.dumps(avro_record())}, (1 << 62, b"")),
    "a field of nulls": ({"schema": json.dumps(avro_record("int", BOMBS["nulls"]))}, FINE),
    "a schema that is none": ({"schema": "{" * 1000}, FINE),
    "a schema that is deep": ({"schema": "[" * MIB}, FINE),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_hostile_avro_file_is_put_aside(tmp_path, name):
    settings, block = BLOCKS[name]
    path = tmp_path / "a.avro"
    avro_file(path, block, **settings)
    form = AvroFormat(AvroSchema.parse_string(json.dumps(avro_record("int") | {"fields": [
        {"name": "f0", "type": "int", "default": 0}
    ]})))  # fmt: skip
    *before, last = read_all(form, path)
    assert isinstance(last, Malformed)
    assert len(before) <= 1


def test_blocks_before_and_after_a_hostile_one_are_read(tmp_path):
    path = tmp_path / "a.avro"
    bomb = (1, zlib.compress(bytes(300 * MIB), 9)[2:-4])
    fine = (1, zlib.compress(long_bytes(7), 9)[2:-4])
    avro_file(path, fine, bomb, fine, codec="deflate")
    first, malformed, last = read_all(AvroFormat(AvroSchema.parse_string(USER)), path)
    assert first == last == {"f0": 7}
    assert "a block of more than" in str(malformed.error)


@pytest.mark.parametrize("others", [[], [["null", "R"]]])
def test_records_before_a_malformed_one_are_read_and_the_rest_of_its_block_is_told(
    tmp_path, others
):
    path = tmp_path / "a.avro"
    schema = json.dumps(avro_record("int", *others))
    one = long_bytes(7) + bytes(len(others))
    avro_file(path, (4, one * 2 + b"\xff" * 11), (1, one), schema=schema)
    *before, malformed, last = read_all(AvroFormat(AvroSchema.parse_string(schema)), path)
    assert [found["f0"] for found in (*before, last)] == [7, 7, 7]
    assert "the last 2 records of the block before byte" in str(malformed.failure)


@pytest.mark.parametrize("count", [-1, -(1 << 62)])
def test_a_block_of_a_negative_number_of_records_has_none(tmp_path, count):
    path = tmp_path / "a.avro"
    avro_file(path, (count, long_bytes(7)), FINE)
    assert read_all(AvroFormat(AvroSchema.parse_string(USER)), path) == [{"f0": 7}]


def test_a_number_of_an_avro_file_that_does_not_end_is_refused(tmp_path):
    path = tmp_path / "a.avro"
    path.write_bytes(b"Obj\x01" + b"\xff" * MIB)
    with pytest.raises(UserCodeError, match="a number of more than 10 bytes"):
        read_all(AvroFormat(AvroSchema.parse_string(USER)), path)


# ---------------------------------------------------------------------- files of lines

CSV = CsvReaderFormat.for_schema(CsvSchema.builder().add_string_column("a").build())
LINES = {
    "text": (StreamFormat.text_line_format(), b"a", b"x" * MIB),
    "UTF-16": (StreamFormat.text_line_format("utf-16-le"), b"a\0", "x".encode("utf-16-le") * MIB),
    "JSON": (StreamFormat.json_lines_format(), b"1", b"[" * MIB),
    "JSON of rows": (
        StreamFormat.json_lines_format(row_of(Types.LONG())), b'{"f":1}', b'{"f":' + DIGITS,
    ),
    "CSV": (CSV, b"a", b"x" * MIB),
    "CSV, in quotes": (CSV, b"a", b'"' + b"x" * MIB),
    "CSV, lines in quotes": (CSV, b"a", b'"' + b"\n" * MIB + b"x"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_does_not_end_is_put_aside_and_the_others_are_read(tmp_path, name):
    form, fine, long = LINES[name]
    end = "\n".encode("utf-16-le") if name == "UTF-16" else b"\n"
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(end.join([fine, long, fine, b""])))
    limited = form.limited_to(MIB // 2)
    found = read_all(limited, path)
    marks = [one for one in found if isinstance(one, Malformed)]
    others = [one for one in found if not isinstance(one, Malformed)]
    assert others[0] == others[-1]
    assert len(marks) == 1
    assert "has more than 524288 bytes" in str(marks[0].failure)
    assert marks[0] is found[1]


@pytest.mark.parametrize("name", ["text", "JSON", "CSV"])
def test_a_file_that_unpacks_to_one_endless_line_is_not_kept(tmp_path, name):
    form = LINES[name][0]
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", 9) as file:
        for _ in range(2 * MOST_OF_RECORD // MIB):
            file.write(bytes(MIB))
    found, peak = peak_of(lambda: read_all(form, path))
    assert list(map(type, found)) == [Malformed]
    assert peak < 3 * MOST_OF_RECORD


def test_deep_json_lines_are_put_aside(tmp_path):
    path = tmp_path / "deep.json"
    path.write_bytes(b"\n".join([b"1", nested(500), b"[" * MIB, b"2"]))
    first, deep, deeper, last = read_all(StreamFormat.json_lines_format(), path)
    assert (first, last) == (1, 2)
    assert "more than 200 levels" in str(deep.error)
    assert isinstance(deeper, Malformed)


@pytest.mark.parametrize(("start", "end"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[1,{"a":', b"},2]")])
def test_json_lines_have_as_many_levels_as_other_values_of_json(tmp_path, start, end):
    path = tmp_path / "deep.json"
    times = 200 // (start.count(b"[") + start.count(b"{"))
    most = start * times + b"0" + end * times
    path.write_bytes(b"\n".join([most, b"[" + most + b"]", b"[" + most + b",{}" * 200 + b"]"]))
    read, *deep = read_all(StreamFormat.json_lines_format(), path)
    assert read == json.loads(most)
    assert ["more than 200 levels" in str(one.error) for one in deep] == [True, True]


def test_a_json_line_of_many_small_objects_is_not_copied(tmp_path, monkeypatch):
    made = [{"a": 1}] * 300
    path = tmp_path / "a.json"
    path.write_text(json.dumps(made))
    monkeypatch.setattr(json, "loads", lambda text, **_: made)
    [found] = read_all(StreamFormat.json_lines_format(), path)
    assert found is made
