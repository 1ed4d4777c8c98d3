"""The data files of a Delta table: their folders, partition values and bounds. Does not know the table's log."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from penstock.connectors.lakehouse.data_files import PartitionValues
from penstock.formats.file_access import Address, is_remote, open_files
from penstock.formats.partition_folders import NO_VALUE

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


class DeltaFiles:
    """The files of a Delta table: in the folder of their partition, without its columns. See `TableFiles`."""

    def __init__(self, path: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self.table = path
        self.schema = schema
        self.in_files = pa.schema([one for one in schema if one.name not in partition_by])
        self.columns: Sequence[str] = self.in_files.names
        self.most_bytes: int | None = None
        self.options: Mapping[str, Any] = {"compression": "snappy"}
        self._folder = TableFolder(path)
        self._partition_by = list(partition_by)

    def keys(self, data: pa.RecordBatch) -> Sequence[pa.Array]:
        return [data.column(name) for name in self._partition_by]

    def create(self, name: str, values: PartitionValues) -> tuple[str, Any]:
        folders = "".join(
            f"{quote(column, safe='')}={NO_VALUE if value is None else quote(value, safe='')}/"
            for column, value in self._partition(values).items()
        )
        path = f"{folders}{name}"
        return path, self._folder.create(path)

    def finish(self, path: str, file: Any) -> None:
        self._folder.finish(path, file)

    def discard(self, path: str, file: Any) -> None:
        self._folder.discard(path, file)

    def remove(self, path: str) -> None:
        self._folder.remove(path)

    def described(self, path: str, size: int, values: PartitionValues, footer: Any) -> object:
        partition = self._partition(values)
        return DataFile(path, size, footer.num_rows, partition, bounds_in(footer)).plain

    def _partition(self, values: PartitionValues) -> dict[str, str | None]:
        return dict(zip(self._partition_by, map(partition_text, values), strict=True))


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
