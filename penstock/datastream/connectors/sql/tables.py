"""What a SqlSink does in the database: its tables, and statements for the user's table. Knows no sink, no record, no task.

Two tables of ours stand beside the user's: rows that are staged until their checkpoint completes, in pieces of many rows,
and a line for each transaction that has been committed. A commit writes the rows, deletes the staged ones and adds the
line in one transaction of the database, so that a repeated commit finds the line and does nothing. That works on
every database with transactions; PREPARE TRANSACTION, which is what XA sinks use, is turned off in PostgreSQL as it comes, holds
locks until the checkpoint completes, and is missing in SQLite.
Source: Flink GenericWriteAheadSink and its CheckpointCommitter; differs: staged in the database instead of the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.datastream.connectors.sql.engine import import_sqlalchemy, make_engine, transaction
from penstock.datastream.connectors.sql.values import SqlRow, loads_rows
from penstock.model.errors import ConfigurationError, ExternalError
from penstock.model.row import RowKind
from penstock.runtime.interruption import uninterruptible

if TYPE_CHECKING:
    import sqlalchemy as sa

UPSERT_DIALECTS: Final = ("postgresql", "sqlite", "mysql", "mariadb")
NO_CHECKPOINT: Final = -1
_COUNTED: Final = {"preserve_rowcount": True}


@dataclass(frozen=True, slots=True)
class Target:
    """The user's table. `key_columns`: rows with the same ones replace each other; empty: every row is added.

    `staged_name` and `commits_name`: our tables, in the same schema.
    """

    url: str
    table: str
    schema: str | None = None
    columns: tuple[str, ...] | None = None
    key_columns: tuple[str, ...] = ()
    staged_name: str = "penstock_staged"
    commits_name: str = "penstock_commits"
    engine_options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


@dataclass(frozen=True, slots=True)
class Transaction:
    """Rows of one subtask for one checkpoint, staged in `pieces` pieces numbered from 0."""

    transaction_id: str
    pieces: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Who stages: `job` and `sink` are unique, `attempt` counts from 0."""

    job: str
    sink: str
    subtask: int
    attempt: int


