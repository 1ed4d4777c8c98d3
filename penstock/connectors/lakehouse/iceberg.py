"""IcebergSink: appends rows to an Iceberg table, exactly once. Needs the package `pyiceberg` on the driver and on executors
(`penstock[iceberg]`).

Writers write Parquet files where the table wants them. When a checkpoint is complete, one subtask adds the files of all writers to the
table, in one snapshot. Its summary names the job, the operator and the checkpoint, so a commit that is tried again, or by two processes,
finds itself among the ancestors and adds nothing twice. Other programs may write the table at the same time.
Source: Iceberg's IcebergSink for Flink (IcebergCommitter, `flink.max-committed-checkpoint-id`); differs: files are committed without
manifests in between, and a table is only appended to.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.api.base import (
    Committer,
    RefusedForGood,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.lakehouse.iceberg_files import FORMAT, IcebergFiles, data_file_of
from penstock.connectors.lakehouse.iceberg_tables import (
    TableName,
    answered,
    arrow_schema_of,
    catalog_of,
    cause_of,
    create,
    found_in,
    import_pyiceberg,
    opened,
    parsed,
    partitioning_of,
)
from penstock.connectors.lakehouse.tables import TableSink, TableWriter, at_submit
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.formats.column_files import schema_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

JOB_ID: Final = "penstock.job-id"
OPERATOR_ID: Final = "penstock.operator-id"
CHECKPOINT_ID: Final = "penstock.max-committed-checkpoint-id"
_LAST: Final = 2**63 - 1
"""The checkpoint of a job without checkpoints, which commits once, at its end. Source: Flink's IcebergFilesCommitter."""
_TRIES: Final = 10
"""Of a commit together with others: each try sees what they have added."""
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2.0
"""A cancel waits for it."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """`creates`: the properties of a table that is to be made; None: it must be there. `partitioning`: None: as the table has it."""

    name: TableName
    schema: pa.Schema
    row_type: RowTypeInfo | None
    partitioning: tuple[str, ...] | None = None
    creates: Mapping[str, str] | None = None


class IcebergSink(TableSink):
    """Appends rows to an Iceberg table, exactly once with checkpoints. Not in PyFlink.

    Build it: `IcebergSink.for_row_data("shop.orders", row_type).with_catalog("main", {"type": "rest", "uri": ...}).build()`.
    """

    name = "IcebergSink"
    settings: _Settings

    @staticmethod
    def for_row_data(table: str, row_type: RowTypeInfo | pa.Schema) -> IcebergSink.Builder:
        """Return a builder.

        Args:
            table: its namespace and name: "shop.orders".
            row_type: Types.ROW_NAMED(...) or an Arrow schema: the fields of the records, and the columns of a new table.

        Raises: ConfigurationError: a field cannot be a column.
        """
        schema = schema_of(row_type, "IcebergSink.for_row_data")
        is_type = isinstance(row_type, RowTypeInfo)
        return IcebergSink.Builder(
            _Settings(TableName(table), schema, row_type if is_type else None)
        )

    class Builder(SettingsBuilder):
        """Builds an IcebergSink; the setters return the builder."""

        def with_catalog(self, name: str, properties: Mapping[str, str] | None = None) -> Self:
            """Set the catalog; by default "default", as pyiceberg is configured on the driver.

            `properties`: as pyiceberg takes them, such as type, uri, warehouse, s3.endpoint. They go before the configuration.
            """
            table = self.settings.name.identifier
            return self._with(name=TableName(table, name, dict(properties or {})))

        def with_partitioning(self, *fields: str) -> Self:
            """Set how a new table is partitioned: "name", "year(time)", "month(time)", "day(time)", "hour(time)", "bucket(16, id)",
            "truncate(4, name)". A table that is there must be partitioned like this; without a call it may have any partitions.
            """
            import_pyiceberg("IcebergSink")
            for one in fields:
                parsed(one)
            return self._with(partitioning=fields)

        def create_table_if_missing(self, properties: Mapping[str, str] | None = None) -> Self:
            """Make the table when the job is submitted, if there is none. `properties`: of the table, such as write.target-file-size-bytes."""
            return self._with(creates=dict(properties or {}))

        def upsert(self) -> NoReturn:
            """Raise ConfigurationError: a table is only appended to."""
            raise ConfigurationError(
                "IcebergSink.upsert: rows are only appended, because pyiceberg does not write "
                "equality deletes. Append the changes to a table and merge them with Spark (MERGE "
                "INTO), or write a database's table with keys through SqlSink."
            )

        def build(self) -> IcebergSink:
            """Return the sink."""
            import_pyiceberg("IcebergSink")
            return IcebergSink(replace(self.settings, name=self.settings.name.configured))

    def validate(self) -> None:
        """Find or make the table, and hold it against the fields. Raises ConfigurationError."""
        settings = self.settings
        table = at_submit(self._found_or_made)
        if table is None:
            raise ConfigurationError(
                f"IcebergSink: there is no table {settings.name}. Check the name, make the table, "
                "or call create_table_if_missing() on the sink's builder."
            )
        _check_layout(table, settings)
        self._check_fits(settings.schema, arrow_schema_of(table.schema()), settings.name)

    def _found_or_made(self) -> Table | None:
        settings = self.settings
        table = opened(settings.name)
        if table is None and settings.creates is not None:
            fields = settings.partitioning or ()
            table = create(settings.name, settings.schema, fields, settings.creates)
        return table

    def _check_input(self, stream: pa.Schema) -> None:
        table = opened(self.settings.name)
        if table is not None:
            self._check_fits(stream, arrow_schema_of(table.schema()), self.settings.name)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _IcebergWriter(self.settings, context)

    def create_committer(self) -> Committer:
        return _IcebergCommitter(self.settings.name)

    def combined(
        self, context: WriterContext, checkpoint_id: int | None, committables: Sequence[Any]
    ) -> Sequence[object]:
        number = _LAST if checkpoint_id is None else checkpoint_id
        files = [file for prepared in committables for file in prepared]
        return [(context.job_prefix, context.operator_id, number, files)]


def _check_layout(table: Table, settings: _Settings) -> None:
    """Raises ConfigurationError: files of this sink would not be what the table wants."""
    there = partitioning_of(table.spec(), table.schema())
    wanted = settings.partitioning
    if wanted is not None and [parsed(one) for one in wanted] != [parsed(one) for one in there]:
        raise ConfigurationError(
            f"IcebergSink: the table {settings.name} is partitioned by {there}, and the sink by "
            f"{list(wanted)}. Write with_partitioning({', '.join(map(repr, there))}), or leave "
            "it out."
        )
    sources = [one.source_id for one in table.spec().fields]
    if len(set(sources)) < len(sources):
        raise ConfigurationError(
            f"IcebergSink: the table {settings.name} is partitioned by {there}, two fields of one "
            "column, which pyiceberg does not write. Change the table's partitioning."
        )
    kept_as = table.properties.get(FORMAT, "parquet").lower()
    if kept_as != "parquet":
        raise ConfigurationError(
            f"IcebergSink: the table {settings.name} wants {kept_as} files ({FORMAT}), and the "
            "sink writes Parquet. Change the property."
        )


class _IcebergWriter(TableWriter):
    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        table = opened(settings.name)
        if table is None:
            raise ExternalError(
                f"the Iceberg table {settings.name} is not there, seen from this TaskManager. It "
                "was there when the job was submitted: check that the catalog is the same on "
                "every machine."
            )
        files = IcebergFiles(table, settings.name.identifier)
        super().__init__(files, context, settings.row_type)


class _IcebergCommitter(Committer):
    def __init__(self, name: TableName) -> None:
        self._name = name

    def commit(self, committables: Sequence[Any]) -> Sequence[object] | None:
        """Add the files of each checkpoint to the table, in one snapshot. Raises ExternalError; RefusedForGood: the table has changed
        so that they do not fit.
        """
        for committable in committables:
            self._commit(committable)
        return None

    def abort(self, job_prefix: str) -> None:
        """Files that no snapshot names are left to remove_orphan_files: finding them would list the whole table."""

    def _commit(self, committable: Any) -> None:
        from pyiceberg.exceptions import CommitFailedException

        last: Exception | None = None
        for number in range(_TRIES):
            if number > 1:
                # Not put off: the next checkpoint's snapshot would say that this one is there.
                most_s = min(_FIRST_WAIT_S * 2**number, _LONGEST_WAIT_S)
                time.sleep(random.uniform(0, most_s))
            try:
                answered(self._name, "cannot commit", partial(self._try, committable))
            except CommitFailedException as error:
                last = error  # Another one was faster, maybe with the same files.
            else:
                return
        raise ExternalError(
            f"the Iceberg table {self._name} was changed by others {_TRIES} times while files "
            f"were to be added: {cause_of(last) if last else ''}"
        )

    def _try(self, committable: Any) -> None:
        with catalog_of(self._name) as catalog:
            table = self._checked(found_in(catalog, self._name), committable)
            if table is not None:
                _append(table, committable)

    def _checked(self, table: Table | None, committable: Any) -> Table | None:
        """The table to commit to; None: the files are there already. Raises RefusedForGood."""
        job, operator, checkpoint, files = committable
        if table is None:
            raise RefusedForGood(
                f"the Iceberg table {self._name} is gone, so the files that were written for it "
                "cannot be committed. They are still in its folder."
            )
        there = max_committed_checkpoint(table, job, operator)
        if there is not None and there >= checkpoint:
            return None
        spec_id = table.spec().spec_id
        if any(one["spec_id"] != spec_id for one in files):
            raise RefusedForGood(
                f"the Iceberg table {self._name} is partitioned by "
                f"{partitioning_of(table.spec(), table.schema())} now, and the files of the job as "
                "it was before. Change partitions while no job writes the table: stop the job with "
                "a savepoint first."
            )
        return table


def max_committed_checkpoint(table: Table, job: str, operator: str) -> int | None:
    """The last checkpoint of a job's operator that is in the table, in the newest of its snapshots; None: no snapshot is known."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if summary.get(JOB_ID) == job and summary.get(OPERATOR_ID) == operator:
            return int(summary[CHECKPOINT_ID])
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


def _append(table: Table, committable: Any) -> None:
    """Raises CommitFailedException: the table has changed since it was opened."""
    job, operator, checkpoint, files = committable
    # pyiceberg would try again by itself, without a look at what others have added.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    merges = table.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
    transaction = table.transaction()
    update = transaction.update_snapshot({
        JOB_ID: job,
        OPERATOR_ID: operator,
        CHECKPOINT_ID: str(checkpoint),
    })
    with update.merge_append() if merges else update.fast_append() as append:
        for plain in files:
            append.append_data_file(data_file_of(plain, _table_format_version=table.format_version))
    transaction.commit_transaction()
