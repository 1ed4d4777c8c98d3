"""Reads ranges of PostgreSQL's tables, each in a transaction whose snapshot is known, by COPY: the server sends as fast as rows are taken.

A snapshot says exactly which transactions it saw, and each transaction in the WAL has its number. So the stream can go
over the changes that the range has seen, without reading anything twice.
Source: PostgreSQL's documentation of pg_current_snapshot and of COPY.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.api.base import Batch
from penstock.connectors.cdc.postgres.catalog import (
    EXTRA,
    connect,
    each_asked,
    errors,
)
from penstock.connectors.cdc.postgres.columns import WHOLE, ValueReader
from penstock.connectors.cdc.records import NOTHING, TableReading
from penstock.connectors.cdc.source import RangeReader
from penstock.connectors.cdc.tables import Key, SnapshotSplit, TableShape
from penstock.engine.hosting.os.clock import progress

_LOG: Final = logging.getLogger(__name__)
_ROWS: Final = 1000
_LOOK_S: Final = 0.05
_SAY_EVERY_S: Final = 10.0
_XIDS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A snapshot. It saw transactions before `xmin`, and those before `xmax` that were not in `running`.

    `high`: where the WAL ended when it was taken.
    """

    xmin: int
    xmax: int
    running: frozenset[int]
    high: int

    @property
    def plain(self) -> tuple[Any, ...]:
        return self.xmin, self.xmax, self.running, self.high

    def covers(self, mark: tuple[int, int]) -> bool:
        """`mark`: the transaction's 32-bit number, and where its commit stands in the WAL."""
        xid, lsn = mark
        if lsn >= self.high:
            return False
        # The number has 64 bits, of which the WAL has the lower half; both are near each other.
        distance = (xid - self.xmax) % _XIDS
        full = self.xmax + (distance if distance < _XIDS // 2 else distance - _XIDS)
        return full < self.xmin or (full < self.xmax and full not in self.running)

    def is_passed(self, mark: tuple[int, int]) -> bool:
        return mark[1] >= self.high


class PostgresRangeReader(RangeReader):
    """Reads ranges by COPY."""

    def __init__(self, reading: TableReading) -> None:
        super().__init__(reading)
        self._sql = extra("psycopg.sql", EXTRA, self._where)

    def rows(
        self, split: SnapshotSplit, shape: TableShape
    ) -> Iterator[tuple[Batch, SnapshotSplit]]:
        does = f"reading {split.split_id}"
        rows = self._rows(split, shape, does)
        return each_asked(self.settings, self._where, does, rows)

    def _rows(
        self, split: SnapshotSplit, shape: TableShape, does: str
    ) -> Generator[tuple[Batch, SnapshotSplit]]:
        values = ValueReader(shape, self._where)
        with (
            errors(self.settings, self._where, does),
            connect(self.settings, self._where) as connection,
        ):
            self._wait_for(connection, split.horizon)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            split = split.begun(_view(connection))
            now_ms = time.time_ns() // 1_000_000
            with connection.cursor().copy(self._query(split, shape)) as copy:
                rows = iter(copy.rows())
                while texts := list(islice(rows, _ROWS)):
                    split = split.read(key_of(texts[-1], shape))
                    changes = [values.change("r", None, row, now_ms) for row in texts]
                    yield self._maker.batch(changes), split
        yield NOTHING, split.finished()

    def _wait_for(self, connection: Any, horizon: int) -> None:
        """Waits until all transactions before the horizon have ended."""
        pause = threading.Event()
        say_s = time.monotonic() + _SAY_EVERY_S
        query = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        while connection.execute(query).fetchone()[0] < horizon:
            if time.monotonic() > say_s:
                say_s = time.monotonic() + _SAY_EVERY_S
                _LOG.warning(
                    "%s: the snapshot waits for transactions that were open when the job began; "
                    "see pg_stat_activity",
                    self._where,
                )
            pause.wait(_LOOK_S)
            progress()

    def _query(self, split: SnapshotSplit, shape: TableShape) -> Any:
        sql = self._sql
        names = sql.SQL(", ").join(map(sql.Identifier, shape.names))
        first = sql.Identifier(shape.columns[shape.key[0]].name)
        keys = [self._ordered(shape, place) for place in shape.key]
        terms = []
        if split.low is not None:
            terms.append(sql.SQL("{} >= {}").format(first, sql.Literal(split.low)))
        if split.high is not None:
            terms.append(sql.SQL("{} < {}").format(first, sql.Literal(split.high)))
        if split.after is not None:
            if isinstance(split.after[0], int):
                terms.append(sql.SQL("{} >= {}").format(first, sql.Literal(split.after[0])))
            given = sql.SQL(", ").join(map(sql.Literal, split.after))
            terms.append(sql.SQL("ROW({}) > ROW({})").format(sql.SQL(", ").join(keys), given))
        where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(terms) if terms else sql.SQL("")
        query = sql.SQL("COPY (SELECT {} FROM {}{} ORDER BY {}) TO STDOUT")
        table = sql.Identifier(*shape.table)
        return query.format(names, table, where, sql.SQL(", ").join(keys))

    def _ordered(self, shape: TableShape, place: int) -> Any:
        """A part of the key, in a form whose order is that of Python's values."""
        column = shape.columns[place]
        name = self._sql.Identifier(column.name)
        if column.kind in WHOLE:
            return name
        return self._sql.SQL("""(format('%s', {})::text COLLATE "C")""").format(name)


def key_of(texts: Sequence[Any], shape: TableShape) -> Key:
    """The key of a row: integers, and texts whose order is that of their code points."""
    return tuple(
        int(texts[place]) if shape.columns[place].kind in WHOLE else texts[place]
        for place in shape.key
    )


def _view(connection: Any) -> TransactionView:
    # The snapshot is taken before the function runs that returns the end of the WAL.
    text, high = connection.execute(
        "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    ).fetchone()
    xmin, xmax, running = text.split(":")
    return TransactionView(
        int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))), int(high)
    )
