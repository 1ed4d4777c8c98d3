"""SqlSink: writes rows into a table of a SQL database, exactly once, or replaced by key. Needs SQLAlchemy 2
(`penstock[sql]`).

Exactly once: before the checkpoint's barrier, a subtask stages its rows, in pieces, in a table next to the user's. When
the checkpoint completes, it moves them to the user's table, in one transaction of the database with a line that records
the commit (`sql/tables.py`). Without checkpoints the driver does that for all subtasks, in one transaction, when the
job has finished. So constraints of the user's table are checked only at the commit.
At least once: rows are written when a piece is full or old enough, and before each barrier; with key columns, rows that
are written again after a restart replace themselves.
Source: Flink JdbcSink (its exactly-once and upsert forms); differs: no XA, records by their names instead of a
statement.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Any, Final, Self

from penstock.connectors.api.base import Committer, DeliveryGuarantee, SinkWriter, WriterContext
from penstock.connectors.api.sending import RowsWriter, StagingSink, subtask_of
from penstock.connectors.sql.engine import SqlBuilder, is_transient
from penstock.connectors.sql.staged import Origin, Piece, dumps_piece
from penstock.connectors.sql.tables import SqlDatabase, Target, Transaction, unique_with_time
from penstock.connectors.sql.values import Changes, changes_maker
from penstock.engine.hosting.os.clock import NoAnswer
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.row import RowKind
from penstock.engine.model.time import Duration, millis_of
from penstock.engine.model.types import RowTypeInfo

ROWS_PER_PIECE: Final = 5000
BYTES_IN_MEMORY: Final = 4 * 2**20
"""Full pieces wait in memory until they have as many bytes, or the barrier comes: each transaction costs the database a sync."""
FLUSH_INTERVAL_MS: Final = 1000
MAX_RETRIES: Final = 3
COMMIT_RETENTION: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class _SqlSettings(Target):
    """The settings that the builder collected."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    batch_rows: int = ROWS_PER_PIECE
    interval_ms: int = FLUSH_INTERVAL_MS
    max_retries: int = MAX_RETRIES
    retention: timedelta | None = COMMIT_RETENTION


class SqlSink(StagingSink):
    """Writes rows to a table, exactly once by default. Not in PyFlink.

    Build it: `SqlSink.builder().set_url(url).set_table("counts").build()`.
    """

    is_converting = True

    @staticmethod
    def builder() -> SqlSink.Builder:
        """Return a builder."""
        return SqlSink.Builder()

    class Builder(SqlBuilder):
        """Builds an SqlSink; URL and table are required."""

        name = "SqlSink"
        begin = _SqlSettings

        def set_url(self, url: str) -> Self:
            """Set the URL, as SQLAlchemy takes it.

            For example postgresql+psycopg://user:password@host/database or
            sqlite:////directory/file.db. The executors get it with the job, password included.
            """
            return self._with(url=url)

        def set_columns(self, columns: Sequence[str]) -> Self:
            """Set the columns to write; by default the names of the stream's ROW type.

            Values are taken from Rows and dicts by name; from tuples, lists and Rows without names
            by position.
            """
            _check_names("set_columns", columns)
            return self._with(columns=tuple(columns))

        def set_key_columns(self, key_columns: Sequence[str]) -> Self:
            """Set the columns of a primary key or unique index.

            A row then replaces the one with the same key; a row of kind -D deletes it.
            """
            _check_names("set_key_columns", key_columns)
            return self._with(key_columns=tuple(key_columns))

        def set_delivery_guarantee(self, guarantee: DeliveryGuarantee) -> Self:
            """Set EXACTLY_ONCE (default), AT_LEAST_ONCE or NONE.

            The last two write without waiting for checkpoints.
            """
            return self._with(guarantee=guarantee)

        def set_batch_size(self, rows: int) -> Self:
            """Set the number of rows in one statement and one staged piece: 1 or more, 5,000 by default.

            The writer keeps this many rows in memory, and with EXACTLY_ONCE up to 4 MiB of full
            pieces, compressed.
            """
            return self._with_number("set_batch_size", 1, batch_rows=rows)

        def set_batch_interval_ms(self, interval_ms: int) -> Self:
            """Set the age in ms at which rows are written: 1 or more, 1,000 by default.

            It is used for AT_LEAST_ONCE and NONE, and checked when other rows arrive.
            """
            return self._with_number("set_batch_interval_ms", 1, interval_ms=interval_ms)

        def set_max_retries(self, retries: int) -> Self:
            """Set how often a commit is retried while the database does not answer, each time 1 s later; 3 by default.

            As often rows that are written directly are written again at once, if the database has rolled them back for the
            sake of others: after a deadlock or a serialization failure.
            """
            return self._with_number("set_max_retries", 0, max_retries=retries)

        def set_commit_retention(self, retention: Duration | timedelta | None) -> Self:
            """Set how long committed transactions are remembered: by default 30 days; None: for ever.

            Checkpoints and savepoints that are older cannot be restored with this sink. After this
            time also go rows that a killed driver has staged and nobody has committed, as soon as
            another job writes to the table. A job without checkpoints has to end within it.
            """
            if retention is not None:
                retention = timedelta(milliseconds=millis_of(retention))
            if retention is not None and retention <= timedelta(0):
                raise ConfigurationError(
                    f"set_commit_retention: expected more than 0, got {retention}."
                )
            return self._with(retention=retention)

        def set_own_tables(self, staged: str, commits: str) -> Self:
            """Name the sink's own two tables; by default penstock_staged and penstock_commits."""
            return self._with(staged_name=staged, commits_name=commits)

        def build(self) -> SqlSink:
            """Return the sink.

            Raises:
                ConfigurationError: URL or table is missing, or the columns contradict each other.
            """
            target = self._complete(url="set_url", table="set_table")
            missing = set(target.key_columns) - set(target.columns or target.key_columns)
            if missing:
                raise ConfigurationError(
                    f"SqlSink: key columns {sorted(missing)} are not among set_columns: {list(target.columns or ())}."
                )
            return SqlSink(target)

    def validate(self) -> None:
        SqlDatabase(self.settings, "SqlSink on the driver").check()

    def validate_input(self, input_type: Any) -> None:
        target = self.settings
        columns = _columns(target, input_type)
        database = SqlDatabase(target, "SqlSink on the driver")
        if isinstance(input_type, RowTypeInfo):
            database.check_fields(columns, input_type)
        database.check_rights(columns)

    def staging_writer(self, context: WriterContext) -> SinkWriter:
        return _SqlStagingWriter(self.settings, context)

    def direct_writer(self, context: WriterContext) -> SinkWriter:
        return _SqlDirectWriter(self.settings, context)

    def committer(self) -> Committer:
        return _SqlCommitter(self.settings)