class SqlDatabase:
    """One database as one process sees it. Connections are opened for what is at hand, none is kept."""

    def __init__(self, target: Target, where: str) -> None:
        """`where`: for errors. Raises: ConfigurationError when SQLAlchemy or the driver is missing."""
        self._sa = import_sqlalchemy(where)
        self.target = target
        self.where = where
        self.engine = make_engine(target.url, target.engine_options, where)
        self._table: sa.Table | None = None
        metadata = self._sa.MetaData(schema=target.schema)
        self.staged = self._staged_table(metadata)
        self.commits = self._commits_table(metadata)
        self._metadata = metadata

    # ------------------------------------------------------------------ set-up

    @uninterruptible()
    def check(self) -> None:
        """Make our tables where they are missing, and look at the user's. Raises: ConfigurationError."""
        try:
            self._metadata.create_all(self.engine)
            table = self.table
        except self._sa.exc.NoSuchTableError as error:
            raise ConfigurationError(
                f"{self.where}: there is no table {str(self.target)!r} in {self.shown_url}. Create it first; a "
                "SqlSink does not, since it does not know your types, keys and indexes."
            ) from error
        except self._sa.exc.SQLAlchemyError as error:
            raise ConfigurationError(
                f"{self.where}: cannot use {self.shown_url}: {error}. The driver and all executors must reach the "
                f"database and be allowed to write {str(self.target)!r}, {self.target.staged_name!r} and "
                f"{self.target.commits_name!r}, which the driver creates."
            ) from error
        known = set(table.columns.keys())
        for name in (*(self.target.columns or ()), *self.target.key_columns):
            if name not in known:
                raise ConfigurationError(
                    f"{self.where}: the table {str(self.target)!r} has no column {name!r}; it has {sorted(known)}."
                )
        if self.target.key_columns and self.engine.dialect.name not in UPSERT_DIALECTS:
            raise ConfigurationError(
                f"{self.where}: rows cannot be replaced by key on {self.engine.dialect.name}; that works on "
                f"{', '.join(UPSERT_DIALECTS)}. Leave set_key_columns out, and every row is added."
            )

    @property
    def shown_url(self) -> str:
        """Without the password."""
        return str(self.engine.url.render_as_string(hide_password=True))

    @property
    def table(self) -> sa.Table:
        """The user's, with its types as the database tells them."""
        if self._table is None:
            self._table = self._sa.Table(
                self.target.table,
                self._sa.MetaData(),
                schema=self.target.schema,
                autoload_with=self.engine,
            )
        return self._table

    def _staged_table(self, metadata: sa.MetaData) -> sa.Table:
        sql = self._sa
        table = sql.Table(
            self.target.staged_name,
            metadata,
            sql.Column("transaction_id", sql.String(160), primary_key=True),
            sql.Column("piece", sql.Integer, primary_key=True, autoincrement=False),
            sql.Column("job", sql.String(64), nullable=False),
            sql.Column("sink", sql.String(64), nullable=False),
            sql.Column("subtask", sql.Integer, nullable=False),
            sql.Column("attempt", sql.Integer, nullable=False),
            sql.Column("checkpoint_id", sql.BigInteger),
            sql.Column("payload", sql.LargeBinary, nullable=False),
        )
        return cast("sa.Table", table)

    def _commits_table(self, metadata: sa.MetaData) -> sa.Table:
        sql = self._sa
        table = sql.Table(
            self.target.commits_name,
            metadata,
            sql.Column("transaction_id", sql.String(160), primary_key=True),
            sql.Column("committed_at_ms", sql.BigInteger, nullable=False),
        )
        return cast("sa.Table", table)

    # ------------------------------------------------------------------ staging

    @uninterruptible()
    def stage(self, transaction_id: str, piece: int, origin: Origin, payload: bytes) -> None:
        """Make one piece durable. Nobody else sees it."""
        values = {
            "transaction_id": transaction_id, "piece": piece, "job": origin.job, "sink": origin.sink,
            "subtask": origin.subtask, "attempt": origin.attempt, "payload": payload,
        }  # fmt: skip
        with self._errors("cannot stage rows"), transaction(self.engine) as connection:
            connection.execute(self.staged.insert(), values)

    @uninterruptible()
    def seal(self, transaction_id: str, checkpoint_id: int) -> None:
        """The transaction belongs to this checkpoint: who restores an earlier one knows that it will never be committed."""
        staged = self.staged
        is_it = staged.c.transaction_id == transaction_id
        with self._errors("cannot stage rows"), transaction(self.engine) as connection:
            connection.execute(staged.update().where(is_it).values(checkpoint_id=checkpoint_id))

    @uninterruptible()
    def drop_unsealed(self, job_prefix: str, sink: str) -> None:
        """What attempts of this job began and never prepared for a checkpoint."""
        staged = self.staged
        mine = staged.c.job.startswith(job_prefix, autoescape=True) & (staged.c.sink == sink)
        with self._errors("cannot drop staged rows"), transaction(self.engine) as connection:
            connection.execute(staged.delete().where(mine & staged.c.checkpoint_id.is_(None)))

    @uninterruptible()
    def drop_leftovers(self, origin: Origin, parallelism: int, restored: int | None) -> None:
        """What this subtask, or one that it follows, began in an older attempt, or prepared for a checkpoint after the
        restored one.
        """
        staged = self.staged
        mine = (
            (staged.c.job == origin.job)
            & (staged.c.sink == origin.sink)
            & (staged.c.subtask % parallelism == origin.subtask)
        )
        is_begun = staged.c.checkpoint_id.is_(None) & (staged.c.attempt < origin.attempt)
        is_void = staged.c.checkpoint_id > (NO_CHECKPOINT if restored is None else restored)
        with self._errors("cannot drop staged rows"), transaction(self.engine) as connection:
            connection.execute(staged.delete().where(mine & (is_begun | is_void)))

    @uninterruptible()
    def forget_commits(self, older_than_ms: int) -> None:
        """Lines of transactions that were committed longer ago than this."""
        commits, limit = self.commits, int(time.time() * 1000) - older_than_ms
        with self._errors("cannot forget old commits"), transaction(self.engine) as connection:
            connection.execute(commits.delete().where(commits.c.committed_at_ms < limit))

    # ------------------------------------------------------------------ the user's table

    @uninterruptible()
    def write(self, columns: Sequence[str], rows: Sequence[SqlRow]) -> None:
        """Rows at once, in a transaction of their own."""
        with self._errors("cannot write rows"):
            _ = self.table
            with transaction(self.engine) as connection:
                self._write(connection, columns, rows)

    @uninterruptible()
    def commit(self, transactions: Sequence[Transaction]) -> None:
        """All of these, in one transaction of the database; those that are committed already are left out.

        Raises: ExternalError when a transaction is neither committed nor staged, or rows are refused.
        """
        with self._errors("cannot commit"):
            _ = self.table  # looked up on a connection of its own: not inside the transaction
            try:
                self._commit(transactions)
            except self._sa.exc.IntegrityError:
                # Somebody else (the former attempt, say) may have committed one of these in the same moment.
                self._commit(transactions)

    def _commit(self, transactions: Sequence[Transaction]) -> None:
        with transaction(self.engine) as connection:
            for one in transactions:
                if not self._note_commit(connection, one.transaction_id):
                    continue
                for piece in range(one.pieces):
                    rows = self._piece(connection, one, piece)
                    self._write(connection, one.columns, rows)
                staged = self.staged
                connection.execute(
                    staged.delete().where(staged.c.transaction_id == one.transaction_id)
                )

    def _note_commit(self, connection: sa.Connection, transaction_id: str) -> bool:
        """False: it is committed. Writes first, for a reader cannot become a writer in SQLite when others write."""
        sa, commits = self._sa, self.commits
        is_there = sa.exists().where(commits.c.transaction_id == transaction_id)
        line = sa.select(
            sa.literal(transaction_id, commits.c.transaction_id.type),
            sa.literal(int(time.time() * 1000), commits.c.committed_at_ms.type),
        ).where(~is_there)
        names = ["transaction_id", "committed_at_ms"]
        # Inline: with the generated key that it would ask for, some drivers count no rows.
        add = commits.insert().from_select(names, line).inline()
        return bool(connection.execute(add, execution_options=_COUNTED).rowcount > 0)

    def _piece(
        self, connection: sa.Connection, transaction: Transaction, piece: int
    ) -> list[SqlRow]:
        staged = self.staged
        is_it = (staged.c.transaction_id == transaction.transaction_id) & (staged.c.piece == piece)
        payload = connection.execute(self._sa.select(staged.c.payload).where(is_it)).scalar()
        if payload is None:
            raise ExternalError(
                f"{self.where}: transaction {transaction.transaction_id!r} for the table {str(self.target)!r} is neither "
                f"in {self.target.commits_name!r} nor, with all its {transaction.pieces} pieces, in "
                f"{self.target.staged_name!r} of {self.shown_url}: its rows are lost, or they were committed and the "
                "line is gone. Is it the same database, and does nobody clean these tables? If you know that the rows "
                f"are in, add the id to {self.target.commits_name!r} and start the job again."
            )
        return loads_rows(bytes(payload))

    def _write(
        self, connection: sa.Connection, columns: Sequence[str], rows: Sequence[SqlRow]
    ) -> None:
        if not self.target.key_columns:
            self._insert(connection, columns, rows)
            return
        # The last change of a key is what counts, and some databases refuse to change a row twice in one statement.
        places = [columns.index(name) for name in self.target.key_columns]
        last = {
            tuple([values[place] for place in places]): (kind is RowKind.DELETE, values)
            for kind, values in rows
            if kind is not RowKind.UPDATE_BEFORE
        }
        for is_delete, group in groupby(sorted(last.items(), key=_kind), key=_kind):
            found = list(group)
            if is_delete:
                self._delete(connection, [key for key, _ in found])
            else:
                values = [dict(zip(columns, row, strict=True)) for _, (_, row) in found]
                connection.execute(self._upsert(columns), values)

    def _insert(
        self, connection: sa.Connection, columns: Sequence[str], rows: Sequence[SqlRow]
    ) -> None:
        values = [dict(zip(columns, row, strict=True)) for _, row in rows]
        if values:
            connection.execute(self.table.insert(), values)

    def _delete(self, connection: sa.Connection, keys: Sequence[tuple[Any, ...]]) -> None:
        sa, names = self._sa, self.target.key_columns
        # Bound by other names than the columns': those belong to SQLAlchemy here.
        is_row = [self.table.c[name] == sa.bindparam(f"key_{i}") for i, name in enumerate(names)]
        values = [{f"key_{i}": value for i, value in enumerate(key)} for key in keys]
        connection.execute(self.table.delete().where(sa.and_(*is_row)), values)

    def _upsert(self, columns: Sequence[str]) -> Any:
        keys = self.target.key_columns
        others = [name for name in columns if name not in keys]
        dialect = self.engine.dialect.name
        if dialect in {"mysql", "mariadb"}:
            from sqlalchemy.dialects import mysql

            insert = mysql.insert(self.table)
            # A key alone: set it to what it is.
            changed = {name: insert.inserted[name] for name in others or keys}
            return insert.on_duplicate_key_update(**changed)
        from sqlalchemy.dialects import postgresql, sqlite

        make: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
        statement = make(self.table)
        if not others:
            return statement.on_conflict_do_nothing(index_elements=list(keys))
        changed = {name: statement.excluded[name] for name in others}
        return statement.on_conflict_do_update(index_elements=list(keys), set_=changed)

    @contextmanager
    def _errors(self, what: str) -> Generator[None]:
        """A database's error as ours."""
        try:
            yield
        except self._sa.exc.SQLAlchemyError as error:
            raise ExternalError(
                f"{self.where}: {what} for the table {str(self.target)!r} in {self.shown_url}: {error}"
            ) from error


def _kind(change: tuple[tuple[Any, ...], tuple[bool, tuple[Any, ...]]]) -> bool:
    return change[1][0]
