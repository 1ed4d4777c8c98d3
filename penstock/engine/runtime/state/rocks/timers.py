"""Timers on a column family of RocksDB: rows by key group and time. The first few timers of each key group are also in memory.

So the memory for timers does not grow with their number. Timers of equal time are in the order of key groups and keys.
Source: Flink RocksDBCachingPriorityQueueSet, KeyGroupPartitionedPriorityQueue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final

from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.state.rocks.database import RocksStore, groups_in, rows_with
from penstock.engine.runtime.state.rocks.encoding import (
    GROUP,
    group_start,
    group_time_row,
    group_time_row_parts,
    key_suffix,
    time_of,
)
from penstock.engine.runtime.state.timer_queues import TIMERS, TimerQueue

_CACHED: Final = 128
"""The most timers of a key group that are in memory, as in Flink."""
_HEADS_MIN: Final = 64


class RocksTimerQueue(TimerQueue):
    """The timers of one operator. The column family is created with the first timer."""

    def __init__(self, backend: RocksStore, name: str) -> None:
        self._backend = backend
        self._name = name
        self._family: Any = None
        self._firsts: dict[int, _First] = {}
        self._heads: list[tuple[bytes, int]] = []
        if backend.has_state(name):
            self._open()
            for group in list(groups_in(self._family)):
                first = self._firsts[group] = _First(self._family, group)
                first.refill(group_start(group))
                self._push(group)

    def add(self, timestamp: int, skey: Any, namespace: Any) -> None:
        if self._family is None:
            self._open()
        group = self._backend.group_of_state_key(skey)
        row = group_time_row(group, timestamp, skey, namespace)
        first = self._firsts.get(group)
        if first is None:
            first = self._firsts[group] = _First(self._family, group)
        # An equal key that came earlier stays.
        suffix = key_suffix(skey, self._backend.dumps)
        if not suffix or self._family.get(row) is None:
            self._family.put(row, suffix)
        if first.insert(row):
            self._push(group)

    def remove(self, timestamp: int, skey: Any, namespace: Any) -> None:
        group = self._backend.group_of_state_key(skey)
        if group in self._firsts:
            self._drop(group, group_time_row(group, timestamp, skey, namespace))

    def head(self) -> int | None:
        row = self._first_row()
        return None if row is None else time_of(row)

    def pop_due(self, until: int) -> tuple[int, Any, Any] | None:
        row = self._first_row()
        if row is None or time_of(row) > until:
            return None
        due = group_time_row_parts(row, self._family.get(row), self._backend.loads)
        self._drop(GROUP.unpack_from(row)[0], row)
        return due

    def entries(self) -> list[tuple[int, Any, Any]]:
        found = [
            group_time_row_parts(row, data, self._backend.loads)
            for group in self._firsts
            for row, data in rows_with(self._family, group_start(group))
        ]
        triples = [(stamp, original_key(key), namespace) for stamp, key, namespace in found]
        return sorted(triples, key=lambda entry: entry[0])

    def clear(self) -> None:
        for group in self._firsts:
            self._family.delete_range(group_start(group), group_start(group + 1))
        self._firsts.clear()
        self._heads.clear()

    def _open(self) -> None:
        self._family = self._backend.family_of(self._name, TIMERS)

    def _drop(self, group: int, row: bytes) -> None:
        self._family.delete(row)
        first = self._firsts[group]
        if first.remove(row) and first.rows:
            self._push(group)

    def _push(self, group: int) -> None:
        """The key group has another first timer: add it to the heads. Outdated heads are dropped when they come up."""
        heappush(self._heads, (self._firsts[group].rows[0][GROUP.size :], group))
        if len(self._heads) > _HEADS_MIN + 4 * len(self._firsts):
            self._heads = [
                (first.rows[0][GROUP.size :], at)
                for at, first in self._firsts.items()
                if first.rows
            ]
            heapify(self._heads)

    def _first_row(self) -> bytes | None:
        heads = self._heads
        while heads:
            row, group = heads[0]
            first = self._firsts.get(group)
            if first is not None and first.rows and first.rows[0][GROUP.size :] == row:
                return first.rows[0]
            heappop(heads)
        return None


class _First:
    """The earliest timers of a key group, in order. All others are later. Empty only if the key group has no timers."""

    __slots__ = ("_family", "_group", "_has_others", "rows")

    def __init__(self, family: Any, group: int) -> None:
        """Begins for a key group without timers."""
        self._family = family
        self._group = group
        self._has_others = False
        self.rows: list[bytes] = []

    def insert(self, row: bytes) -> bool:
        """Insert a timer. Returns whether it is now the first one."""
        rows = self.rows
        if self._has_others and row > rows[-1]:
            return False
        place = bisect_left(rows, row)
        if place < len(rows) and rows[place] == row:
            return False
        rows.insert(place, row)
        if len(rows) > _CACHED:
            rows.pop()
            self._has_others = True
        return place == 0

    def remove(self, row: bytes) -> bool:
        """Remove a deleted timer. Returns whether it was the first one."""
        rows = self.rows
        place = bisect_left(rows, row)
        if place == len(rows) or rows[place] != row:
            return False
        del rows[place]
        if not rows and self._has_others:
            self.refill(row)
        return place == 0

    def refill(self, begin: bytes) -> None:
        """Read the first timers again. `begin`: no timer lies before this key, so deleted rows before it need not be skipped."""
        rows = _rows_from(self._family, begin, self._group)
        self.rows = list(islice(rows, _CACHED))
        self._has_others = next(rows, None) is not None


def _rows_from(family: Any, begin: bytes, group: int) -> Iterator[bytes]:
    found = family.iter()
    found.seek(begin)
    while found.valid() and GROUP.unpack_from(row := found.key())[0] == group:
        yield row
        found.next()
