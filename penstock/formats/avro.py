"""Avro: rows as messages, and files of generic records, which are dicts here. Needs fastavro (`penstock[avro]`).

Source: pyflink.datastream.formats.avro; differs: records are declared by schemas only, not by Java classes, and
encoders take Rows, tuples and dicts alike.

The blocks of an Avro object container file, found so that the file can be read in parts. Does not know the schema.

A file is a header (magic, metadata, a sync marker of 16 bytes) and blocks (count, size, bytes, the marker again).
Source: Avro 1.12, "Object Container Files".
"""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from penstock.common.extras import extra
from penstock.common.serialization import (
    BulkWriter,
    BulkWriterFactory,
    DeserializationSchema,
    SerializationSchema,
)
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.datastream.utils import ResultTypeQueryable
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import PickledBytesTypeInfo
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.formats.avro_records import RecordReader, long_bytes, unpacked
from penstock.formats.avro_values import (
    AvroNames,
    Convert,
    Schema,
    from_avro,
    to_avro,
    type_info_of,
)
from penstock.formats.file_access import open_input, shown, size_of
from penstock.formats.file_format import (
    FileFormat,
    FileInputFormat,
    FilePiece,
    RowsFileWriter,
    check_row_type,
)
from penstock.formats.text_lines import ROWS_PER_BATCH

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
BLOCK_BYTES: Final = 64_000
"""A block is written when it has at least this number of bytes. Source: Avro's Java
DataFileWriter.
"""
_SHIFTS: Final = range(0, 70, 7)
Encoded: TypeAlias = "tuple[int, bytes]"
"""Number of records, and their bytes."""


class BlockWriter:
    """Writes encoded records as uncompressed blocks after a header that is written already."""

    def __init__(self, file: BinaryIO, mark: bytes) -> None:
        self._file = file
        self._mark = mark
        self._waiting: list[bytes] = []
        self._count = self._size = 0

    def add(self, count: int, data: bytes) -> None:
        self._waiting.append(data)
        self._count += count
        self._size += len(data)
        if self._size >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._count:
            head = long_bytes(self._count) + long_bytes(self._size)
            self._file.write(b"".join([head, *self._waiting, self._mark]))
        self._waiting.clear()
        self._count = self._size = 0


def header_bytes(file: BinaryIO, path: str) -> bytes:
    """Reads the header at the start of a file. Raises: UserCodeError: the file has none."""
    if file.read(len(MAGIC)) != MAGIC:
        raise UserCodeError(
            f"{shown(path)}: not an Avro object container file, because it does not begin with "
            f"{MAGIC!r}. "
            "Remove it from the source's directory, or read it with its own format."
        )
    while count := _long(file, path):
        if count < 0:
            _long(file, path)  # their size in bytes
        for _ in range(2 * abs(count)):
            _skip(file, _long(file, path), path)
    _skip(file, SYNC_BYTES, path)
    stop = file.tell()
    file.seek(0)
    return file.read(stop)


def pieces_of(path: str, split_bytes: int) -> Iterator[FilePiece]:
    """Yields runs of blocks of about `split_bytes`; none for a file without records."""
    size = size_of(path)
    with open_input(path) as file:
        start = len(header_bytes(file, path))
        while (stop := file.tell()) < size:
            _long(file, path)
            _skip(file, _long(file, path) + SYNC_BYTES, path)
            if file.tell() > size:
                raise _cut_off(path)
            if stop > start and file.tell() - start > split_bytes:
                yield FilePiece(path, start, stop, stop - start)
                start = stop
        if stop > start:
            yield FilePiece(path, start, stop, stop - start)


def _long(file: BinaryIO, path: str) -> int:
    """Reads a number in zigzag coding, with seven bits per byte."""
    number = 0
    for shift in _SHIFTS:
        byte = file.read(1)
        if not byte:
            raise _cut_off(path)
        number |= (byte[0] & 0x7F) << shift
        if not byte[0] & 0x80:
            return (number >> 1) ^ -(number & 1)
    raise UserCodeError(
        f"{shown(path)}: the file is damaged: a number of more than {len(_SHIFTS)} bytes before "
        f"byte {file.tell()}."
    )


def _skip(file: BinaryIO, size: int, path: str) -> None:
    if size < 0:
        raise UserCodeError(
            f"{shown(path)}: the file is damaged: a length of {size} bytes at byte {file.tell()}."
        )
    file.seek(size, os.SEEK_CUR)


