"""The database side of a SqlSink: its tables, and statements for the user's table. Does not know sinks, records or
tasks.

The sink keeps two tables of its own next to the user's table. One holds the rows that are staged until their checkpoint
completes, in pieces of many rows. The other has a line for each committed transaction. In one transaction of the
database, a commit writes the rows, deletes the staged ones and adds the line. A repeated commit finds the line, and
does nothing. This works on every database with transactions. PREPARE TRANSACTION, which XA sinks use, is turned off in
PostgreSQL by default, holds locks until the checkpoint completes, and is missing in SQLite.
Source: Flink GenericWriteAheadSink and its CheckpointCommitter; differs: rows are staged in the database, not in the
checkpoint.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from penstock.connectors.sql.checks import is_unique, misfits
from penstock.connectors.sql.engine import (
    REFUSED_BY_DRIVER,
    SqlAccess,
    SqlTarget,
    again_if_rolled_back,
    driver_text,
    error_of,
    look,
    may_pass,
    shown_url,
    transaction,
)
from penstock.connectors.sql.rows import NamedPiece, RowWriter, refused_row
from penstock.connectors.sql.staged import (
    Origin,
    Piece,
    commits_table,
    drop_begun_before,
    drop_leftovers,
    loads_piece,
    note_commit,
    staged_pieces,
    staged_table,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.interruption import uninterruptible

if TYPE_CHECKING:
    import sqlalchemy as sa

# ---------------------------------------------------------------------- rights
# Whether the user of a SqlSink may write where it writes, asked at submit by statements that
# change no row. Does not know sinks.


_DIALECTS: Final = ("postgresql", "mysql", "mariadb")
"""With users and rights. These look at rights before they look for rows."""


def check_use(
    engine: sa.Engine,
    own: Sequence[sa.Table],
    table: sa.Table,
    columns: Sequence[str],
    keys: Sequence[str],
    where: str,
) -> None:
    """Raises: ConfigurationError: the user may not write these columns, or not the sink's own tables. What may pass is no answer.

    `own`: the sink's own tables. `columns` and `keys`: of the user's table, as in `RowWriter`. `where`: names the sink.
    """
    wrong = _refused_use(engine, own, table, columns, keys)
    if wrong is not None:
        names = " and ".join(repr(one.name) for one in own)
        raise ConfigurationError(
            f"{where}: in {shown_url(engine)} it cannot write {wrong}. The user of the URL needs "
            f"INSERT on {table.fullname!r}, with key columns also SELECT, UPDATE and, for rows of "
            f"kind -D, DELETE; and all four on {names}: grant them, or name other tables with "
            "set_own_tables."
        )


def _refused_use(
    engine: sa.Engine,
    own: Sequence[sa.Table],
    table: sa.Table,
    columns: Sequence[str],
    keys: Sequence[str],
) -> str | None:
    """Return the name of a table that cannot be written and why, or None."""
    import sqlalchemy as sql

    if engine.dialect.name not in _DIALECTS:
        return None
    try:
        with transaction(engine) as connection:
            for asked, statement in _statements(own, table, columns, keys):
                try:
                    connection.execute(statement)
                except sql.exc.SQLAlchemyError as error:
                    return None if may_pass(error) else f"{asked.fullname!r}: {driver_text(error)}"
            connection.rollback()
    except sql.exc.SQLAlchemyError:  # After an answer the transaction cannot be committed.
        return None
    return None


def _statements(
    own: Sequence[sa.Table], table: sa.Table, columns: Sequence[str], keys: Sequence[str]
) -> Iterator[tuple[sa.Table, Any]]:
    import sqlalchemy as sql

    for one in own:
        first = next(iter(one.columns))
        yield one, sql.select(one).limit(0)
        yield one, _insert(one, [column.name for column in one.columns])
        yield one, one.update().where(sql.false()).values({first: first})
        yield one, one.delete().where(sql.false())
    yield table, _insert(table, columns)
    if keys:
        yield table, sql.select(*[table.columns[name] for name in keys]).limit(0)
        changed = {name: table.columns[name] for name in columns if name not in keys}
        if changed:
            yield table, table.update().where(sql.false()).values(changed)


def _insert(table: sa.Table, columns: Sequence[str]) -> Any:
    import sqlalchemy as sql

    nothing = sql.select(*[sql.null().label(f"c{n}") for n, _ in enumerate(columns)]).limit(0)
    return table.insert().from_select(list(columns), nothing).inline()


# ---------------------------------------------------------------------- tables


UPSERT_DIALECTS: Final = ("postgresql", "sqlite", "mysql", "mariadb")
MOST_OF_ROW: Final = 500
BYTES_AT_ONCE: Final = 4 * 2**20
_WRITE: Final = "cannot write rows"
_COMMIT: Final = "cannot commit"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target(SqlTarget):
    """Where rows go. `columns` None: the fields of the stream's type. `key_columns` empty: rows are only added."""

    columns: tuple[str, ...] | None = None
    key_columns: tuple[str, ...] = ()
    staged_name: str = "penstock_staged"
    commits_name: str = "penstock_commits"


