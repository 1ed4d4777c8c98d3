"""DeltaSink: appends rows to a Delta table, exactly once. Needs the package `deltalake` on the driver and on executors (`penstock[delta]`).

Writers write Parquet files into the table's folder. A commit adds them to the table's log, with the name of the writer and a number that
it counts up (the log's `txn`). The log takes each number of a writer once, so a commit that is tried again, or by two processes, adds
nothing twice. Other programs may write the table at the same time.
Source: Delta protocol (Add File, Transaction Identifiers); Flink's DeltaSink (DeltaGlobalCommitter).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.api.base import Accepts, Batch, Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.lakehouse.data_files import DataFileWriter
from penstock.connectors.lakehouse.delta_files import DataFile, DeltaFiles, TableFolder
from penstock.connectors.lakehouse.delta_tables import (
    cause_of,
    created,
    import_deltalake,
    opened,
    schema_of_table,
)
from penstock.connectors.lakehouse.schemas import misfit
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.formats.column_files import schema_of
from penstock.formats.file_access import shown
from penstock.formats.file_listing import local_path

_TRIES: Final = 10
"""Of a commit together with others: each try sees what they have added."""


@dataclass(frozen=True, slots=True)
class _Settings:
    path: str
    schema: pa.Schema
    row_type: RowTypeInfo | None
    partition_by: tuple[str, ...] = ()
    storage: dict[str, str] = field(default_factory=dict)


class DeltaSink(Sink):
    """Appends rows to a Delta table, exactly once with checkpoints. Not in PyFlink.

    Build it: `DeltaSink.for_row_data("/data/orders", row_type).with_partition_columns("day").build()`. The table is made when the
    job is submitted, if there is none.
    """

    accepts = Accepts.ANY
    is_converting = True
    has_global_committer = True

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

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

    class Builder:
        """Builds a DeltaSink; the setters return the builder."""

        def __init__(self, settings: _Settings) -> None:
            self._settings = settings

        def with_partition_columns(self, *columns: str) -> DeltaSink.Builder:
            """Set the columns whose values choose the folder. An existing table must be partitioned by the same."""
            names = self._settings.schema.names
            if unknown := [one for one in columns if one not in names]:
                raise ConfigurationError(
                    f"with_partition_columns: there is no field {unknown[0]!r}. The fields are "
                    f"{names}."
                )
            for one in columns:
                kind = self._settings.schema.field(one).type
                if pa.types.is_nested(kind) or pa.types.is_binary(kind):
                    raise ConfigurationError(
                        f"with_partition_columns: {one!r} is {kind}, whose values no folder's name "
                        "can hold. Expected numbers, texts, booleans, dates or times."
                    )
            return self._set(partition_by=tuple(columns))

        def with_storage_options(self, options: dict[str, str]) -> DeltaSink.Builder:
            """Set options that `deltalake` takes for the store of the table's log, such as AWS_REGION.

            The environment, and endpoint and region in an S3 address, need not be set here.
            """
            return self._set(storage=dict(options))

        def build(self) -> DeltaSink:
            """Return the sink."""
            return DeltaSink(self._settings)

        def _set(self, **changes: Any) -> DeltaSink.Builder:
            self._settings = replace(self._settings, **changes)
            return self

    def validate(self) -> None:
        """Make the table, or hold it against the fields. Raises ConfigurationError."""
        settings = self._settings
        import_deltalake("DeltaSink")
        try:
            table = created(
                settings.path, settings.storage, settings.schema, list(settings.partition_by)
            )
        except ExternalError as error:
            raise ConfigurationError(str(error)) from error
        there = list(table.metadata().partition_columns)
        if there != list(settings.partition_by):
            raise ConfigurationError(
                f"DeltaSink: the table {shown(settings.path)!r} is partitioned by {there}, and the "
                f"sink by {list(settings.partition_by)}. Write with_partition_columns("
                f"{', '.join(map(repr, there))})."
            )
        _check(settings.schema, schema_of_table(table), settings.path)

    def validate_input(self, input_type: Any) -> None:
        """Raises ConfigurationError: the stream's type is no row, or does not fit the table."""
        if input_type is None:
            return
        if not isinstance(input_type, RowTypeInfo):
            raise ConfigurationError(
                f"DeltaSink: expected rows with names, got records of the type {input_type}. Map "
                "them to Row(...) with output_type=Types.ROW_NAMED([...], [...])."
            )
        settings = self._settings
        table = opened(settings.path, settings.storage)
        columns = settings.schema if table is None else schema_of_table(table)
        _check(schema_of(input_type, "DeltaSink"), columns, settings.path)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _DeltaWriter(self._settings, context)

    def create_committer(self) -> Committer:
        return _DeltaCommitter(self._settings)

    def combined(
        self, context: WriterContext, checkpoint_id: int | None, committables: Sequence[Any]
    ) -> Sequence[object]:
        return [(name, number, checkpoint_id, files) for name, number, _, files in committables]


def _check(stream: pa.Schema, table: pa.Schema, path: str) -> None:
    reason = misfit(stream, table)
    if reason is not None:
        raise ConfigurationError(
            f"DeltaSink: rows do not fit the table {shown(path)!r}: {reason}. Change the field, or "
            "the table (ALTER TABLE)."
        )


class _DeltaWriter:
    def __init__(self, settings: _Settings, context: WriterContext) -> None:
        table = opened(settings.path, settings.storage)
        if table is None:
            raise ExternalError(
                f"the Delta table {shown(settings.path)!r} is not there, seen from this "
                "TaskManager. It was there when the job was submitted: check that the path is "
                "the same on every machine."
            )
        files = DeltaFiles(settings.path, schema_of_table(table), settings.partition_by)
        self._files = DataFileWriter(files, context, settings.row_type)
        self.sent = self._files.sent
        self._name = f"penstock-{uuid.uuid4().hex}"
        self._number = 0

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self._files.write(self.convert(batch))

    def convert(self, batch: Batch) -> pa.RecordBatch:
        return self._files.as_table(batch)

    def write_converted(self, converted: pa.RecordBatch, watermark_ms: int) -> None:
        self._files.write(converted)

    def prepare_commit(self) -> Sequence[object]:
        whole = self._files.take_whole()
        if not whole:
            return []
        self._number += 1
        return [(self._name, self._number, None, whole)]

    def close(self) -> None:
        self._files.close()


class _DeltaCommitter(Committer):
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

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
                    f"the Delta table {shown(self._settings.path)!r} does not take a commit: "
                    f"{cause_of(error)}"
                ) from error
            else:
                return None
        raise ExternalError(
            f"the Delta table {shown(self._settings.path)!r} was changed by others {_TRIES} "
            f"times while files were to be added: {cause_of(last)}"
        )

    def abort(self, job_prefix: str) -> None:
        TableFolder(self._settings.path).drop_begun(job_prefix)

    def _table(self) -> Any:
        table = opened(self._settings.path, self._settings.storage)
        if table is None:
            raise RefusedForGood(
                f"the Delta table {shown(self._settings.path)!r} is gone, so the files that were "
                "written for it cannot be committed. They are still in its folder."
            )
        there = list(table.metadata().partition_columns)
        if there != list(self._settings.partition_by):
            raise RefusedForGood(
                f"the Delta table {shown(self._settings.path)!r} is partitioned by {there} now, "
                f"and the files of the job by {list(self._settings.partition_by)}"
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
            list(self._settings.partition_by),
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
