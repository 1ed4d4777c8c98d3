"""IcebergSource: reads a snapshot of an Iceberg table, and if asked the rows that later snapshots
append. Needs `pyiceberg` (`penstock[iceberg]`).

The driver plans, and each data file is a split. Bounded or following, exactly once. Source:
Iceberg's IcebergSource for Flink (FLIP-27); differs: a file is one split, and following begins with
a scan of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Batch,
    ColumnBatch,
    EnumeratorContext,
    PolledSplitReader,
    ReaderContext,
    RefusedForGood,
)
from penstock.connectors.api.builder import SettingsBuilder, checked_ms
from penstock.connectors.lakehouse.iceberg_files import data_file_of, values_of
from penstock.connectors.lakehouse.iceberg_tables import (
    TableName,
    arrow_schema_of,
    cause_of,
    checked_call,
    import_pyiceberg,
    opened,
)
from penstock.connectors.lakehouse.tables import (
    TableEnumerator,
    TableSource,
    at_submit,
    check_columns,
    row_type_of,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.codecs.convert import arrow_schema, cast_to

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

# ---------------------------------------------------------------------- iceberg scan
# What a source reads of an Iceberg table: its snapshots, their files, and the rows of a file. Planning and reading are pyiceberg's.
#
# Source: Iceberg table spec (Snapshots, Scan Planning); Iceberg's ContinuousSplitPlannerImpl and SnapshotUtil for Flink.


_HEAVY: Final = frozenset({
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds",
    "upper_bounds", "split_offsets",
})  # fmt: skip
"""What planning needs of a file, and reading does not."""


class StreamingStartingStrategy(Enum):
    """Where a source that follows a table begins. Source: StreamingStartingStrategy of Iceberg for Flink."""

    TABLE_SCAN_THEN_INCREMENTAL = 0
    """The table as it is, and then what is appended."""
    INCREMENTAL_FROM_LATEST_SNAPSHOT = 1
    """What the last snapshot appended, and then what is appended."""
    INCREMENTAL_FROM_LATEST_SNAPSHOT_EXCLUSIVE = 2
    """Only what is appended from now on."""
    INCREMENTAL_FROM_EARLIEST_SNAPSHOT = 3
    """What all snapshots that are kept appended, one after the other."""
    INCREMENTAL_FROM_SNAPSHOT_ID = 4
    """What a snapshot appended, and the later ones."""
    INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP = 5
    """What the first snapshot at or after a time appended, and the later ones."""


@dataclass(frozen=True, slots=True)
class IcebergSplit:
    """A data file as plain data, with the delete files that apply to it. `snapshot_id`: whose plan it is from."""

    snapshot_id: int
    file: Mapping[str, Any]
    deletes: tuple[Mapping[str, Any], ...] = ()


def lineage(table: Table, ref: str | None) -> Iterator[Snapshot]:
    """The snapshots of a branch that are kept, the newest first. `ref`: None: the main branch."""
    snapshot = table.snapshot_by_name(ref or "main")
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def newer_than(table: Table, ref: str | None, last: int | None, name: TableName) -> list[Snapshot]:
    """Return the snapshots after `last`, oldest first; None: all that are kept. Raises
    RefusedForGood: `last` does not lead to the newest one any more.
    """
    found: list[Snapshot] = []
    for snapshot in lineage(table, ref):
        if snapshot.snapshot_id == last:
            return found[::-1]
        found.append(snapshot)
        if last is not None and snapshot.parent_snapshot_id == last:
            return found[::-1]
    if last is None:
        return found[::-1]
    raise RefusedForGood(
        f"the Iceberg table {name} was read up to snapshot {last}, which does not lead to its "
        "newest one any more: snapshots after it have expired, or the table was rolled back. "
        "Begin anew without a savepoint, and keep snapshots for longer "
        "(history.expire.max-snapshot-age-ms)."
    )


def start_of(
    table: Table, ref: str | None, strategy: StreamingStartingStrategy, value: int | None
) -> int | None:
    """Return the snapshot after which an incremental source begins; None: before the first one.

    `value`: the snapshot's id, or the time in epoch ms. Raises ConfigurationError: there is no such
    snapshot.
    """
    kept = list(lineage(table, ref))
    if strategy is StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_ID:
        by_id = {one.snapshot_id: one for one in kept}
        if value not in by_id:
            raise ConfigurationError(
                f"start_snapshot_id: the table has no snapshot {value} that leads to its newest "
                f"one. It has {sorted(by_id)}."
            )
        return by_id[value].parent_snapshot_id
    if not kept or strategy is StreamingStartingStrategy.INCREMENTAL_FROM_EARLIEST_SNAPSHOT:
        return None
    if strategy is StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT:
        return kept[0].parent_snapshot_id
    if strategy is StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP:
        assert value is not None, "the builder sets a time"
        late = [one for one in kept if one.timestamp_ms >= value]
        return late[-1].parent_snapshot_id if late else kept[0].snapshot_id
    return kept[0].snapshot_id


def snapshot_files(
    table: Table, snapshot_id: int, row_filter: Any, name: TableName
) -> list[IcebergSplit]:
    """The files of a snapshot with their deletes. Raises RefusedForGood: it has deletes that pyiceberg does not apply."""
    scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
    return _planned(scan, snapshot_id, name)


def appended_files(
    table: Table, snapshot: Snapshot, row_filter: Any, name: TableName
) -> list[IcebergSplit]:
    """The files that an append snapshot has added."""
    scan = table.incremental_append_scan(
        from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
        to_snapshot_id_inclusive=snapshot.snapshot_id,
        row_filter=row_filter,
    )
    return _planned(scan, snapshot.snapshot_id, name)


def _planned(scan: Any, snapshot_id: int, name: TableName) -> list[IcebergSplit]:
    def plan() -> list[IcebergSplit]:
        try:
            return [
                IcebergSplit(
                    snapshot_id,
                    plain_file(one.file),
                    tuple(sorted(map(plain_file, one.delete_files), key=itemgetter("file_path"))),
                )
                for one in scan.plan_files()
            ]
        except ValueError as error:
            if "equality deletes" not in str(error):
                raise
            raise RefusedForGood(
                f"the Iceberg table {name} has equality deletes (of Flink's upserts), which "
                "pyiceberg does not apply. Compact the table (rewrite_data_files), or read it "
                "with Spark and env.from_spark(df)."
            ) from error

    found: list[IcebergSplit] = checked_call(name, "its files cannot be listed", plan)
    return found


def plain_file(file: DataFile) -> dict[str, Any]:
    """What reading needs of a file, as plain data for checkpoints."""
    from pyiceberg.manifest import DATA_FILE_TYPE, DEFAULT_READ_VERSION

    names = [one.name for one in DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields]
    plain = {name: getattr(file, name) for name in names if name not in _HEAVY}
    plain["content"] = int(file.content)
    plain["file_format"] = file.file_format.value
    plain["partition"] = values_of(file.partition)
    plain["spec_id"] = file.spec_id
    return plain


class FileRows:
    """Reads rows of a table's files, with the columns of `projected` and their ids, as a newer table may have them otherwise."""

    def __init__(self, table: Table, projected: Any, row_filter: Any) -> None:
        from pyiceberg.io.pyarrow import ArrowScan

        self._io = table.io
        self._scan = ArrowScan(table.metadata, table.io, projected, row_filter)
        self.spec_ids = set(table.specs())

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        """The rows that match and are not deleted, in the file's order."""
        from pyiceberg.io.pyarrow import _read_all_delete_files
        from pyiceberg.table import FileScanTask

        deletes = {data_file_of(one) for one in split.deletes}
        task = FileScanTask(data_file_of(split.file), deletes)
        deleted = _read_all_delete_files(self._io, [task])
        # `to_record_batches`, the public one, would hold the whole file.
        scan = self._scan
        read = scan._record_batches_from_scan_tasks_and_deletes  # noqa: SLF001
        yield from read([task], deleted)