class _SqlWriter(RowsWriter):
    """Makes rows from records, and passes them on in pieces."""

    sink_name = "SqlSink"

    def __init__(self, settings: _SqlSettings, context: WriterContext) -> None:
        self.settings = settings
        where = subtask_of(self.sink_name, context)
        self._database = SqlDatabase(settings, where)
        self._columns = _columns(settings, context.input_type)
        self._make = changes_maker(self._columns)
        self._rows: list[tuple[Any, ...]] = []
        self._kinds: list[RowKind] = []
        """Of the rows, if there are key columns: without them all are INSERT."""

    def converted(self, values: Sequence[Any]) -> Changes:
        changes = self._make(values)
        if not self.settings.key_columns:
            _refuse_changes(changes)
        return changes

    def write_converted(self, converted: Changes, watermark_ms: int) -> None:
        self._rows += converted.rows
        if self.settings.key_columns:
            self._kinds += converted.kinds or [RowKind.INSERT] * len(converted.rows)
        while len(self._rows) >= self.settings.batch_rows:
            self._hand_on(self._take(self.settings.batch_rows))

    def _flush(self) -> None:
        if self._rows:
            self._hand_on(self._take(len(self._rows)))

    def close(self) -> None:
        """Does not use the database: what was staged and not prepared is deleted by the next attempt, or at the job's end."""
        self._rows.clear()
        self._kinds.clear()

    def _take(self, size: int) -> Piece:
        rows, self._rows = self._rows[:size], self._rows[size:]
        kinds, self._kinds = self._kinds[:size], self._kinds[size:]
        is_insert = kinds.count(RowKind.INSERT) == len(kinds)
        return Piece.of(rows, None if is_insert else kinds)

    @abstractmethod
    def _hand_on(self, piece: Piece) -> None: ...