def _cut_off(path: str) -> UserCodeError:
    return UserCodeError(
        f"{shown(path)}: ends in the middle of a block, at byte {size_of(path)}. Check whether it "
        "is still being written, or was copied only in part."
    )


_KINDS: Final[Mapping[str, Any]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "bytes": str,
    "fixed": str,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}
"""What a default is in JSON, by the kind of its schema."""


def with_values(schema: Schema) -> Schema:
    """A copy of fastavro's schema, whose defaults are values of fastavro's instead of JSON.

    It is for reading and writing records; it has no form as JSON any more.
    """
    made = copy.deepcopy(schema)
    names = AvroNames()
    names.learn(made)
    parts = [made]
    if isinstance(made, dict):  # what stands by its name only is looked up there
        parts += made.get("__named_schemas", {}).values()
    replaced: set[int] = set()
    for part in parts:
        _replace(part, names, replaced)
    return made


def _replace(schema: Schema, names: AvroNames, replaced: set[int]) -> None:
    """In all records of the schema, once each: what is within first, as a default may have defaults within."""
    if isinstance(schema, list):
        for branch in schema:
            _replace(branch, names, replaced)
    if not isinstance(schema, dict) or id(schema) in replaced:
        return
    replaced.add(id(schema))
    for part in (schema.get("items"), schema.get("values"), schema.get("type")):
        _replace(part, names, replaced)
    for field in schema.get("fields", ()):
        _replace(field["type"], names, replaced)
        if "default" in field:
            field["default"] = _value(field["type"], field["default"], names)


def _value(schema: Schema, given: Any, names: AvroNames) -> Any:
    """The value of a default in JSON. One that is a value already stays, so that it may be asked for twice."""
    kind, schema = names.resolved(schema)
    if kind == "union":
        fitting = (one for one in schema if _fits(one, given, names))
        return _value(next(fitting, schema[0]), given, names)
    if not isinstance(given, _KINDS.get(kind, object)):
        return given
    if kind == "array":
        return [_value(schema["items"], one, names) for one in given]
    if kind == "map":
        return {key: _value(schema["values"], one, names) for key, one in given.items()}
    if kind == "record":
        return {
            field["name"]: _value(
                field["type"], given.get(field["name"], field.get("default")), names
            )
            for field in schema["fields"]
        }
    value = given
    if kind in {"bytes", "fixed"}:
        value = given.encode("latin-1")
    elif kind in {"float", "double"}:
        value = float(given)
    readers = extra("fastavro.read", "avro", "Avro").LOGICAL_READERS
    logical = readers.get(f"{kind}-{schema.get('logicalType')}")
    return value if logical is None else logical(value, schema, None)


def _fits(schema: Schema, given: Any, names: AvroNames) -> bool:
    kind, _ = names.resolved(schema)
    is_flag = isinstance(given, bool) and kind != "boolean"  # of Python a bool is an int, too
    return isinstance(given, _KINDS.get(kind, object)) and not is_flag


