"""InternalTimerService: event-time and processing-time timers per key and namespace.

Set semantics on (timestamp, key, namespace); fired by time, ties in registration order. Knows no clock:
the physical timer is a port. Source: Flink InternalTimerServiceImpl; differs: one heap with a set beside
it instead of a queue per key group; deleted timers stay in the heap until they come up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

from penstock.runtime.checkpoint.snapshot import KeyedPart, StateInfo
from penstock.runtime.elements import MIN_WATERMARK
from penstock.runtime.keys.hashing import original_key
from penstock.runtime.operator import ProcessingTimers

VOID_NAMESPACE: Final = None
TIMERS: Final = StateInfo("Timers")
_COMPACT_ABOVE: Final = 1024


class TimeDomain(Enum):
    """Which clock a timer follows."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerQueue:
    """Timers of one time domain. An entry: (timestamp, number, state key, namespace)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any, Any]] = []
        self._live: dict[tuple[int, Any, Any], int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def add(self, timestamp: int, skey: Any, namespace: Any) -> bool:
        """False when this timer is there already."""
        triple = (timestamp, skey, namespace)
        if triple in self._live:
            return False
        self._count += 1
        self._live[triple] = self._count
        heappush(self._heap, (timestamp, self._count, skey, namespace))
        return True

    def remove(self, timestamp: int, skey: Any, namespace: Any) -> bool:
        """False when there is no such timer."""
        if self._live.pop((timestamp, skey, namespace), None) is None:
            return False
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * len(self._live):
            live = self._live
            self._heap = [entry for entry in self._heap if live.get(_triple(entry)) == entry[1]]
            heapify(self._heap)
        return True

    def head(self) -> int | None:
        """Timestamp of the earliest timer."""
        heap, live = self._heap, self._live
        while heap:
            if live.get(_triple(heap[0])) == heap[0][1]:
                return heap[0][0]
            heappop(heap)
        return None

    def pop_due(self, until: int) -> tuple[int, Any, Any] | None:
        """Remove and return the earliest timer at or before `until`: (timestamp, state key, namespace)."""
        head = self.head()
        if head is None or head > until:
            return None
        timestamp, _, skey, namespace = heappop(self._heap)
        del self._live[timestamp, skey, namespace]
        return timestamp, skey, namespace

    def entries(self) -> list[tuple[int, Any, Any]]:
        """(timestamp, key, namespace) of all, by time; at one time in the order in which they were set."""
        by_time = sorted(self._live, key=itemgetter(0))
        return [
            (timestamp, original_key(skey), namespace) for timestamp, skey, namespace in by_time
        ]

    def triples(self) -> list[tuple[int, Any, Any]]:
        """(timestamp, state key, namespace) of all, in the order in which they were set."""
        return list(self._live)

    def clear(self) -> None:
        self._heap.clear()
        self._live.clear()


def _triple(entry: tuple[int, int, Any, Any]) -> tuple[int, Any, Any]:
    return entry[0], entry[2], entry[3]


class InternalTimerService:
    """Both queues of one operator. The caller sets the key context and calls user code itself.

    `due_event` and `due_processing` are generators: a timer registered while one fires, and due, fires
    in the same pass.
    """

    def __init__(self, physical: ProcessingTimers) -> None:
        self.event = TimerQueue()
        self.processing = TimerQueue()
        self.current_watermark = MIN_WATERMARK
        self._physical = physical
        self._scheduled: int | None = None
        self._is_quiesced = False

    def now_ms(self) -> int:
        return self._physical.now_ms()

    def register_event(self, timestamp: int, skey: Any, namespace: Any) -> None:
        self.event.add(int(timestamp), skey, namespace)

    def delete_event(self, timestamp: int, skey: Any, namespace: Any) -> None:
        self.event.remove(int(timestamp), skey, namespace)

    def register_processing(self, timestamp: int, skey: Any, namespace: Any) -> None:
        """Sets the physical timer anew when this one comes first."""
        timestamp = int(timestamp)
        if self._is_quiesced:
            return
        if self.processing.add(timestamp, skey, namespace) and (
            self._scheduled is None or timestamp < self._scheduled
        ):
            self._schedule(timestamp)

    def delete_processing(self, timestamp: int, skey: Any, namespace: Any) -> None:
        self.processing.remove(int(timestamp), skey, namespace)

    def due_event(self, watermark: int) -> Iterator[tuple[int, Any, Any]]:
        """Advance the watermark, then give due timers one by one."""
        self.current_watermark = watermark
        pop = self.event.pop_due
        while (timer := pop(watermark)) is not None:
            yield timer

    def due_processing(self, now_ms: int) -> Iterator[tuple[int, Any, Any]]:
        """Timers whose time has fully passed, one by one; then the physical timer is set for the next."""
        self._scheduled = None
        pop = self.processing.pop_due
        while (timer := pop(now_ms - 1)) is not None:
            yield timer
        head = self.processing.head()
        if head is not None and not self._is_quiesced:
            self._schedule(head)

    def quiesce(self) -> None:
        """End of input: pending processing timers are dropped, later ones ignored."""
        self._is_quiesced = True
        self.processing.clear()
        self._physical.cancel()

    def snapshot(self, max_parallelism: int, *, is_int32: bool) -> dict[str, KeyedPart]:
        """Timers by domain: columns are timestamps and namespaces."""
        kept = {}
        for domain, queue in (("event", self.event), ("processing", self.processing)):
            columns: list[list[Any]] = [list(c) for c in zip(*queue.triples(), strict=True)]
            stamps, skeys, namespaces = columns or ([], [], [])
            kept[domain] = KeyedPart(TIMERS, max_parallelism, is_int32, skeys, [stamps, namespaces])
        return kept

    def restore(self, state: Mapping[str, KeyedPart]) -> None:
        """What `snapshot` gave; overdue processing timers fire at once."""
        for domain, queue in (("event", self.event), ("processing", self.processing)):
            if domain in state:
                for skey, timestamp, namespace in state[domain].rows():
                    queue.add(timestamp, skey, namespace)
        head = self.processing.head()
        if head is not None:
            self._schedule(head)

    def _schedule(self, timestamp: int) -> None:
        if self._scheduled is not None:
            self._physical.cancel()
        self._scheduled = timestamp
        # A timer for T fires once T has fully passed: one millisecond later, unless it is overdue.
        self._physical.schedule(physical_due_ms(timestamp, self._physical.now_ms()))


def physical_due_ms(timestamp: int, now_ms: int) -> int:
    """When the physical timer of a timer for `timestamp` rings: T + 1, or now for one in the past."""
    return timestamp + 1 if timestamp >= now_ms else now_ms
