"""What a source reads of an Iceberg table: its snapshots, their files, and the rows of a file. Planning and reading are pyiceberg's.

Source: Iceberg table spec (Snapshots, Scan Planning); Iceberg's ContinuousSplitPlannerImpl and SnapshotUtil for Flink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.lakehouse.iceberg_files import values_of
from penstock.connectors.lakehouse.iceberg_tables import TableName, checked_call
from penstock.engine.model.errors import ConfigurationError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

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
    """What a snapshot appended, and those behind it."""
    INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP = 5
    """What the first snapshot at or behind a time appended, and those behind it."""


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
    """The snapshots behind `last`, oldest first; None: all that are kept. Raises RefusedForGood: `last` does not lead to the newest
    one any more.
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
        "newest one any more: snapshots behind it have expired, or the table was rolled back. "
        "Begin anew without a savepoint, and keep snapshots for longer "
        "(history.expire.max-snapshot-age-ms)."
    )


def start_of(
    table: Table, ref: str | None, strategy: StreamingStartingStrategy, value: int | None
) -> int | None:
    """The snapshot behind which an incremental source begins; None: before the first one.

    `value`: the snapshot's id, or the time in epoch ms. Raises ConfigurationError: there is no such snapshot.
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
                    tuple(sorted(map(plain_file, one.delete_files), key=_path_of)),
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


def _file_of(plain: Mapping[str, Any]) -> DataFile:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    known = {name: value for name, value in plain.items() if name != "spec_id"}
    known["content"] = DataFileContent(plain["content"])
    known["file_format"] = FileFormat(plain["file_format"])
    known["partition"] = Record(*plain["partition"])
    made = DataFile.from_args(**known)
    made.spec_id = plain["spec_id"]
    return made


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

        deletes = {_file_of(one) for one in split.deletes}
        task = FileScanTask(_file_of(split.file), deletes)
        deleted = _read_all_delete_files(self._io, [task])
        # `to_record_batches`, the public one, would hold the whole file.
        scan = self._scan
        read = scan._record_batches_from_scan_tasks_and_deletes  # noqa: SLF001
        yield from read([task], deleted)


def _path_of(plain: Mapping[str, Any]) -> str:
    return str(plain["file_path"])