# ---------------------------------------------------------------------- iceberg source


_LOG: Final = logging.getLogger(__name__)
_BATCH_ROWS: Final = 65_536
_EVERY: Final = Duration.of_seconds(10)
_ALL: Final = StreamingStartingStrategy.TABLE_SCAN_THEN_INCREMENTAL


@dataclass(frozen=True, slots=True)
class _Settings:
    """`ref`: a branch or tag. `start_value`: of the strategies that need one. `every_ms`: None: bounded."""

    name: TableName
    columns: tuple[str, ...] = ()
    row_filter: Any = None
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    branch: str | None = None
    tag: str | None = None
    strategy: StreamingStartingStrategy = _ALL
    start_value: int | None = None
    every_ms: int | None = None
    refuses_changes: bool = False

    @property
    def ref(self) -> str | None:
        return self.branch or self.tag

    @property
    def filter(self) -> Any:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.expressions.parser import parse

        if self.row_filter is None:
            return AlwaysTrue()
        return parse(self.row_filter) if isinstance(self.row_filter, str) else self.row_filter


class IcebergSource(TableSource):
    """Reads an Iceberg table as columns, a snapshot of it or also what is appended later. Not in PyFlink.

    Build it: `IcebergSource.for_bounded_row_data("shop.orders").with_catalog("main", {...}).build()`. Its type is the table's.
    """

    def __init__(self, settings: _Settings, row_type: TypeInformation, projected: str) -> None:
        """`projected`: the Iceberg schema of the columns, as JSON."""
        super().__init__(settings, row_type)
        self._projected = projected

    @staticmethod
    def for_bounded_row_data(table: str) -> IcebergSource.Builder:
        """Return a builder of a source that reads one snapshot, the last one by default, and ends. `table`: "shop.orders"."""
        return IcebergSource.Builder(_Settings(TableName(table)))

    @staticmethod
    def for_continuous_row_data(table: str) -> IcebergSource.Builder:
        """Return a builder of a source that reads the table as it is, and then the rows of each snapshot that appends, without end."""
        return IcebergSource.Builder(_Settings(TableName(table), every_ms=_EVERY.to_millis()))

    class Builder(SettingsBuilder):
        """Builds an IcebergSource; the setters return the builder."""

        def with_catalog(self, name: str, properties: Mapping[str, str] | None = None) -> Self:
            """Set the catalog; by default "default", as pyiceberg is configured on the driver. See IcebergSink."""
            table = self.settings.name.identifier
            return self._with(name=TableName(table, name, dict(properties or {})))

        def with_columns(self, *columns: str) -> Self:
            """Set the columns to read, in this order; by default all."""
            return self._with(columns=columns)

        def with_filter(self, row_filter: Any) -> Self:
            """Set which rows to read: text such as "id > 5 and name = 'x'", or an expression of pyiceberg.

            Files whose partitions or bounds show that they have no such row are not read.
            """
            return self._with(row_filter=row_filter)

        def use_snapshot_id(self, snapshot_id: int) -> Self:
            """Set the snapshot that a bounded source reads."""
            return self._with(snapshot_id=snapshot_id)

        def as_of_timestamp(self, timestamp_ms: int) -> Self:
            """Have a bounded source read the table as it was at a time, in epoch ms."""
            return self._with(as_of_ms=timestamp_ms)

        def branch(self, branch: str) -> Self:
            """Set the branch; main by default."""
            return self._with(branch=branch)

        def tag(self, tag: str) -> Self:
            """Have a bounded source read the snapshot with this tag."""
            return self._with(tag=tag)

        def streaming_starting_strategy(self, strategy: StreamingStartingStrategy) -> Self:
            """Set where a source that follows begins; TABLE_SCAN_THEN_INCREMENTAL by default."""
            return self._with(strategy=strategy)

        def start_snapshot_id(self, snapshot_id: int) -> Self:
            """Begin with what this snapshot appended. Sets INCREMENTAL_FROM_SNAPSHOT_ID."""
            strategy = StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_ID
            return self._with(strategy=strategy, start_value=snapshot_id)

        def start_snapshot_timestamp(self, timestamp_ms: int) -> Self:
            """Begin with the first snapshot at or after this time, in epoch ms. Sets
            INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP.
            """
            strategy = StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP
            return self._with(strategy=strategy, start_value=timestamp_ms)

        def monitor_interval(self, interval: Duration) -> Self:
            """Set how often a source that follows looks for new snapshots; 10 s by default."""
            return self._with(every_ms=checked_ms("monitor_interval", interval))

        def refuse_changes(self, *, refuses: bool = True) -> Self:
            """End the job at snapshots that overwrite or delete rows. By default they are skipped and logged, as Flink skips them."""
            return self._with(refuses_changes=refuses)

        def build(self) -> IcebergSource:
            """Return the source. Raises ConfigurationError: there is no such table, snapshot or column."""
            import_pyiceberg("IcebergSource")
            settings = replace(self.settings, name=self.settings.name.configured)
            _check(settings)
            table = _table(settings)
            schema = _projection(table, settings)
            columns = arrow_schema_of(schema)
            names = settings.columns or columns.names
            columns = pa.schema([columns.field(name) for name in names])
            row_type = row_type_of(columns, "IcebergSource")
            return IcebergSource(settings, row_type, schema.model_dump_json())

    def create_enumerator(self, context: EnumeratorContext) -> _Enumerator:
        return _Enumerator(context, self.settings)

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _Reader(context, self.settings, self._type, self._projected)


