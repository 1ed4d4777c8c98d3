"""The sink's own tables next to the user's: rows that are staged, and transactions that are committed. Does not know the user's table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import sqlalchemy as sa

NO_CHECKPOINT: Final = -1
_NAMES_AT_ONCE: Final = 500
_TIMED: Final = re.compile(r"-([0-9a-f]{12})7[0-9a-f]{19}$")
_COUNTED: Final = {"preserve_rowcount": True}


@dataclass(frozen=True, slots=True)
class Origin:
    """The writer that stages rows: `job` and `sink` are unique, `attempt` counts from 0."""

    job: str
    sink: str
    subtask: int
    attempt: int


def staged_table(sql: Any, name: str, metadata: sa.MetaData) -> sa.Table:
    from sqlalchemy.dialects import mysql

    # A BLOB of MySQL and MariaDB has 64 KiB at most.
    payload = sql.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
    table = sql.Table(
        name,
        metadata,
        sql.Column("transaction_id", sql.String(160), primary_key=True),
        sql.Column("piece", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("job", sql.String(64), nullable=False),
        sql.Column("sink", sql.String(64), nullable=False),
        sql.Column("subtask", sql.Integer, nullable=False),
        sql.Column("attempt", sql.Integer, nullable=False),
        sql.Column("checkpoint_id", sql.BigInteger),
        sql.Column("payload", payload, nullable=False),
    )
    # Pieces are compressed already. Trying it again takes PostgreSQL longer than writing them.
    plain = sql.DDL("ALTER TABLE %(fullname)s ALTER COLUMN payload SET STORAGE EXTERNAL")
    sql.event.listen(table, "after_create", plain.execute_if(dialect="postgresql"))
    return cast("sa.Table", table)


def widen(engine: sa.Engine, staged: sa.Table) -> None:
    """On MySQL and MariaDB, earlier releases made the table with a BLOB, in which few rows have room."""
    if engine.dialect.name not in {"mysql", "mariadb"}:
        return
    import sqlalchemy as sql
    from sqlalchemy.dialects import mysql

    columns = sql.inspect(engine).get_columns(staged.name, staged.schema)
    if any(one["name"] == "payload" and type(one["type"]) is mysql.BLOB for one in columns):
        name = engine.dialect.identifier_preparer.format_table(staged)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {name} MODIFY payload LONGBLOB NOT NULL")


def commits_table(sql: Any, name: str, metadata: sa.MetaData) -> sa.Table:
    table = sql.Table(
        name,
        metadata,
        sql.Column("transaction_id", sql.String(160), primary_key=True),
        sql.Column("committed_at_ms", sql.BigInteger, nullable=False),
    )
    return cast("sa.Table", table)


def staged_pieces(
    connection: sa.Connection, staged: sa.Table, transaction_id: str, pieces: int, size: int
) -> Iterator[Sequence[bytes]]:
    """The pieces in their order: the first one, then as many at once as have about `size` bytes. Ends where one is missing."""
    import sqlalchemy as sql

    begin, at_once = 0, 1
    while begin < pieces:
        end = min(begin + at_once, pieces)
        is_one = (
            (staged.c.transaction_id == transaction_id)
            & (staged.c.piece >= begin)
            & (staged.c.piece < end)
        )
        query = sql.select(staged.c.payload).where(is_one).order_by(staged.c.piece)
        found = [bytes(payload) for payload in connection.execute(query).scalars()]
        if len(found) != end - begin:
            return
        yield found
        begin, at_once = end, max(1, size // max(map(len, found)))


def drop_leftovers(
    staged: sa.Table, origin: Origin, parallelism: int, restored: int | None
) -> sa.Delete:
    """The statement for what `SqlDatabase.drop_leftovers` says."""
    mine = (
        (staged.c.job == origin.job)
        & (staged.c.sink == origin.sink)
        & (staged.c.subtask % parallelism == origin.subtask)
    )
    is_begun = staged.c.checkpoint_id.is_(None) & (staged.c.attempt < origin.attempt)
    is_void = staged.c.checkpoint_id > (NO_CHECKPOINT if restored is None else restored)
    return staged.delete().where(mine & (is_begun | is_void))


def drop_begun_before(connection: sa.Connection, staged: sa.Table, limit_ms: int) -> None:
    """Deletes what was staged before this time, in epoch ms, as far as the names of transactions tell."""
    import sqlalchemy as sql

    names = connection.execute(sql.select(staged.c.transaction_id).distinct())
    old = [name for (name,) in names if (begun_ms(name) or limit_ms) < limit_ms]
    for begin in range(0, len(old), _NAMES_AT_ONCE):
        some = old[begin : begin + _NAMES_AT_ONCE]
        connection.execute(staged.delete().where(staged.c.transaction_id.in_(some)))


def begun_ms(transaction_id: str) -> int | None:
    """When the first rows of a transaction were staged, in epoch ms; None: its name does not tell."""
    found = _TIMED.search(transaction_id)
    return None if found is None else int(found[1], 16)


def note_commit(
    connection: sa.Connection, commits: sa.Table, transaction_id: str, at_ms: int
) -> bool:
    """Notes that the transaction is committed. Returns False if it was noted before.

    It writes first: in SQLite a reader cannot become a writer while others write.
    """
    import sqlalchemy as sql

    is_there = sql.exists().where(commits.c.transaction_id == transaction_id)
    line = sql.select(
        sql.literal(transaction_id, commits.c.transaction_id.type),
        sql.literal(at_ms, commits.c.committed_at_ms.type),
    ).where(~is_there)
    names = ["transaction_id", "committed_at_ms"]
    # Without inline() SQLAlchemy asks for the generated key, and then some drivers do not count
    # the rows.
    add = commits.insert().from_select(names, line).inline()
    return bool(connection.execute(add, execution_options=_COUNTED).rowcount > 0)