__all__ = [
    "AvroBulkWriters",
    "AvroFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]


class AvroSchema:
    """A schema of Avro. Make it with `parse_string` or `parse_file`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parsed: Any = None
        self._with_values: Any = None

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Return the schema that a text in JSON describes.

        Raises:
            ConfigurationError: it is not a schema, or fastavro is not installed.
        """
        schema = AvroSchema(json_schema)
        schema.parsed()
        return schema

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Return the schema in a file.

        Raises:
            ConfigurationError: it is not a schema, or fastavro is not installed.
            OSError: the file cannot be read.
        """
        return AvroSchema.parse_string(Path(file_path).read_text(encoding="utf-8"))

    def parsed(self) -> Any:
        """Return the schema as fastavro takes it. Not in PyFlink."""
        if self._parsed is None:
            fastavro = extra("fastavro", "avro", "Avro")
            try:
                # fastavro writes its marks into the dict, so it gets a new one
                self._parsed = fastavro.parse_schema(json.loads(self.text))
            except (ValueError, KeyError, TypeError, fastavro.schema.UnknownType) as error:
                raise ConfigurationError(
                    f"not an Avro schema: {type(error).__name__}: {error}. Got: {self.text[:200]!r}. Expected JSON such as "
                    '{"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}.'
                ) from error
        return self._parsed

    def with_values(self) -> Any:
        """Return the schema for reading and writing records: its defaults are values, not JSON. Not in PyFlink."""
        if self._with_values is None:
            self._with_values = with_values(self.parsed())
        return self._with_values

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "_parsed": None, "_with_values": None}

    def __str__(self) -> str:
        return json.dumps(json.loads(self.text), separators=(",", ":"))


class AvroEncoder:
    """Writes records of a schema one after the other, without the schema. `refusal`: begins errors."""

    def __init__(self, schema: AvroSchema, refusal: str, advice: str = "") -> None:
        """`advice`: follows the error, before the record."""
        self._schema = schema
        self._refusal = refusal
        self._advice = advice
        self._convert: Convert | None = None

    def write(self, made: io.BytesIO, value: Any) -> None:
        """Raises: ValueError: the schema does not fit."""
        if self._convert is None:
            self._convert = to_avro(self._schema.parsed())
        try:
            write = extra("fastavro", "avro", "Avro").schemaless_writer
            write(made, self._schema.with_values(), self._convert(value))
        except Exception as error:  # fastavro raises many kinds of errors for bad values
            raise ValueError(
                f"{self._refusal}: {type(error).__name__}: {error}. {self._advice}Record: "
                f"{bounded_repr(value, 200)}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None}


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """The type of generic records: dicts, which travel as pickled bytes."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def parts(self) -> tuple[Any, ...]:
        return (str(self._schema),)

    def __str__(self) -> str:
        return f'GenericRecord("{self._schema}")'


class AvroRowDeserializationSchema(DeserializationSchema):
    """Turns one Avro record, without its schema, into a Row.

    Only `avro_schema_string` can be given: there are no Java classes of records here.
    """

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema, self._row_type = _row_schema(type(self), record_class, avro_schema_string)
        self._convert: Convert | None = None
        self._reader: RecordReader | None = RecordReader(self._schema.parsed())

    @property
    def produced_type(self) -> TypeInformation:
        """The ROW type of the schema."""
        return self._row_type

    def deserialize(self, data: bytes) -> Any:
        """Return the Row; None for an empty message.

        Raises ValueError if the schema does not fit.
        """
        if not data:
            return None
        if self._convert is None:
            self._convert = from_avro(self._schema.parsed())
        if self._reader is None:
            self._reader = RecordReader(self._schema.parsed())
        try:
            return self._convert(self._reader.one(data))
        except Exception as error:  # fastavro raises many kinds of errors for bad bytes
            raise ValueError(
                f"a message cannot be read as Avro of {self._row_type}: {type(error).__name__}: "
                f"{error}. Message: {data[:200]!r}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None, "_reader": None}


class AvroRowSerializationSchema(SerializationSchema):
    """Turns a Row into one Avro record, without its schema.

    Only `avro_schema_string` can be given: there are no Java classes of records here.
    """

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        schema, row_type = _row_schema(type(self), record_class, avro_schema_string)
        self._encoder = AvroEncoder(schema, f"a record does not have the type {row_type}")

    def serialize(self, value: Any) -> bytes:
        """Return the record as bytes. Raises ValueError if the schema does not fit."""
        made = io.BytesIO()
        self._encoder.write(made, value)
        return made.getvalue()


class AvroFormat(FileFormat):
    """Reads Avro files as generic records, for FileSource. Not in PyFlink.

    Files are split between their blocks. A file that was written with another schema is converted
    to `schema`: fields by name, missing ones by their defaults.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self._schema)

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        return pieces_of(path, split_bytes)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        with open_input(piece.path) as file:
            records = self._records(file, piece)
            while values := list(islice(records, ROWS_PER_BATCH)):
                has_marks = any(type(value) is Malformed for value in values)
                yield MarkedRows(values) if has_marks else RowBatch(values)

    def _records(self, file: BinaryIO, piece: FilePiece) -> Iterator[Any]:
        """The records, and one `Malformed` for what cannot be read of a block. Reading continues
        with the next block.
        """
        header = header_bytes(file, piece.path)
        try:
            codec, reader = self._reader(header)
        except Exception as error:  # fastavro raises many kinds of errors for bad bytes
            yield self._malformed(f"{shown(piece.path)}: all records", error)
            return
        start = max(piece.start, len(header))
        size = size_of(piece.path)
        stop = size if piece.stop is None else piece.stop
        while start < stop:
            file.seek(start)
            read = count = 0
            end = stop
            try:
                count, data = _block(file, header[-SYNC_BYTES:], piece.path, size)
                end = file.tell()
                for record in reader.block(count, unpacked(data, codec)):
                    yield record
                    read += 1
            except Exception as error:
                yield self._malformed(_place(piece, start, end, stop, count - read), error)
            start = end

    def _reader(self, header: bytes) -> tuple[str, RecordReader]:
        """How the blocks are packed, and what reads their records."""
        written = extra("fastavro", "avro", "Avro").block_reader(io.BytesIO(header))
        reader = RecordReader(written.writer_schema, self._schema.with_values())
        if reader.has_no_bytes:
            raise ValueError(
                "its records have no bytes, so a small file could have any number of them"
            )
        return written.codec, reader

    def _malformed(self, place: str, error: Exception) -> Malformed:
        failure = UserCodeError(
            f"{place}: cannot be read as Avro of {self._schema}: {type(error).__name__}: "
            f"{error}. Check that the file is complete, and that it has all fields for which "
            "the schema gives no default."
        )
        return Malformed(place, error, failure)


def _block(file: BinaryIO, mark: bytes, path: str, file_size: int) -> tuple[int, bytes]:
    """Reads a block: how many records it has, and its packed bytes. Raises: UserCodeError: there is none."""
    count, size = _long(file, path), _long(file, path)
    if not 0 <= size <= file_size - file.tell():
        raise _cut_off(path)
    data = file.read(size)
    if file.read(SYNC_BYTES) != mark:
        raise UserCodeError(
            f"{shown(path)}: the file is damaged: the block before byte {file.tell()} does not end "
            "with the file's mark."
        )
    return count, data


def _place(piece: FilePiece, start: int, end: int, stop: int, records: int) -> str:
    """What cannot be read of the piece. `end`: of the block, or of the piece if that is unknown."""
    path = shown(piece.path)
    if end == stop and records <= 0:
        return f"{path}: a block after byte {start} and all that follows"
    return f"{path}: the last {records} records of the block before byte {end}"


class AvroInputFormat(FileInputFormat, ResultTypeQueryable):
    """Reads Avro files as generic records, for `env.create_input`."""

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self.path = path
        self._schema = schema

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        return GenericRecordAvroTypeInfo(self._schema)

    @property
    def file_format(self) -> AvroFormat:
        """The format that reads the files."""
        return AvroFormat(self._schema)


class AvroBulkWriters:
    """Creates writers of Avro files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Return a factory of uncompressed Avro files. Records are dicts, Rows or tuples."""
        return _AvroWriterFactory(schema)


class _AvroWriterFactory(BulkWriterFactory):
    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._encoder = AvroEncoder(schema, f"a record does not fit the Avro schema {schema}")

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        mark = os.urandom(SYNC_BYTES)
        # Writes the header. A record that fails would leave its first fields in fastavro's block.
        writer = extra("fastavro.write", "avro", "Avro").Writer
        writer(file, self._schema.parsed(), sync_marker=mark)
        blocks = BlockWriter(file, mark)
        return RowsFileWriter(self.converted, lambda encoded: blocks.add(*encoded), blocks.flush)

    def check_input(self, value_type: Any) -> None:
        schema = self._schema.parsed()
        if isinstance(schema, dict) and "fields" in schema:
            check_row_type(value_type, [one["name"] for one in schema["fields"]], by_place=True)

    def converted(self, batch: Batch, value_type: Any = None) -> Encoded:
        assert isinstance(batch, RowBatch), "Avro files are written from rows"
        made = io.BytesIO()
        for value in batch.values:
            self._encoder.write(made, value)
        return len(batch), made.getvalue()


def _row_schema(
    kind: type, record_class: str | None, text: str | None
) -> tuple[AvroSchema, RowTypeInfo]:
    if record_class is not None:
        raise ConfigurationError(
            f"{kind.__name__}: record_class {record_class!r} names a Java class. Give "
            "avro_schema_string, the text of the schema, instead."
        )
    if text is None:
        raise TypeError(
            f"{kind.__name__} needs avro_schema_string, the text of a schema, got None."
        )
    schema = AvroSchema.parse_string(text)
    row_type = type_info_of(schema.parsed())
    if not isinstance(row_type, RowTypeInfo):
        raise ConfigurationError(
            f"{kind.__name__}: expected the schema of a record, got {schema}, which is {row_type}."
        )
    return schema, row_type
