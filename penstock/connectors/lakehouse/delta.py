"""DeltaSink: appends rows to a Delta table, exactly once. Needs the package `deltalake` on the driver and on executors (`penstock[delta]`).

Writers write Parquet files into the table's folder. A commit adds them to the table's log, with the name of the writer and a number that
it counts up (the log's `txn`). The log takes each number of a writer once, so a commit that is tried again, or by two processes, adds
nothing twice. Other programs may write the table at the same time.
Source: Delta protocol (Add File, Transaction Identifiers); Flink's DeltaSink (DeltaGlobalCommitter).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.api.base import Committer, SinkWriter, WriterContext
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.lakehouse.delta_tables import (
    cause_of,
    created,
    import_deltalake,
    opened,
    schema_of_table,
)
from penstock.connectors.lakehouse.tables import PartitionValues, TableSink, TableWriter, at_submit
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.formats.column_files import schema_of
from penstock.formats.file_access import Address, is_remote, open_files, shown
from penstock.formats.file_format import local_path
from penstock.formats.partition_folders import NO_VALUE

# ---------------------------------------------------------------------- delta files
# The data files of a Delta table: their folders, partition values and bounds. Does not know the
# table's log.


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

    def begin(self, path: str) -> Any:
        """Open a new file below the folder for writing. Other programs see it when it is closed, or `finished`."""
        if self._address is None:
            whole = Path(self.path, f"{path}{_OPEN}")
            whole.parent.mkdir(parents=True, exist_ok=True)
            return whole.open("wb")
        files = open_files(self._address)
        target = f"{files.path_of(self._address)}/{path}"
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


class DeltaFiles(TableFolder):
    """The files of a Delta table: in the folder of their partition, without its columns. See `TableFiles`."""

    def __init__(self, path: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        super().__init__(path)
        self.table = path
        self.schema = schema
        self.in_files = pa.schema([one for one in schema if one.name not in partition_by])
        self.columns: Sequence[str] = self.in_files.names
        self.most_bytes: int | None = None
        self.options: Mapping[str, Any] = {"compression": "snappy"}
        self._partition_by = list(partition_by)

    def keys(self, data: pa.RecordBatch) -> Sequence[pa.Array]:
        return [data.column(name) for name in self._partition_by]

    def create(self, name: str, values: PartitionValues) -> tuple[str, Any]:
        folders = "".join(
            f"{quote(column, safe='')}={NO_VALUE if value is None else quote(value, safe='')}/"
            for column, value in self._partition(values).items()
        )
        path = f"{folders}{name}"
        return path, self.begin(path)

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
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.isoformat(" ")
        # With the zone: Spark takes a text without one for a time in the zone of its session.
        return f"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat()}Z"
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
        statistics = [one.statistics for one in chunks if one.is_stats_set]
        if (
            "." in name
            or len(statistics) != len(chunks)
            or not all(one.has_null_count for one in statistics)
        ):
            continue
        nulls = sum(one.null_count for one in statistics)
        limits = [(one.min, one.max) for one in statistics if one.has_min_max]
        has_all = len(limits) == sum(one.num_values > 0 for one in statistics)
        if limits and has_all and type(limits[0][0]) in {int, str}:
            found[name] = (nulls, min(one[0] for one in limits), max(one[1] for one in limits))
        else:
            found[name] = (nulls, None, None)
    return found


# ---------------------------------------------------------------------- delta


_TRIES: Final = 10
"""Of a commit together with others: each try sees what they have added."""


@dataclass(frozen=True, slots=True)
class _Settings:
    path: str
    schema: pa.Schema
    row_type: RowTypeInfo | None
    partition_by: tuple[str, ...] = ()
    storage: dict[str, str] = field(default_factory=dict)


class DeltaSink(TableSink):
    """Appends rows to a Delta table, exactly once with checkpoints. Not in PyFlink.

    Build it: `DeltaSink.for_row_data("/data/orders", row_type).with_partition_columns("day").build()`. The table is made when the
    job is submitted, if there is none.
    """

    name = "DeltaSink"
    settings: _Settings

    @staticmethod
    def for_row_data(table_path: str, row_type: RowTypeInfo | pa.Schema) -> DeltaSink.Builder:
        """Return a builder.

        Args:
            table_path: a path that every machine of the job has, or an address: s3://bucket/table, as for FileSink.
            row_type: Types.ROW_NAMED(...) or an Arrow schema: the fields of the records, and the columns of a new table.

        Raises: ConfigurationError: a field cannot be a column.
        """
        schema = schema_of(row_type, "DeltaSink.for_row_data")
        is_type = isinstance(row_type, RowTypeInfo)
        return DeltaSink.Builder(
            _Settings(local_path(str(table_path)), schema, row_type if is_type else None)
        )

    class Builder(SettingsBuilder):
        """Builds a DeltaSink; the setters return the builder."""

        def with_partition_columns(self, *columns: str) -> Self:
            """Set the columns whose values choose the folder. An existing table must be partitioned by the same."""
            names = self.settings.schema.names
            if unknown := [one for one in columns if one not in names]:
                raise ConfigurationError(
                    f"with_partition_columns: there is no field {unknown[0]!r}. The fields are "
                    f"{names}."
                )
            for one in columns:
                kind = self.settings.schema.field(one).type
                if pa.types.is_nested(kind) or pa.types.is_binary(kind):
                    raise ConfigurationError(
                        f"with_partition_columns: {one!r} is {kind}, whose values no folder's name "
                        "can hold. Expected numbers, texts, booleans, dates or times."
                    )
            return self._with(partition_by=tuple(columns))

        def with_storage_options(self, options: dict[str, str]) -> Self:
            """Set options that `deltalake` takes for the store of the table's log, such as AWS_REGION.

            The environment, and endpoint and region in an S3 address, need not be set here.
            """
            return self._with(storage=dict(options))

        def build(self) -> DeltaSink:
            """Return the sink."""
            return DeltaSink(self.settings)

    def validate(self) -> None:
        """Make the table, or hold it against the fields. Raises ConfigurationError."""
        settings = self.settings
        import_deltalake("DeltaSink")
        keys = list(settings.partition_by)
        table = at_submit(lambda: created(settings.path, settings.storage, settings.schema, keys))
        there = list(table.metadata().partition_columns)
        if there != list(settings.partition_by):
            raise ConfigurationError(
                f"DeltaSink: the table {shown(settings.path)!r} is partitioned by {there}, and the "
                f"sink by {list(settings.partition_by)}. Write with_partition_columns("
                f"{', '.join(map(repr, there))})."
            )
        self._check_fits(settings.schema, schema_of_table(table), repr(shown(settings.path)))

    def _check_input(self, stream: pa.Schema) -> None:
        settings = self.settings
        table = opened(settings.path, settings.storage)
        columns = settings.schema if table is None else schema_of_table(table)
        self._check_fits(stream, columns, repr(shown(settings.path)))

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _DeltaWriter(self.settings, context)

    def create_committer(self) -> Committer:
        return _DeltaCommitter(self.settings)

    def combined(
        self, context: WriterContext, checkpoint_id: int | None, committables: Sequence[Any]
    ) -> Sequence[object]:
        return [(name, number, checkpoint_id, files) for name, number, _, files in committables]


class _DeltaWriter(TableWriter):
    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        table = opened(settings.path, settings.storage)
        if table is None:
            raise ExternalError(
                f"the Delta table {shown(settings.path)!r} is not there, seen from this "
                "TaskManager. It was there when the job was submitted: check that the path is "
                "the same on every machine."
            )
        files = DeltaFiles(settings.path, schema_of_table(table), settings.partition_by)
        super().__init__(files, context, settings.row_type)
        self._transaction = f"penstock-{uuid.uuid4().hex}"
        self._number = 0

    def prepare_commit(self) -> Sequence[object]:
        prepared = []
        for whole in super().prepare_commit():
            self._number += 1
            prepared.append((self._transaction, self._number, None, whole))
        return prepared


class _DeltaCommitter(Committer):
    def __init__(self, settings: _Settings) -> None:
        self.settings = settings

    def commit(self, committables: Sequence[Any]) -> Sequence[object] | None:
        """Add the files to the table's log, in one version. Raises ExternalError, RefusedForGood: the table has changed so that they
        do not fit.
        """
        deltalake = import_deltalake("DeltaSink")
        last: Exception | None = None
        for _ in range(_TRIES):
            table = self._table()
            left = [one for one in committables if not _is_there(table, one)]
            if not left:
                return None
            try:
                self._add(table, left)
            except deltalake.exceptions.CommitFailedError as error:
                last = error  # Another one was faster, maybe with the same files.
            except (deltalake.exceptions.DeltaError, OSError) as error:
                raise ExternalError(
                    f"the Delta table {shown(self.settings.path)!r} does not take a commit: "
                    f"{cause_of(error)}"
                ) from error
            else:
                return None
        raise ExternalError(
            f"the Delta table {shown(self.settings.path)!r} was changed by others {_TRIES} "
            f"times while files were to be added: {cause_of(last)}"
        )

    def abort(self, job_prefix: str) -> None:
        TableFolder(self.settings.path).drop_begun(job_prefix)

    def _table(self) -> Any:
        table = opened(self.settings.path, self.settings.storage)
        if table is None:
            raise RefusedForGood(
                f"the Delta table {shown(self.settings.path)!r} is gone, so the files that were "
                "written for it cannot be committed. They are still in its folder."
            )
        there = list(table.metadata().partition_columns)
        if there != list(self.settings.partition_by):
            raise RefusedForGood(
                f"the Delta table {shown(self.settings.path)!r} is partitioned by {there} now, "
                f"and the files of the job by {list(self.settings.partition_by)}"
            )
        return table

    def _add(self, table: Any, committables: Sequence[Any]) -> None:
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        now_ms = int(time.time() * 1000)
        found = [DataFile(*plain) for _, _, _, files in committables for plain in files]
        actions = [
            AddAction(one.path, one.size, one.partition, now_ms, True, _stats(one)) for one in found
        ]
        checkpoints = sorted({one[2] for one in committables if one[2] is not None})
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            list(self.settings.partition_by),
            commit_properties=CommitProperties(
                custom_metadata={"penstockCheckpoints": ",".join(map(str, checkpoints))},
                app_transactions=[Transaction(name, number) for name, number, _, _ in committables],
            ),
        )


def _is_there(table: Any, committable: Any) -> bool:
    name, number, *_ = committable
    last = table.transaction_version(name)
    return last is not None and last >= number


def _stats(file: DataFile) -> str:
    known = {name: one for name, one in file.columns.items() if one[1] is not None}
    return json.dumps({
        "numRecords": file.rows,
        "minValues": {name: low for name, (_, low, _) in known.items()},
        "maxValues": {name: high for name, (_, _, high) in known.items()},
        "nullCount": {name: nulls for name, (nulls, _, _) in file.columns.items()},
    })
