"""Reads ranges of MySQL's or MariaDB's tables, each in a transaction whose place in the binlog is known exactly.

MariaDB tells the place of a consistent snapshot. MySQL does not: there the table is locked for reading while the snapshot is
taken, which waits for open transactions that have written to the table, and takes a moment.
Source: MariaDB's START TRANSACTION WITH CONSISTENT SNAPSHOT and binlog_snapshot_position; MySQL's LOCK TABLES.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.api.base import Batch
from penstock.connectors.cdc.mysql.catalog import binlog_end, is_mariadb
from penstock.connectors.cdc.mysql.columns import WHOLE, ValueReader, ordered, selected
from penstock.connectors.cdc.mysql.connection import (
    EXTRA,
    MySqlSettings,
    ask,
    connect,
    errors,
    quoted,
)
from penstock.connectors.cdc.mysql.driver import file_number
from penstock.connectors.cdc.records import NOTHING, RecordMaker
from penstock.connectors.cdc.splits import SnapshotSplit, TableId
from penstock.connectors.cdc.tables import TableShape
from penstock.engine.model.errors import ExternalError

_ROWS: Final = 1000
_LOCK_S: Final = 60
"""How long LOCK TABLES waits. Until it is given, new writers of the table wait, too."""
_LOCK_WAIT_TIMEOUT: Final = 1205
_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


@dataclass(frozen=True, slots=True)
class BinlogView:
    """A snapshot that saw what the binlog has up to a position. `end`: number of the file, position."""

    end: tuple[int, int]

    @property
    def plain(self) -> tuple[Any, ...]:
        return (self.end,)

    def covers(self, mark: tuple[int, int]) -> bool:
        """`mark`: the end of the change's event."""
        return mark <= self.end

    def is_passed(self, mark: tuple[int, int]) -> bool:
        return mark > self.end


class RangeReader:
    """Reads ranges, on the fetcher's thread."""

    def __init__(self, settings: MySqlSettings, maker: RecordMaker, where: str) -> None:
        self._settings = settings
        self._maker = maker
        self._where = where
        self._cursors = extra("pymysql.cursors", EXTRA, where)

    def rows(
        self, split: SnapshotSplit, shape: TableShape
    ) -> Iterator[tuple[Batch, SnapshotSplit]]:
        """Yield as `ReaderSide.rows`."""
        values = ValueReader(shape, self._where)
        does = f"reading {split.split_id}"
        with (
            errors(self._settings, self._where, does),
            closing(connect(self._settings, self._where, is_slow=True)) as connection,
        ):
            split = split.begun(self._view(connection, split.table))
            now_ms = time.time_ns() // 1_000_000
            query, given = _query(split, shape)
            with _streaming(connection, self._cursors.SSCursor) as cursor:
                cursor.execute(query, given)
                while raw := cursor.fetchmany(_ROWS):
                    split = split.read(values.key(raw[-1]))
                    changes = [values.change("r", None, row, now_ms) for row in raw]
                    yield self._maker.batch(changes), split
        yield NOTHING, split.finished()

    def _view(self, connection: Any, table: TableId) -> BinlogView:
        """Begins the transaction."""
        ask(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if is_mariadb(connection) and not self._settings.locks:
            ask(connection, _BEGIN)
            found = dict(ask(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            file, position = found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"])
            return BinlogView((file_number(file), position))
        with closing(connect(self._settings, self._where, is_slow=True)) as other:
            self._lock(other, table)
            ask(connection, _BEGIN)
            file, position = binlog_end(other)
            ask(other, "UNLOCK TABLES")
        return BinlogView((file_number(file), position))

    def _lock(self, connection: Any, table: TableId) -> None:
        """Raises: ExternalError: transactions that have written to the table stay open for too long."""
        pymysql = extra("pymysql", EXTRA, self._where)
        ask(connection, f"SET SESSION lock_wait_timeout = {_LOCK_S}")
        try:
            ask(connection, f"LOCK TABLES {quoted(*table)} READ")
        except pymysql.MySQLError as error:
            if error.args[0] != _LOCK_WAIT_TIMEOUT:
                raise
            raise ExternalError(
                f"{self._where}: the lock on {table} for its snapshot was not given within "
                f"{_LOCK_S} s, because transactions that have used the table are still open. Find "
                "them in information_schema.INNODB_TRX (trx_started, trx_mysql_thread_id), and "
                "end them: KILL the thread."
            ) from error


def _query(split: SnapshotSplit, shape: TableShape) -> tuple[str, tuple[Any, ...]]:
    names = ", ".join(selected(column, _escaped(column.name)) for column in shape.columns)
    first = _escaped(shape.columns[shape.key[0]].name)
    keys = ", ".join(
        ordered(shape.columns[place], _escaped(shape.columns[place].name)) for place in shape.key
    )
    terms: list[str] = []
    given: list[Any] = []
    if split.low is not None:
        terms.append(f"{first} >= %s")
        given.append(split.low)
    if split.high is not None:
        terms.append(f"{first} < %s")
        given.append(split.high)
    if split.after is not None:
        if shape.columns[shape.key[0]].kind in WHOLE:
            terms.append(f"{first} >= %s")
            given.append(split.after[0])
        terms.append(f"({keys}) > ({', '.join(['%s'] * len(split.after))})")
        given += split.after
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    # ruff: ignore[hardcoded-sql-expression] - names are quoted, values are bound
    query = f"SELECT {names} FROM {_escaped(*shape.table)}{where} ORDER BY {keys}"
    return query, tuple(given)


def _escaped(*names: str) -> str:
    """A name as SQL in which PyMySQL puts values for %s."""
    return quoted(*names).replace("%", "%%")


@contextmanager
def _streaming(connection: Any, kind: type) -> Generator[Any]:
    """A cursor that reads rows as they are asked for. If it is left before the end, so is the connection."""
    cursor = connection.cursor(kind)
    try:
        yield cursor
    except BaseException:
        # ruff: ignore[private-member-access] - else it reads all rows that are left
        result = cursor._result
        if result is not None:
            result.unbuffered_active = False
        raise
    cursor.close()