@dataclass(frozen=True, slots=True)
class Transaction:
    """The rows of one subtask for one checkpoint, staged in `pieces` pieces that are numbered from 0."""

    transaction_id: str
    pieces: int
    columns: tuple[str, ...]


def _asking(
    what: str,
) -> Callable[[Callable[Concatenate[SqlDatabase, P], T]], Callable[Concatenate[SqlDatabase, P], T]]:
    """For methods that ask the database. `what`: cannot be done, for errors. Raises: ExternalError, NoAnswer."""

    def decorate(
        method: Callable[Concatenate[SqlDatabase, P], T],
    ) -> Callable[Concatenate[SqlDatabase, P], T]:
        @wraps(method)
        def ask(self: SqlDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
            def call() -> T:
                with self.errors(what):
                    return method(self, *args, **kwargs)

            with uninterruptible():
                return self.answered(what, call)

        return ask

    return decorate


class SqlDatabase(SqlAccess):
    """One database as one process sees it. A connection is opened for each call, and none is kept."""

    def __init__(self, target: Target, where: str) -> None:
        """`where`: names the sink in errors. Raises: ConfigurationError: SQLAlchemy or the driver is missing."""
        super().__init__(target, where)
        self._writers: dict[tuple[str, ...], RowWriter] = {}
        metadata = self._sa.MetaData(schema=target.schema)
        self.staged = staged_table(self._sa, target.staged_name, metadata)
        self.commits = commits_table(self._sa, target.commits_name, metadata)
        self._metadata = metadata

    # ------------------------------------------------------------------ set-up

    @_asking("cannot look at the tables")
    def check(self) -> None:
        """Creates the sink's tables if they are missing, and checks the user's. Raises: ConfigurationError."""
        try:
            self._metadata.create_all(self.engine)
            table = self.table
        except self._sa.exc.NoSuchTableError as error:
            raise ConfigurationError(
                f"{self.where}: there is no table {str(self.target)!r} in {self.shown_url}. Create "
                "it first; an SqlSink does not, because it does not know your types, keys and "
                "indexes."
            ) from error
        except self._sa.exc.SQLAlchemyError as error:
            raise ConfigurationError(
                f"{self.where}: cannot use {self.shown_url}: {driver_text(error)}. The driver and "
                "all executors must reach the "
                f"database and be allowed to write {str(self.target)!r}, "
                f"{self.target.staged_name!r} and "
                f"{self.target.commits_name!r}, which the driver creates."
            ) from error
        known = set(table.columns.keys())
        for name in (*(self.target.columns or ()), *self.target.key_columns):
            if name not in known:
                raise ConfigurationError(
                    f"{self.where}: the table {str(self.target)!r} has no column {name!r}; it has "
                    f"{sorted(known)}. Correct set_columns or set_key_columns."
                )
        if self.target.key_columns:
            self._check_keys(table)

    def _check_keys(self, table: sa.Table) -> None:
        keys = list(self.target.key_columns)
        if self.engine.dialect.name not in UPSERT_DIALECTS:
            raise ConfigurationError(
                f"{self.where}: rows cannot be replaced by key on {self.engine.dialect.name}, only "
                f"on {', '.join(UPSERT_DIALECTS)}. Leave set_key_columns out; then every row is "
                "added."
            )
        with self.errors("cannot read the indexes"):
            has_index = is_unique(self._sa.inspect(self.engine), table, keys)
        if not has_index:
            raise ConfigurationError(
                f"{self.where}: the table {str(self.target)!r} has neither a primary key nor a "
                "unique index of "
                f"exactly the key columns {keys}, so no row would be replaced. Make one: CREATE "
                "UNIQUE INDEX "
                f"... ON {self.target} ({', '.join(keys)}), or correct set_key_columns."
            )

    @_asking("cannot read the columns")
    def check_fields(self, columns: Sequence[str], row_type: RowTypeInfo) -> None:
        """Holds the stream's fields against the user's table. Raises: ConfigurationError."""
        table = self.table
        wrong = list(misfits(table, columns, row_type))
        if wrong:
            raise ConfigurationError(
                f"{self.where}: rows of the type {row_type} do not fit the table "
                f"{str(self.target)!r} in "
                f"{self.shown_url}: {'; '.join(wrong)}. Its columns: "
                f"{list(table.columns.keys())}. Rename or drop "
                "fields in a map(), name the columns to write with set_columns([...]), or change "
                "the table."
            )

    @_asking("cannot read the columns")
    def check_rights(self, columns: Sequence[str]) -> None:
        """Raises: ConfigurationError: the user may not write these columns, or not the sink's own tables."""
        own, keys = (self.staged, self.commits), self.target.key_columns
        check_use(self.engine, own, self.table, columns, keys, self.where)

    def _writer(self, columns: tuple[str, ...]) -> RowWriter:
        """It keeps its compiled statements, so it is made once."""
        found = self._writers.get(columns)
        if found is None:
            found = RowWriter(self.table, columns, self.target.key_columns, self.engine.dialect)
            self._writers[columns] = found
        return found

    # ------------------------------------------------------------------ staging

    @_asking("cannot stage rows")
    def stage(
        self,
        transaction_id: str,
        first: int,
        origin: Origin,
        payloads: Sequence[bytes],
        checkpoint_id: int | None = None,
    ) -> None:
        """Makes pieces durable, numbered from `first`. Readers of the user's table do not see them.

        `checkpoint_id`: as of `seal`; None: it is not known yet.
        """
        values = [
            {
                "transaction_id": transaction_id, "piece": piece, "job": origin.job,
                "sink": origin.sink, "subtask": origin.subtask, "attempt": origin.attempt,
                "checkpoint_id": checkpoint_id, "payload": payload,
            }
            for piece, payload in enumerate(payloads, first)
        ]  # fmt: skip
        with transaction(self.engine) as connection:
            connection.execute(self.staged.insert(), values)

    @_asking("cannot stage rows")
    def seal(self, transaction_id: str, checkpoint_id: int) -> None:
        """Marks the staged transaction with its checkpoint.

        Then a job that restores an earlier checkpoint knows that it will never be committed.
        """
        staged = self.staged
        is_it = staged.c.transaction_id == transaction_id
        with transaction(self.engine) as connection:
            connection.execute(staged.update().where(is_it).values(checkpoint_id=checkpoint_id))

    @_asking("cannot drop staged rows")
    def drop_unsealed(self, job_prefix: str, sink: str) -> None:
        """Deletes the rows that attempts of this job staged and never prepared for a checkpoint."""
        staged = self.staged
        mine = staged.c.job.startswith(job_prefix, autoescape=True) & (staged.c.sink == sink)
        with transaction(self.engine) as connection:
            connection.execute(staged.delete().where(mine & staged.c.checkpoint_id.is_(None)))

    @_asking("cannot drop staged rows")
    def drop_leftovers(self, origin: Origin, parallelism: int, restored: int | None) -> None:
        """Deletes the staged rows that nobody will commit, left by this subtask or by subtasks whose work it continues.

        They were staged in an older attempt, or prepared for a checkpoint after the restored one.
        """
        with transaction(self.engine) as connection:
            connection.execute(drop_leftovers(self.staged, origin, parallelism, restored))

    @_asking("cannot forget old commits")
    def forget_old(self, older_than_ms: int) -> None:
        """Deletes the lines of transactions that were committed longer ago than this, and rows that were staged longer
        ago: drivers that were killed have left them, and no checkpoint that names them can be restored any more.
        """
        limit = now_ms() - older_than_ms
        with transaction(self.engine) as connection:
            connection.execute(self.commits.delete().where(self.commits.c.committed_at_ms < limit))
            drop_begun_before(connection, self.staged, limit)

    # ------------------------------------------------------------------ the user's table

    @_asking(_WRITE)
    def write(self, columns: tuple[str, ...], piece: Piece, retries: int = 0) -> None:
        """Writes rows at once, in a transaction of their own.

        `retries`: how often it is tried again if the database has rolled it back for the sake of others.
        """
        writer = self._writer(columns)
        try:
            again_if_rolled_back(
                self.engine, lambda connection: writer.write(connection, [piece]), retries
            )
        except (self._sa.exc.StatementError, *REFUSED_BY_DRIVER) as error:
            raise self._blamed(_WRITE, error, lambda _: [(columns, piece)]) from error

    @_asking(_COMMIT)
    def commit(self, transactions: Sequence[Transaction]) -> None:
        """Commits these transactions in one transaction of the database, without those that are committed already.

        Raises: ExternalError: a transaction is neither committed nor staged, or the database refuses rows.
        """
        _ = self.table  # reads the columns now, not inside the transaction
        try:
            try:
                self._commit(transactions)
            except self._sa.exc.IntegrityError:
                # Another process, such as an earlier attempt, may have committed one of these
                # in the same moment.
                self._commit(transactions)
        except (self._sa.exc.StatementError, *REFUSED_BY_DRIVER) as error:
            pieces = partial(self._staged_pieces, transactions)
            raise self._blamed(_COMMIT, error, pieces) from error

    def _commit(self, transactions: Sequence[Transaction]) -> None:
        with transaction(self.engine) as connection:
            for one in transactions:
                if not note_commit(connection, self.commits, one.transaction_id, now_ms()):
                    continue
                writer = self._writer(one.columns)
                for pieces in self._read(connection, one):
                    writer.write(connection, map(loads_piece, pieces))
                staged = self.staged
                connection.execute(
                    staged.delete().where(staged.c.transaction_id == one.transaction_id)
                )

    def _staged_pieces(
        self, transactions: Sequence[Transaction], connection: sa.Connection
    ) -> Iterator[NamedPiece]:
        """The rows that are to be committed, piece by piece."""
        for one in transactions:
            if not note_commit(connection, self.commits, one.transaction_id, now_ms()):
                continue
            for pieces in self._read(connection, one):
                for piece in pieces:
                    yield one.columns, loads_piece(piece)

    def _blamed(
        self,
        what: str,
        error: Exception,
        pieces: Callable[[sa.Connection], Iterable[NamedPiece]],
    ) -> ExternalError:
        """The error to raise, with the row that the database refuses. It writes all rows again to find the row, and
        rolls back.
        """
        text = f"{self.failed(what)}: "
        if may_pass(error):
            return error_of(text + driver_text(error), error)

        def find(connection: sa.Connection) -> dict[str, Any] | None:
            return refused_row(connection, pieces(connection), self._writer)

        row = look(self.engine, find)
        if row is not None:
            text += f"{bounded_repr(row, MOST_OF_ROW)}: "
        return error_of(
            f"{text}{driver_text(error)}. It will refuse this row again, so the job ends. Correct "
            "the table, or "
            "filter such rows before the sink.",
            error,
        )

    def _read(
        self, connection: sa.Connection, transaction: Transaction
    ) -> Iterator[Sequence[bytes]]:
        """The staged pieces in their order, several at once."""
        name, pieces = transaction.transaction_id, transaction.pieces
        count = 0
        for some in staged_pieces(connection, self.staged, name, pieces, BYTES_AT_ONCE):
            count += len(some)
            yield some
        if count != pieces:
            raise ExternalError(
                f"{self.where}: transaction {name!r} for the table {str(self.target)!r} is not in "
                f"{self.target.commits_name!r}, and not all of its {pieces} pieces are in "
                f"{self.target.staged_name!r} of {self.shown_url}. Either its rows are lost, or "
                "they were committed and its line was deleted. Check that this is the same "
                "database, and that nothing else deletes from these tables. If you know that the "
                f"rows are in the table, add the id to {self.target.commits_name!r} and start the "
                "job again."
            )

    def failed(self, what: str) -> str:
        return super().failed(f"{what} for the table")


def now_ms() -> int:
    return int(time.time() * 1000)


def unique_with_time() -> str:
    """32 hexadecimal digits that nobody else gets. The first twelve are the time in epoch ms, as in a UUID 7."""
    return f"{now_ms():012x}7{secrets.token_hex(10)[:19]}"