class _SqlStagingWriter(_SqlWriter):
    """Stages one transaction at a time. Its name is unique, so that it can be committed again after any restart."""

    def __init__(self, settings: _SqlSettings, context: WriterContext) -> None:
        super().__init__(settings, context)
        self._origin = Origin(context.job_prefix, settings.token, context.subtask, context.attempt)
        self._writer = f"{context.attempt_prefix[:64]}.s{context.subtask}.{context.attempt}"
        self._transaction_id = ""
        self._staged = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        if not context.is_batch:
            self._database.drop_leftovers(
                self._origin, context.parallelism, context.restored_checkpoint_id
            )
        if settings.retention is not None and context.subtask == 0:
            self._database.forget_old(int(settings.retention.total_seconds() * 1000))

    def prepare_commit(self) -> Sequence[object]:
        self._flush()
        return self._prepared(None)

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        """Marks the staged rows with the checkpoint.

        Then a job that restores an earlier checkpoint knows which rows will never be committed.
        """
        self._flush()
        staged_earlier = self._staged
        prepared = self._prepared(checkpoint_id)
        if staged_earlier:
            self._database.seal(self._transaction_id, checkpoint_id)
        return prepared

    def close(self) -> None:
        super().close()
        self._waiting.clear()

    def _hand_on(self, piece: Piece) -> None:
        payload = dumps_piece(piece)
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        if self._waiting_bytes >= BYTES_IN_MEMORY:
            self._stage(None)

    def _prepared(self, checkpoint_id: int | None) -> Sequence[object]:
        self._stage(checkpoint_id)
        if not self._staged:
            return ()
        prepared = (self._transaction_id, self._staged, self._columns)
        self._staged = 0
        return (prepared,)

    def _stage(self, checkpoint_id: int | None) -> None:
        """All waiting pieces, in one transaction of the database."""
        if not self._waiting:
            return
        if not self._staged:
            self._transaction_id = f"{self._writer}-{unique_with_time()}"
        self._database.stage(
            self._transaction_id, self._staged, self._origin, self._waiting, checkpoint_id
        )
        self._staged += len(self._waiting)
        self._waiting = []
        self._waiting_bytes = 0


class _SqlDirectWriter(_SqlWriter):
    """Writes rows to the user's table as they come."""

    def __init__(self, settings: _SqlSettings, context: WriterContext) -> None:
        super().__init__(settings, context)
        self._flushed_s = monotonic()

    def write_converted(self, converted: Changes, watermark_ms: int) -> None:
        super().write_converted(converted, watermark_ms)
        if (monotonic() - self._flushed_s) * 1000 >= self.settings.interval_ms:
            self._flush()

    def prepare_commit(self) -> Sequence[object]:
        self._flush()
        return ()

    def _hand_on(self, piece: Piece) -> None:
        self._database.write(self._columns, piece, self.settings.max_retries)
        self._flushed_s = monotonic()


class _SqlCommitter(Committer):
    """Commits the staged rows. While the database does not answer, the commit is retried a few times later."""

    def __init__(self, settings: _SqlSettings) -> None:
        self.settings = settings
        self._database: SqlDatabase | None = None
        self._failures = 0

    def commit(self, committables: Sequence[object]) -> Sequence[object] | None:
        if not committables:
            return None
        transactions = [_transaction(committable) for committable in committables]
        try:
            self._opened().commit(transactions)
        except ExternalError as error:
            may_pass = is_transient(error) or isinstance(error, NoAnswer)
            if not may_pass or self._failures >= self.settings.max_retries:
                raise
            self._failures += 1
            return committables
        self._failures = 0
        return None

    def abort(self, job_prefix: str) -> None:
        self._opened().drop_unsealed(job_prefix, self.settings.token)

    def _opened(self) -> SqlDatabase:
        if self._database is None:
            self._database = SqlDatabase(self.settings, "SqlSink's committer")
        return self._database


def _transaction(committable: object) -> Transaction:
    if isinstance(committable, tuple | list) and len(committable) == 3:
        transaction_id, pieces, columns = committable
        return Transaction(str(transaction_id), int(pieces), tuple(columns))
    raise TypeError(f"an SqlSink commits (transaction, pieces, columns), got {committable!r}")


def _columns(target: Target, input_type: Any) -> tuple[str, ...]:
    """The columns that are set, or those of the stream's type."""
    if target.columns is not None:
        return target.columns
    if not isinstance(input_type, RowTypeInfo):
        raise ConfigurationError(
            f"SqlSink into {str(target)!r}: its columns are not known, because the stream's type "
            f"is {input_type or 'not declared'}. Name them with set_columns([...]), or declare the "
            "type: map(..., output_type=Types.ROW_NAMED([...], [...]))."
        )
    columns = tuple(input_type.get_field_names())
    missing = [name for name in target.key_columns if name not in columns]
    if missing:
        raise ConfigurationError(
            f"SqlSink into {str(target)!r}: key columns {missing} are not among the stream's fields {list(columns)}."
        )
    return columns


def _refuse_changes(changes: Changes) -> None:
    """Refuses changes, because rows can only be added to a table without key."""
    for kind, values in zip(changes.kinds or (), changes.rows, strict=False):
        if kind is not RowKind.INSERT:
            raise TypeError(
                f"SqlSink: got a row of kind {kind}: {values!r}. Without key columns, rows can "
                "only be added (+I). To change and delete rows, name the table's key with "
                "set_key_columns([...])."
            )


def _check_names(setter: str, names: Sequence[str]) -> None:
    if isinstance(names, str) or not names or len(set(names)) != len(names):
        raise ConfigurationError(f"{setter}: expected a list of different names, got {names!r}.")