def _check(settings: _Settings) -> None:
    """Raises ConfigurationError: settings that exclude each other."""
    exact = {
        "use_snapshot_id": settings.snapshot_id,
        "as_of_timestamp": settings.as_of_ms,
        "branch": settings.branch,
        "tag": settings.tag,
    }
    called = [name for name, value in exact.items() if value is not None]
    if len(called) > 1:
        raise ConfigurationError(
            f"IcebergSource: {' and '.join(called)} each say what to read. Call one of them."
        )
    if settings.every_ms is None and settings.strategy is not _ALL:
        raise ConfigurationError(
            f"IcebergSource: {settings.strategy.name} is for sources that follow a table. Use "
            "use_snapshot_id or as_of_timestamp, or for_continuous_row_data."
        )
    if settings.every_ms is not None and called and called != ["branch"]:
        raise ConfigurationError(
            f"IcebergSource: {called[0]} is for bounded sources. Use start_snapshot_id or "
            "start_snapshot_timestamp, or for_bounded_row_data."
        )
    by_value = {
        StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_ID: "start_snapshot_id",
        StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP: "start_snapshot_timestamp",
    }
    if settings.strategy in by_value and settings.start_value is None:
        raise ConfigurationError(
            f"IcebergSource: {settings.strategy.name} needs {by_value[settings.strategy]}(...)."
        )


