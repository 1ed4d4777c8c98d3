"""Parquet files, read and written as column batches. Does not know any file system.

Source: pyflink.datastream.formats.parquet; differs: pyarrow reads and writes them, row types are Types.ROW_NAMED or a
pyarrow schema, and a file may be read without a declared type.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.runtime.codecs.convert import arrow_schema, cast_to, is_columnar
from penstock.engine.runtime.codecs.time_columns import epoch_ms, nanos_as_micros
from penstock.engine.runtime.elements import Batch, ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.formats.avro import AvroSchema, GenericRecordAvroTypeInfo
from penstock.formats.avro_values import Convert, arrow_type_of, from_arrow, to_avro
from penstock.formats.column_files import column_of_file, columns_of_file, schema_of
from penstock.formats.file_access import arrow_input, shown
from penstock.formats.file_format import (
    BulkFormat,
    FileFormat,
    FilePiece,
    RowsFileWriter,
    check_row_type,
)
from penstock.formats.text_lines import ROWS_PER_BATCH

DEFAULT_BATCH_ROWS: Final = 65_536
DEFAULT_ROW_GROUP_ROWS: Final = 131_072


class ParquetFormat(BulkFormat):
    """Reads Parquet files by row groups. Not in PyFlink.

    Args:
        columns: the columns to read; None: those of `type_info`, or all. One that a file lacks is None in its records.
        timestamps: the column with each record's event time: an integer in epoch ms, a timestamp or a date in its own unit. Digits
            below a millisecond are cut. A record with a null in it has no time.
        type_info: the declared type; None: the file's own columns.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        batch_size: int = DEFAULT_BATCH_ROWS,
        timestamps: str | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        check_whole("ParquetFormat: batch_size", batch_size, 1)
        if columns is None and isinstance(type_info, RowTypeInfo):
            columns = type_info.get_field_names()
        self._columns = None if columns is None else list(columns)
        self._batch_size = batch_size
        self._timestamps = timestamps
        self._type = type_info

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        """Yield runs of row groups of about `split_bytes`; `start` and `stop` count row groups."""
        metadata = _metadata(path)
        start, size = 0, 0
        for group in range(metadata.num_row_groups):
            group_bytes = _compressed_bytes(metadata.row_group(group))
            if group > start and size + group_bytes > split_bytes:
                yield FilePiece(path, start, group, size)
                start, size = group, 0
            size += group_bytes
        if metadata.num_row_groups > start:
            yield FilePiece(path, start, metadata.num_row_groups, size)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        with _opened(piece.path) as file:
            stop = file.num_row_groups if piece.stop is None else piece.stop
            groups = list(range(piece.start, stop))
            names = file.schema_arrow.names
            read = None if self._columns is None else self._found(names)
            for data in file.iter_batches(self._batch_size, row_groups=groups, columns=read):
                yield ColumnBatch(self._declared(data, piece.path), self._stamps(data, piece.path))

    def _found(self, names: Sequence[str]) -> list[str]:
        """The columns of a file that are read: at least one, which says how many records there are."""
        wanted = {*(self._columns or ()), self._timestamps}
        return [name for name in names if name in wanted] or list(names[:1])

    def _declared(self, data: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """The wanted columns in their order and with their declared types. Those that the file lacks are null, as in Flink."""
        if self._columns is None:
            return data
        kinds = dict.fromkeys(self._columns, None)
        if self._type is not None and is_columnar(self._type):
            kinds.update(zip(self._columns, arrow_schema(self._type).types, strict=False))
        arrays = [_column(data, name, kind, path) for name, kind in kinds.items()]
        return pa.RecordBatch.from_arrays(arrays, names=list(kinds))

    def _stamps(self, data: pa.RecordBatch, path: str) -> Int64s | None:
        name = self._timestamps
        if name is None:
            return None
        if name not in data.schema.names:
            raise UserCodeError(
                f"{shown(path)}: it lacks the column {name!r}, which timestamps= names. It has "
                f"{data.schema.names}."
            )
        try:
            return epoch_ms(data.column(name))
        except (TypeError, OverflowError, pa.ArrowInvalid) as error:
            raise UserCodeError(
                f"{shown(path)}: the column {name!r} has no event times: {error}."
            ) from error


class ParquetColumnarRowInputFormat(ParquetFormat):
    """Reads the named fields of `row_type` from Parquet files, under PyFlink's name."""

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: Any = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        if not isinstance(row_type, RowTypeInfo):
            raise TypeError(
                f"row_type must be Types.ROW_NAMED(...), got {type(row_type).__name__}."
            )
        super().__init__(row_type.get_field_names(), batch_size, None, row_type)


class ParquetWriterFactory(BulkWriterFactory):
    """Creates writers of Parquet files. Without `schema` the first batch determines it."""

    is_converting = True

    def __init__(
        self,
        schema: pa.Schema | None = None,
        compression: str = "snappy",
        row_group_rows: int = DEFAULT_ROW_GROUP_ROWS,
    ) -> None:
        self._schema = schema
        self._compression = compression
        self._row_group_rows = row_group_rows

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        return _ParquetWriter(
            file, self._schema, value_type, self._compression, self._row_group_rows
        )

    def check_input(self, value_type: Any) -> None:
        # What has no columns is refused with its own words.
        if self._schema is not None and is_columnar(value_type):
            check_row_type(value_type, self._schema.names)

    def converted(self, batch: Batch, value_type: Any) -> ColumnBatch:
        return columns_of_file(batch, value_type, self._schema)


class ParquetBulkWriters:
    """Creates writers of Parquet files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | pa.Schema,
        hadoop_config: Any = None,  # ruff: ignore[unused-static-method-argument]
        utc_timestamp: bool = False,  # ruff: ignore[unused-static-method-argument]
    ) -> BulkWriterFactory:
        """Return a factory of Parquet files.

        `row_type`: Types.ROW_NAMED(...) or a pyarrow schema.
        """
        schema = schema_of(row_type, "ParquetBulkWriters.for_row_type")
        return ParquetWriterFactory(schema)


class _ParquetWriter:
    """Gathers batches into row groups."""

    def __init__(
        self,
        file: BinaryIO,
        schema: pa.Schema | None,
        value_type: Any,
        compression: str,
        row_group_rows: int,
    ) -> None:
        self._file = file
        self._schema = schema
        self._type = value_type
        self._compression = compression
        self._row_group_rows = row_group_rows
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, batch: Batch) -> None:
        data = columns_of_file(batch, self._type, self._schema).data
        self._waiting.append(data)
        self._waiting_rows += data.num_rows
        if self._waiting_rows >= self._row_group_rows:
            self._write_group()

    def finish(self) -> None:
        self._write_group()
        if self._writer is not None:
            self._writer.close()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema, compression=self._compression)
        self._writer.write_table(table)
        self._waiting.clear()
        self._waiting_rows = 0


class AvroParquetReaders:
    """Creates readers of Parquet files as Avro records. Needs fastavro.

    For `FileSource.for_record_stream_format`.
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> FileFormat:
        """Return a format of dicts with the fields of `schema`; missing ones by their defaults."""
        return _AvroParquetFormat(_of_record(schema, "AvroParquetReaders"))


class AvroParquetWriters:
    """Creates writers of Avro records in Parquet files. Needs fastavro.

    For `FileSink.for_bulk_format`.
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Return a factory of Parquet files. Records are dicts, Rows or tuples."""
        return _AvroParquetFactory(_of_record(schema, "AvroParquetWriters"))


class _AvroParquetFormat(FileFormat):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._files = ParquetFormat()

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self._schema)

    def pieces(self, path: str, split_bytes: int) -> Iterator[FilePiece]:
        return self._files.pieces(path, split_bytes)

    def read(self, piece: FilePiece) -> Iterator[Batch]:
        schema = self._schema.parsed()
        has = set(_metadata(piece.path).schema.to_arrow_schema().names)
        fields = schema["fields"]
        lacks = [field for field in fields if field["name"] not in has]
        if without := [field["name"] for field in lacks if "default" not in field]:
            raise UserCodeError(
                f"{shown(piece.path)}: it lacks the columns {without}, and the Avro schema has no "
                f"defaults for them. It has {sorted(has)}."
            )
        added = {field["name"]: field["default"] for field in lacks}
        columns = [field["name"] for field in fields if field["name"] in has]
        convert = from_arrow(schema)
        for batch in ParquetFormat(columns, ROWS_PER_BATCH).read(piece):
            assert isinstance(batch, ColumnBatch)
            arrays = map(nanos_as_micros, batch.data.columns)
            rows = pa.RecordBatch.from_arrays(list(arrays), batch.data.schema.names).to_pylist()
            yield RowBatch([convert({**row, **added}) for row in rows])


