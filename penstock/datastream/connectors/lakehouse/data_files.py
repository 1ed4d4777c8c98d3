"""Parquet files of a table, which nobody sees before a commit names them. Does not know any table format.

A file has its final name as soon as it is whole. Files that no commit names stay behind after failures: tables have a command that
removes them (Delta's VACUUM, Iceberg's remove_orphan_files).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.datastream.formats.file_access import Address, is_remote, open_files
from penstock.datastream.formats.partition_folders import NO_VALUE
from penstock.model.errors import UserCodeError
from penstock.runtime.codecs.convert import ROW_KIND_COLUMN, to_columns
from penstock.runtime.elements import Batch, RowBatch
from penstock.runtime.interruption import uninterruptible
from penstock.runtime.sink import SendFigures, WriterContext

ROW_GROUP_ROWS: Final = 131_072
FILE_BYTES: Final = 128 * 1024 * 1024
"""A file that is larger is closed, and another one is begun."""
MOST_OPEN: Final = 100
"""Files at once: each of them has buffers. One more, and the largest is closed."""
_OPEN: Final = ".open"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A whole file. `path`: below the table's folder, not quoted. `partition`: the value of each partition column as the format writes
    it; None: no value. `columns`: of each column (nulls, smallest, largest); the last two are None where they are not known.
    """

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]
    columns: dict[str, tuple[int, Any, Any]] = field(default_factory=dict)

    @property
    def plain(self) -> tuple[object, ...]:
        """As plain data, for checkpoints."""
        return (self.path, self.size, self.rows, self.partition, self.columns)