def _table(settings: _Settings) -> Table:
    """Raises ConfigurationError."""
    found = at_submit(lambda: opened(settings.name))
    if found is None:
        raise ConfigurationError(
            f"IcebergSource: there is no table {settings.name}. Check its name and the catalog."
        )
    return found


def _projection(table: Table, settings: _Settings) -> Schema:
    """The columns to read. Raises ConfigurationError: there is no such snapshot, column, or filter."""
    from pyiceberg.expressions import visitors

    snapshot_id = _snapshot_of(table, settings)
    if settings.every_ms is not None and settings.strategy is not _ALL:
        start_of(table, settings.ref, settings.strategy, settings.start_value)
    # The columns of then where a program wants the table as it was, else those of now.
    is_former = any(
        one is not None for one in (settings.snapshot_id, settings.as_of_ms, settings.tag)
    )
    scan = table.scan(snapshot_id=snapshot_id if is_former else None)
    names = [one.name for one in scan.projection().fields]
    check_columns(settings.columns, names, settings.name)
    try:
        visitors.bind(table.schema(), settings.filter, case_sensitive=True)
    except Exception as error:  # Its parser has errors of its own.
        raise ConfigurationError(
            f"with_filter: the table {settings.name} cannot be filtered by "
            f"{settings.row_filter!s}: {cause_of(error)}. Expected text such as "
            f"\"id > 5 and name = 'x'\" with columns of "
            f"the table: {names}."
        ) from error
    return scan.select(*settings.columns).projection() if settings.columns else scan.projection()


