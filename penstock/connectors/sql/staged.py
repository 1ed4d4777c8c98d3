"""The sink's own tables next to the user's: rows that are staged, and transactions that are committed. Does not know the user's table."""

from __future__ import annotations

import datetime as dt
import pickle
import re
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from penstock.connectors.sql.engine import (
    driver_text,
    error_of,
    import_sqlalchemy,
    make_engine,
    shown_url,
    transaction,
)
from penstock.connectors.sql.values import SqlRow, are_naive, dumps_plain, loads_plain
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import RowKind
from penstock.engine.runtime.elements import classes_of

if TYPE_CHECKING:
    import sqlalchemy as sa

# ---------------------------------------------------------------------- pieces
# Rows column by column, and the bytes in which they are staged. Does not know any database.
#
# Bytes of a piece: `MAGIC`, a form, the size, then the columns, compressed with lz4 where Arrow has it. A column of texts or of times
# without a zone is packed, which costs a tenth of pickling it. Any other column is pickled. Earlier releases pickled rows.


MAGIC: Final = b"PSQ1"
_PLAIN: Final = b"-"
_LZ4: Final = b"4"
_HEAD: Final = struct.Struct("<cQ")
_TEXTS: Final = b"s"
_TIMES: Final = b"t"
_PICKLED: Final = b"p"
_NO_TEXT: Final = "\x01"
"""Stands for None in a column of texts, none of which is this one."""
_KINDS: Final = tuple(RowKind)
_NONE: Final = type(None)
_HARMLESS: Final = frozenset({_NONE, bool, int, float, str, bytes, Decimal, dt.date, dt.timedelta})
"""Values of exactly these classes need no look at what is inside."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of the user's table, column by column: all columns have `size` values.

    `kinds`: of the rows; None: all are INSERT.
    """

    columns: Sequence[Sequence[Any]]
    size: int
    kinds: Sequence[RowKind] | None = None

    @staticmethod
    def of(rows: Sequence[tuple[Any, ...]], kinds: Sequence[RowKind] | None = None) -> Piece:
        """From rows, of which there is at least one."""
        # A zip of all rows has an iterator for each of them, which takes five times as long.
        columns = [list(map(itemgetter(place), rows)) for place in range(len(rows[0]))]
        return Piece(columns, len(rows), kinds)

    @staticmethod
    def of_changes(changes: Sequence[SqlRow]) -> Piece:
        """From rows with their kinds, of which there is at least one."""
        kinds = [kind for kind, _ in changes]
        return Piece.of(
            [values for _, values in changes],
            None if kinds.count(RowKind.INSERT) == len(kinds) else kinds,
        )

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.columns, strict=True)

    def changes(self) -> list[SqlRow]:
        """The rows with their kinds."""
        kinds = repeat(RowKind.INSERT, self.size) if self.kinds is None else self.kinds
        return list(zip(kinds, self.rows(), strict=True))


def dumps_piece(piece: Piece) -> bytes:
    """The piece as bytes. Raises: TypeError: a value is not one of the plain kinds."""
    packed: list[tuple[bytes, Any]] = [_packed(column) for column in piece.columns]
    kinds = None if piece.kinds is None else bytes([kind.value for kind in piece.kinds])
    body = pickle.dumps((piece.size, kinds, packed), protocol=5)
    codec = _codec()
    form, data = (_PLAIN, body) if codec is None else (_LZ4, codec.compress(body, asbytes=True))
    return b"".join((MAGIC, _HEAD.pack(form, len(body)), data))


def loads_piece(data: bytes) -> Piece:
    """The piece that was given to `dumps_piece`. Raises: pickle.UnpicklingError: the bytes contain anything else."""
    if not data.startswith(MAGIC):
        raise pickle.UnpicklingError(
            f"staged rows begin with {bytes(data[:8])!r}, which no SqlSink writes; "
            f"expected {MAGIC!r}"
        )
    begin = len(MAGIC) + _HEAD.size
    form, size = _HEAD.unpack(data[len(MAGIC) : begin])
    body = data[begin:]
    if form == _LZ4:
        body = pa.Codec("lz4").decompress(body, decompressed_size=size, asbytes=True)
    rows, kinds, packed = loads_plain(body)
    return Piece(
        [_UNPACK[form](column) for form, column in packed],
        rows,
        None if kinds is None else [_KINDS[kind] for kind in kinds],
    )


def _codec() -> Any:
    return pa.Codec("lz4") if pa.Codec.is_available("lz4") else None


def _packed(column: Sequence[Any]) -> tuple[bytes, Any]:
    kinds = classes_of(column)
    if str in kinds and kinds <= {str, _NONE}:
        texts: Any = column
        if _NONE in kinds:
            texts = [_NO_TEXT if text is None else text for text in column]
        joined = "\0".join(texts)
        is_clear = _NO_TEXT not in column if _NONE in kinds else True
        if joined.count("\0") == len(column) - 1 and is_clear:
            return _TEXTS, (_NONE in kinds, joined.encode("utf-8", "surrogatepass"))
    if dt.datetime in kinds and kinds <= {dt.datetime, _NONE}:
        times = [time for time in column if time is not None] if _NONE in kinds else column
        if are_naive(times):
            packed = pa.array(column, pa.timestamp("us")).to_numpy(zero_copy_only=False)
            return _TIMES, packed.astype("<M8[us]").tobytes()
    if kinds <= _HARMLESS:
        return _PICKLED, pickle.dumps(list(column), protocol=5)
    return _PICKLED, dumps_plain(list(column))