class TableFolder:
    """Where the files of a table lie: a path, or the address of an object store."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._address = Address.of(path) if is_remote(path) else None

    def create(self, path: str) -> Any:
        """Open a new file below the folder for writing. Other programs see it when it is closed, or `finished`."""
        if self._address is None:
            whole = Path(self.path, f"{path}{_OPEN}")
            whole.parent.mkdir(parents=True, exist_ok=True)
            return whole.open("wb")
        files = open_files(self._address)
        target = f"{files.path_of(self._address)}/{path}"
        if files.system.type_name == "hdfs":
            files.system.create_dir(target.rpartition("/")[0], recursive=True)
        return files.system.open_output_stream(target, compression=None)

    def finish(self, path: str, file: Any) -> None:
        """Make the file durable under its name."""
        if self._address is not None:
            file.close()
            return
        file.flush()
        os.fsync(file.fileno())
        file.close()
        Path(self.path, f"{path}{_OPEN}").rename(Path(self.path, path))

    def discard(self, path: str, file: Any) -> None:
        """Remove a file that is not finished."""
        with contextlib.suppress(OSError, pa.ArrowException):
            file.close()
        if self._address is None:
            Path(self.path, f"{path}{_OPEN}").unlink(missing_ok=True)
        else:
            self.remove(path)

    def remove(self, path: str) -> None:
        """Remove a finished file, if it is there."""
        if self._address is None:
            Path(self.path, path).unlink(missing_ok=True)
            return
        files = open_files(self._address)
        with contextlib.suppress(FileNotFoundError):
            files.system.delete_file(f"{files.path_of(self._address)}/{path}")

    def drop_begun(self, prefix: str) -> None:
        """Remove the files that attempts of a job have begun and not finished. An object store shows none."""
        if self._address is None:
            for found in Path(self.path).rglob(f"part-{prefix}*{_OPEN}"):
                found.unlink(missing_ok=True)


@dataclass(slots=True)
class _OpenFile:
    path: str
    partition: dict[str, str | None]
    file: Any
    writer: pq.ParquetWriter
    metadata: list[Any]


class DataFileWriter:
    """Writes the records of one subtask into files, one open for each partition."""

    def __init__(
        self,
        folder: TableFolder,
        schema: pa.Schema,
        partition_by: Sequence[str],
        context: WriterContext,
        row_type: Any,
    ) -> None:
        """`schema`: of the whole table. `row_type`: of records that come as rows, where the stream declares none."""
        self.sent = SendFigures()
        self._folder = folder
        self._schema = schema
        self._partition_by = list(partition_by)
        self._in_files = pa.schema([one for one in schema if one.name not in partition_by])
        self._type = context.input_type if context.input_type is not None else row_type
        self._name = f"part-{context.attempt_prefix}-{context.subtask}-{uuid.uuid4().hex[:8]}"
        self._files = 0
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._whole: list[DataFile] = []

    @uninterruptible()
    def write(self, batch: Batch) -> None:
        data = self._as_table(batch)
        for values, part in self._partitions(data):
            file = self._open.get(values)
            if file is None:
                file = self._begin(values)
            file.writer.write_batch(part, ROW_GROUP_ROWS)
            if file.file.tell() >= FILE_BYTES:
                self._finish(values)

    @uninterruptible()
    def take_whole(self) -> list[DataFile]:
        """Close all files, and return those that were not taken yet."""
        for values in list(self._open):
            self._finish(values)
        whole, self._whole = self._whole, []
        return whole

    @uninterruptible()
    def close(self) -> None:
        """Remove what was not taken: a new attempt writes it again."""
        for file in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                file.writer.close()
            self._folder.discard(file.path, file.file)
        for whole in self._whole:
            self._folder.remove(whole.path)
        self._open.clear()
        self._whole.clear()

    def _as_table(self, batch: Batch) -> pa.RecordBatch:
        """The records with the table's columns. Raises UserCodeError: one is no insert, or does not fit a column."""
        columns = to_columns(batch, self._type) if isinstance(batch, RowBatch) else batch
        data = columns.data
        if ROW_KIND_COLUMN in data.schema.names:
            kinds = data.column(ROW_KIND_COLUMN)
            if pc.any(pc.not_equal(kinds, 0)).as_py():
                raise UserCodeError(
                    f"the table {self._folder.path!r} only takes new rows, but the stream has "
                    "updates or deletes (Row kinds -U, +U, -D). Filter them, or write a table with "
                    "keys through SqlSink."
                )
        try:
            arrays = [
                data.column(one.name).cast(one.type)
                if one.name in data.schema.names
                else pa.nulls(data.num_rows, one.type)
                for one in self._schema
            ]
        except pa.ArrowInvalid as error:
            raise UserCodeError(
                f"a record does not fit the table {self._folder.path!r}: {error}. Its columns are "
                f"{_shown(self._schema)}."
            ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _partitions(
        self, data: pa.RecordBatch
    ) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        """The rows of each partition, in their order, without the partition's columns."""
        if not data.num_rows:
            return
        if not self._partition_by:
            yield (), data
            return
        keys = [data.column(name) for name in self._partition_by]
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
        rest = data.select(self._in_files.names)
        for row, rows in zip(first, np.split(order, ends[:-1]), strict=True):
            values = tuple(partition_text(key[int(row)].as_py()) for key in keys)
            yield values, rest if len(first) == 1 else rest.take(pa.array(rows))

    def _begin(self, values: tuple[str | None, ...]) -> _OpenFile:
        if len(self._open) >= MOST_OPEN:
            self._finish(max(self._open, key=lambda one: self._open[one].file.tell()))
        partition = dict(zip(self._partition_by, values, strict=True))
        folders = "".join(
            f"{quote(name, safe='')}={NO_VALUE if value is None else quote(value, safe='')}/"
            for name, value in partition.items()
        )
        path = f"{folders}{self._name}-{self._files}.parquet"
        self._files += 1
        file, metadata = self._folder.create(path), list[Any]()
        writer = pq.ParquetWriter(
            file, self._in_files, compression="snappy", metadata_collector=metadata
        )
        made = self._open[values] = _OpenFile(path, partition, file, writer, metadata)
        return made

    def _finish(self, values: tuple[str | None, ...]) -> None:
        file = self._open[values]
        file.writer.close()
        size = file.file.tell()
        self._folder.finish(file.path, file.file)
        self.sent.bytes += size
        (metadata,) = file.metadata
        found = DataFile(file.path, size, metadata.num_rows, file.partition, bounds_in(metadata))
        self._whole.append(found)
        del self._open[values]


def partition_text(value: Any) -> str | None:
    """A value of a partition column as Delta writes it. Source: Delta protocol, Partition Value Serialization."""
    if value is None or (isinstance(value, str) and not value):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):  # in UTC, and without the zone
        plain = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return plain.isoformat(" ")
    return str(value)


def bounds_in(metadata: Any) -> dict[str, tuple[int, Any, Any]]:
    """Nulls, smallest and largest value of each plain column, from the footer of a Parquet file. None: not known.

    Only of integers and texts: a footer leaves NaN out of the bounds of floats, and tables do not.
    """
    found: dict[str, tuple[int, Any, Any]] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for index in range(metadata.num_columns):
        chunks = [group.column(index) for group in groups]
        name = metadata.schema.column(index).path
        told = [one.statistics for one in chunks if one.is_stats_set]
        if "." in name or len(told) != len(chunks) or not all(one.has_null_count for one in told):
            continue
        nulls = sum(one.null_count for one in told)
        limits = [(one.min, one.max) for one in told if one.has_min_max]
        has_all = len(limits) == sum(one.num_values > 0 for one in told)
        if limits and has_all and type(limits[0][0]) in {int, str}:
            found[name] = (nulls, min(one[0] for one in limits), max(one[1] for one in limits))
        else:
            found[name] = (nulls, None, None)
    return found


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name}: {one.type}" for one in schema)
