"""Parquet files of a table, which nobody sees before a commit names them. Does not know any table format.

A file has its final name as soon as it is whole. Files that no commit names stay behind after failures: tables have a command that
removes them (Delta's VACUUM, Iceberg's remove_orphan_files).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.runtime.codecs.convert import ROW_KIND_COLUMN, to_columns
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.sink import SendFigures, WriterContext

ROW_GROUP_ROWS: Final = 131_072
FILE_BYTES: Final = 128 * 1024 * 1024
"""A file that is larger is closed, and another one is begun. A table may say otherwise."""
MOST_OPEN: Final = 100
"""Files at once: each of them has buffers. One more, and the largest is closed."""

PartitionValues: TypeAlias = "tuple[Any, ...]"


class TableFiles(Protocol):
    """What a table format says about its files.

    `table`: its name in errors. `schema`: of records, with all columns of the table. `columns`: names of those that are in files, in the
    order of `in_files`, whose names may differ. `most_bytes`: None: `FILE_BYTES`. `options`: of pyarrow's ParquetWriter.
    """

    table: str
    schema: pa.Schema
    columns: Sequence[str]
    in_files: pa.Schema
    most_bytes: int | None
    options: Mapping[str, Any]

    def keys(self, data: pa.RecordBatch) -> Sequence[pa.Array]:
        """One array for each partition field, whose values choose the file of a row. Empty: the table has no partitions."""

    def create(self, name: str, values: PartitionValues) -> tuple[str, Any]:
        """Open a new file for rows with these partition values; returns its path too."""

    def finish(self, path: str, file: Any) -> None:
        """Make the file durable under its name."""

    def discard(self, path: str, file: Any) -> None:
        """Remove a file that is not finished."""

    def remove(self, path: str) -> None:
        """Remove a finished file, if it is there."""

    def described(self, path: str, size: int, values: PartitionValues, footer: Any) -> object:
        """What a commit needs to know of a finished file, as plain data. `footer`: pyarrow's FileMetaData."""


@dataclass(slots=True)
class _OpenFile:
    path: str
    file: Any
    writer: pq.ParquetWriter
    footer: list[Any]


class DataFileWriter:
    """Writes the records of one subtask into files, one open for each partition."""

    def __init__(self, files: TableFiles, context: WriterContext, row_type: Any) -> None:
        """`row_type`: of records that come as rows, where the stream declares none."""
        self.sent = SendFigures()
        self._files = files
        self._type = context.input_type if context.input_type is not None else row_type
        self._name = f"part-{context.attempt_prefix}-{context.subtask}-{uuid.uuid4().hex[:8]}"
        self._begun = 0
        self._open: dict[PartitionValues, _OpenFile] = {}
        self._whole: list[tuple[str, object]] = []

    @uninterruptible()
    def write(self, data: pa.RecordBatch) -> None:
        """Write what `as_table` returned."""
        most_bytes = self._files.most_bytes or FILE_BYTES
        for values, part in self._partitions(data):
            file = self._open.get(values)
            if file is None:
                file = self._begin(values)
            file.writer.write_batch(part, ROW_GROUP_ROWS)
            if file.file.tell() >= most_bytes:
                self._finish(values)

    @uninterruptible()
    def take_whole(self) -> list[object]:
        """Close all files, and return the descriptions of those that were not taken yet."""
        for values in list(self._open):
            self._finish(values)
        whole, self._whole = self._whole, []
        return [described for _, described in whole]

    @uninterruptible()
    def close(self) -> None:
        """Remove what was not taken: a new attempt writes it again."""
        for file in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                file.writer.close()
            self._files.discard(file.path, file.file)
        for path, _ in self._whole:
            self._files.remove(path)
        self._open.clear()
        self._whole.clear()

    def as_table(self, batch: Batch) -> pa.RecordBatch:
        """The records with the table's columns. Raises: ValueError: one is no insert, or does not fit a column."""
        columns = to_columns(batch, self._type) if isinstance(batch, RowBatch) else batch
        data, table = columns.data, self._files.table
        if ROW_KIND_COLUMN in data.schema.names:
            kinds = data.column(ROW_KIND_COLUMN)
            if pc.any(pc.not_equal(kinds, 0)).as_py():
                raise ValueError(
                    f"the table {table!r} only takes new rows, but the stream has "
                    "updates or deletes (Row kinds -U, +U, -D). Filter them, or write a table with "
                    "keys through SqlSink."
                )
        schema = self._files.schema
        arrays = []
        for one in schema:
            try:
                arrays.append(
                    data.column(one.name).cast(one.type)
                    if one.name in data.schema.names
                    else pa.nulls(data.num_rows, one.type)
                )
            except pa.ArrowException as error:
                raise ValueError(
                    f"a record does not fit the column {one.name!r} of the table {table!r}: "
                    f"{error}. Its columns are {_shown(schema)}."
                ) from error
        for one, array in zip(schema, arrays, strict=True):
            if not one.nullable and array.null_count:
                raise ValueError(
                    f"the column {one.name!r} of the table {table!r} takes no nulls, but a record "
                    "has none of it or None in it. Filter such records, or change the table."
                )
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _partitions(self, data: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        """The rows of each partition, in their order, with the columns of the files."""
        if not data.num_rows:
            return
        rest = pa.RecordBatch.from_arrays(
            [data.column(name) for name in self._files.columns], schema=self._files.in_files
        )
        keys = self._files.keys(data)
        if not keys:
            yield (), rest
            return
        combined = np.zeros(data.num_rows, np.int64)
        for key in keys:
            encoded = key.dictionary_encode("encode")
            numbers = encoded.indices.to_numpy(zero_copy_only=False)
            _, combined = np.unique(
                combined * max(1, len(encoded.dictionary)) + numbers, return_inverse=True
            )
        found, first = np.unique(combined, return_index=True)
        order = np.argsort(combined, kind="stable")
        ends = np.searchsorted(combined[order], found, side="right")
        for row, rows in zip(first, np.split(order, ends[:-1]), strict=True):
            values = tuple(key[int(row)].as_py() for key in keys)
            yield values, rest if len(first) == 1 else rest.take(pa.array(rows))

    def _begin(self, values: PartitionValues) -> _OpenFile:
        if len(self._open) >= MOST_OPEN:
            self._finish(max(self._open, key=lambda one: self._open[one].file.tell()))
        path, file = self._files.create(f"{self._name}-{self._begun}.parquet", values)
        self._begun += 1
        footer = list[Any]()
        writer = pq.ParquetWriter(
            file, self._files.in_files, metadata_collector=footer, **self._files.options
        )
        made = self._open[values] = _OpenFile(path, file, writer, footer)
        return made

    def _finish(self, values: PartitionValues) -> None:
        file = self._open[values]
        file.writer.close()
        size = file.file.tell()
        self._files.finish(file.path, file.file)
        self.sent.bytes += size
        (footer,) = file.footer
        self._whole.append((file.path, self._files.described(file.path, size, values, footer)))
        del self._open[values]


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name}: {one.type}" for one in schema)