def _unpacked_texts(packed: tuple[bool, bytes]) -> Sequence[Any]:
    has_none, joined = packed
    texts = joined.decode("utf-8", "surrogatepass").split("\0")
    return [None if text == _NO_TEXT else text for text in texts] if has_none else texts


def _unpacked_times(packed: bytes) -> Sequence[Any]:
    times: list[Any] = np.frombuffer(packed, "<M8[us]").tolist()
    return times


_UNPACK: Final[dict[bytes, Callable[[Any], Sequence[Any]]]] = {
    _TEXTS: _unpacked_texts,
    _TIMES: _unpacked_times,
    _PICKLED: loads_plain,
}

# ---------------------------------------------------------------------- staged


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
    """Delete what was staged before this time, in epoch ms, as far as the names of transactions
    show it.
    """
    import sqlalchemy as sql

    names = connection.execute(sql.select(staged.c.transaction_id).distinct())
    old = [name for (name,) in names if (begun_ms(name) or limit_ms) < limit_ms]
    for begin in range(0, len(old), _NAMES_AT_ONCE):
        some = old[begin : begin + _NAMES_AT_ONCE]
        connection.execute(staged.delete().where(staged.c.transaction_id.in_(some)))


def begun_ms(transaction_id: str) -> int | None:
    """When the first rows of a transaction were staged, in epoch ms; None: its name does not have
    it.
    """
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


# ---------------------------------------------------------------------- leftovers Rows that dead
# jobs have left staged in a database: which there are, and how to remove them. Does not know the
# user's table.
#
# Source: what `SqlSink` keeps in `penstock_staged` and `penstock_commits`.


_WHERE: Final = "transactions of SQL"


@dataclass(frozen=True, slots=True)
class StagedTransaction:
    """Staged rows of one subtask. `checkpoint_id` None: they were prepared for none, or at the end
    of a job without.

    `began_ms`: epoch ms; None: its name does not have it. `is_committed`: its rows are in the
    table, only the staging is left.
    """

    transaction_id: str
    job: str
    subtask: int
    checkpoint_id: int | None
    pieces: int
    began_ms: int | None
    is_committed: bool


class StagedRows:
    """What is staged in one database. A connection is opened for each call."""

    def __init__(
        self,
        url: str,
        schema: str | None = None,
        names: tuple[str, str] = ("penstock_staged", "penstock_commits"),
    ) -> None:
        """`names`: of the sink's own tables. Raises: ConfigurationError: SQLAlchemy or the driver is missing."""
        self._sa = import_sqlalchemy(_WHERE)
        self._engine: sa.Engine = make_engine(url, {}, _WHERE)
        metadata = self._sa.MetaData(schema=schema)
        self._staged = staged_table(self._sa, names[0], metadata)
        self._commits = commits_table(self._sa, names[1], metadata)

    @property
    def shown_url(self) -> str:
        """The URL without passwords."""
        return shown_url(self._engine)

    def transactions(self, prefix: str) -> list[StagedTransaction]:
        """Those of jobs whose name among staged rows begins with the prefix, in the order in which they began.

        Raises: ConfigurationError: no sink has ever written there. ExternalError: the database does not answer.
        """
        sql, staged, commits = self._sa, self._staged, self._commits
        columns = (staged.c.transaction_id, staged.c.job, staged.c.subtask, staged.c.checkpoint_id)
        query = (
            sql
            .select(*columns, sql.func.count(), commits.c.transaction_id.is_not(None))
            .select_from(
                staged.outerjoin(commits, staged.c.transaction_id == commits.c.transaction_id)
            )
            .where(staged.c.job.startswith(prefix, autoescape=True))
            .group_by(*columns, commits.c.transaction_id)
        )
        with self._errors("list"), transaction(self._engine) as connection:
            if not sql.inspect(connection).has_table(staged.name, staged.schema):
                raise ConfigurationError(
                    f"{_WHERE}: there is no table {staged.fullname!r} in {self.shown_url}: no "
                    "SqlSink has written there. Check the URL, --schema and --own-tables."
                )
            rows: Sequence[Any] = connection.execute(query).all()
        found = [
            StagedTransaction(
                str(name),
                str(job),
                int(subtask),
                checkpoint,
                int(pieces),
                begun_ms(name),
                bool(is_there),
            )
            for name, job, subtask, checkpoint, pieces, is_there in rows
        ]
        return sorted(found, key=lambda one: (one.began_ms or 0, one.transaction_id))

    def remove(self, transaction_ids: Sequence[str]) -> None:
        """Delete their staged rows, all or none. Raises: ExternalError."""
        staged = self._staged
        with self._errors("remove"), transaction(self._engine) as connection:
            for begin in range(0, len(transaction_ids), _NAMES_AT_ONCE):
                some = transaction_ids[begin : begin + _NAMES_AT_ONCE]
                connection.execute(staged.delete().where(staged.c.transaction_id.in_(some)))

    @contextmanager
    def _errors(self, what: str) -> Generator[None]:
        try:
            yield
        except self._sa.exc.SQLAlchemyError as error:
            text = f"{_WHERE}: cannot {what} staged rows in {self.shown_url}: {driver_text(error)}."
            raise error_of(text, error) from error