class _AvroParquetFactory(BulkWriterFactory):
    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        # Java's readers look for the schema under this key.
        mark = {"parquet.avro.schema": str(schema)}
        self._columns = pa.schema(list(arrow_type_of(schema.parsed())), mark)

    @cached_property
    def _convert(self) -> Convert:
        return to_avro(self._schema.parsed())

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "_columns": self._columns}

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        writer = _ParquetWriter(file, self._columns, None, "snappy", DEFAULT_ROW_GROUP_ROWS)
        return RowsFileWriter(self.converted, writer.write, writer.finish)

    def check_input(self, value_type: Any) -> None:
        check_row_type(value_type, self._columns.names, by_place=True)

    def converted(self, batch: Batch, value_type: Any = None) -> ColumnBatch:
        assert isinstance(batch, RowBatch), "generic records are rows"
        rows = [self._convert(value) for value in batch.values]
        arrays = [column_of_file([row.get(one.name) for row in rows], one) for one in self._columns]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=self._columns), None)


def _of_record(schema: AvroSchema, where: str) -> AvroSchema:
    parsed = schema.parsed()
    if not isinstance(parsed, dict) or parsed["type"] != "record":
        raise ConfigurationError(
            f"{where}: expected the schema of a record, whose fields are the columns, got {schema}."
        )
    return schema


@contextlib.contextmanager
def _opened(path: str) -> Generator[Any]:
    """A file. What pyarrow says of its content names it. INT96, the times of Impala and old Spark, are microseconds: those of 9999 fit."""
    try:
        with (
            arrow_input(path) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        ):
            yield file
    except pa.ArrowInvalid as error:
        raise UserCodeError(f"{shown(path)}: it cannot be read as Parquet: {error}") from error


def _column(data: pa.RecordBatch, name: str, kind: pa.DataType | None, path: str) -> pa.Array:
    """The column of a file. `kind`: the declared type; None: the file's own."""
    if name not in data.schema.names:
        return pa.nulls(data.num_rows, kind or pa.null())
    array = data.column(name)
    try:
        return array if kind is None else cast_to(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if pa.types.is_timestamp(array.type) and kind == pa.timestamp("ns", "UTC"):
            return array  # An INSTANT further away than nanoseconds reach.
        raise UserCodeError(
            f"{shown(path)}: the column {name!r} of type {array.type} does not fit the declared "
            f"{kind}: {error}"
        ) from error


def _metadata(path: str) -> Any:
    with _opened(path) as file:
        return file.metadata


def _compressed_bytes(group: Any) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))
