"""Queues of the timers of one time domain, by time: their contract, and the one in memory. `rocks.timers` has the one on disk.

Each (timestamp, key, namespace) exists once. They do not know a clock and fire nothing. Source: Flink KeyGroupedInternalPriorityQueue,
HeapPriorityQueueSet; differs: one heap with a set next to it instead of a queue per key group; deleted timers stay in the heap
until they come up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.state.snapshot import KeyedPart, StateInfo

TIMERS: Final = StateInfo("Timers")
"""The info of a queue in a snapshot. Its columns are timestamps and namespaces."""

_COMPACT_ABOVE: Final = 1024


class TimerQueue(ABC):
    """Timers of one time domain."""

    @abstractmethod
    def add(self, timestamp: int, skey: Any, namespace: Any) -> None:
        """Add a timer; no effect if it exists already."""

    @abstractmethod
    def remove(self, timestamp: int, skey: Any, namespace: Any) -> None:
        """Delete a timer; no effect if it does not exist."""

    @abstractmethod
    def head(self) -> int | None:
        """The timestamp of the earliest timer."""

    @abstractmethod
    def pop_due(self, until: int) -> tuple[int, Any, Any] | None:
        """Remove and return the earliest timer at or before `until`: (timestamp, state key, namespace)."""

    @abstractmethod
    def entries(self) -> list[tuple[int, Any, Any]]:
        """(timestamp, key, namespace) of all timers, by time."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all timers."""

    @property
    def count(self) -> int | None:
        """How many timers there are; None: counting them would take long. Any thread."""
        return None


class HeapTimerQueue(TimerQueue):
    """Entries are (timestamp, number, state key, namespace). Timers of equal time are in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any, Any]] = []
        self._live: dict[tuple[int, Any, Any], int] = {}
        self._number = 0

    def add(self, timestamp: int, skey: Any, namespace: Any) -> None:
        triple = (timestamp, skey, namespace)
        if triple not in self._live:
            self._number += 1
            self._live[triple] = self._number
            heappush(self._heap, (timestamp, self._number, skey, namespace))

    def remove(self, timestamp: int, skey: Any, namespace: Any) -> None:
        if self._live.pop((timestamp, skey, namespace), None) is None:
            return
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * len(self._live):
            live = self._live
            self._heap = [entry for entry in self._heap if live.get(_triple(entry)) == entry[1]]
            heapify(self._heap)

    def head(self) -> int | None:
        heap, live = self._heap, self._live
        while heap:
            if live.get(_triple(heap[0])) == heap[0][1]:
                return heap[0][0]
            heappop(heap)
        return None

    def pop_due(self, until: int) -> tuple[int, Any, Any] | None:
        head = self.head()
        if head is None or head > until:
            return None
        timestamp, _, skey, namespace = heappop(self._heap)
        del self._live[timestamp, skey, namespace]
        return timestamp, skey, namespace

    def entries(self) -> list[tuple[int, Any, Any]]:
        by_time = sorted(self._live, key=itemgetter(0))
        return [(stamp, original_key(skey), namespace) for stamp, skey, namespace in by_time]

    @property
    def count(self) -> int:
        return len(self._live)

    def clear(self) -> None:
        self._heap.clear()
        self._live.clear()

    def part(self, max_parallelism: int, *, is_int32: bool) -> KeyedPart:
        """The part for a snapshot, in the order in which the timers were set."""
        columns: list[list[Any]] = [list(column) for column in zip(*self._live, strict=True)]
        stamps, skeys, namespaces = columns or ([], [], [])
        return KeyedPart(TIMERS, max_parallelism, is_int32, skeys, [stamps, namespaces])

    def put_back(self, part: KeyedPart) -> None:
        """Add restored timers."""
        for skey, timestamp, namespace in part.rows():
            self.add(timestamp, skey, namespace)


def _triple(entry: tuple[int, int, Any, Any]) -> tuple[int, Any, Any]:
    return entry[0], entry[2], entry[3]