def _snapshot_of(table: Table, settings: _Settings) -> int | None:
    """The snapshot that a bounded source reads; None: the table has none. Raises ConfigurationError: there is no such snapshot."""
    if settings.as_of_ms is not None:
        snapshot = table.snapshot_as_of_timestamp(settings.as_of_ms)
    elif settings.snapshot_id is not None:
        snapshot = table.snapshot_by_id(settings.snapshot_id)
    elif settings.ref is not None:
        snapshot = table.snapshot_by_name(settings.ref)
    else:
        snapshot = table.current_snapshot()
        if snapshot is None:
            return None
    if snapshot is None:
        raise ConfigurationError(
            f"IcebergSource: the table {settings.name} has no snapshot "
            f"{settings.snapshot_id or settings.as_of_ms or settings.ref!r}. It has the snapshots "
            f"{[(one.snapshot_id, one.timestamp_ms) for one in table.snapshots()][-10:]} (id, "
            f"epoch ms), and the branches and tags {sorted(table.refs())}."
        )
    return snapshot.snapshot_id


class _Enumerator(TableEnumerator):
    """Assigns the files of a snapshot, and of each later append."""

    format_name = "iceberg"

    def begin(self) -> tuple[int | None, list[IcebergSplit]]:
        settings = self.settings
        table = _table(settings)
        if settings.strategy is not _ALL:
            return start_of(table, settings.ref, settings.strategy, settings.start_value), []
        last = _snapshot_of(table, settings)
        if last is None:
            return None, []
        return last, snapshot_files(table, last, settings.filter, settings.name)

    def opened(self) -> Table | None:
        return opened(self.settings.name)

    def later(self, table: Table) -> Iterator[tuple[int, list[IcebergSplit]]]:
        settings = self.settings
        for snapshot in newer_than(table, settings.ref, self._place, settings.name):
            yield snapshot.snapshot_id, self._added(table, snapshot)

    def _added(self, table: Table, snapshot: Any) -> list[IcebergSplit]:
        """The files with new rows of a snapshot. Raises RefusedForGood: it takes rows back, and that is refused."""
        settings = self.settings
        operation = "append" if snapshot.summary is None else snapshot.summary.operation.value
        if operation == "append":
            return appended_files(table, snapshot, settings.filter, settings.name)
        if operation == "replace":  # Compaction: no row is new.
            return []
        if settings.refuses_changes:
            raise RefusedForGood(
                f"snapshot {snapshot.snapshot_id} of the Iceberg table {settings.name} "
                f"({operation}) changes rows that were read, and a stream cannot take records "
                "back. To skip such snapshots, leave refuse_changes() out; or begin anew without "
                "a savepoint."
            )
        _LOG.warning(
            "enumerator=iceberg table=%s snapshot=%s operation=%s rows=SKIPPED",
            settings.name.identifier,
            snapshot.snapshot_id,
            operation,
        )
        return []


class _Reader(PolledSplitReader):
    def __init__(
        self, context: ReaderContext, settings: _Settings, row_type: Any, projected: str
    ) -> None:
        super().__init__(context)
        self.settings = settings
        self._schema = arrow_schema(row_type)
        self._projected = projected
        self._files = self._opened()  # Not with the first split: that would hold up the task.

    def split_id(self, split: IcebergSplit) -> str:
        return f"{split.snapshot_id}:{split.file['file_path']}"

    def read(self, split: IcebergSplit) -> Iterator[Batch]:
        if split.file["spec_id"] not in self._files.spec_ids:  # Partitions that are newer.
            self._files = self._opened()
        for data in self._files.read(split):
            arrays = [cast_to(data.column(one.name), one.type) for one in self._schema]
            whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            for start in range(0, whole.num_rows, _BATCH_ROWS):
                yield ColumnBatch(whole.slice(start, _BATCH_ROWS), None)

    def _opened(self) -> FileRows:
        from pyiceberg.schema import Schema

        table = opened(self.settings.name)
        if table is None:
            raise ExternalError(
                f"the Iceberg table {self.settings.name} is not there, seen from this "
                "TaskManager. Check that the catalog is the same on every machine."
            )
        projected = Schema.model_validate_json(self._projected)
        return FileRows(table, projected, self.settings.filter)
