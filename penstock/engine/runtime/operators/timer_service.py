"""InternalTimerService: event-time and processing-time timers per key and namespace.

It fires timers in the order of time. It does not know a clock: the physical timer is a port. The state backend stores the timers
(`timer_queues`). Source: Flink InternalTimerServiceImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK
from penstock.engine.runtime.operator import ProcessingTimers
from penstock.engine.runtime.state.timer_queues import HeapTimerQueue, TimerQueue


class TimeDomain(Enum):
    """The clock that a timer follows: event time or processing time."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class InternalTimerService:
    """Both timer queues of one operator. The caller sets the key context and calls user code itself.

    `due_event` and `due_processing` are generators. A timer that is registered while another fires, and is due, fires
    in the same pass.
    """

    def __init__(
        self,
        physical: ProcessingTimers,
        queue_of: Callable[[str], TimerQueue] = lambda _name: HeapTimerQueue(),
    ) -> None:
        """`queue_of`: the queue of this name, with its restored timers. Overdue processing-time timers fire at once."""
        self.event = queue_of("timers/event")
        self.processing = queue_of("timers/processing")
        self.current_watermark = MIN_WATERMARK
        self.fired = 0
        """How many timers have fired."""
        self._physical = physical
        self._scheduled: int | None = None
        self._is_quiesced = False
        self._schedule_head()

    def now_ms(self) -> int:
        return self._physical.now_ms()

    def register_event(self, timestamp: int, skey: Any, namespace: Any) -> None:
        self.event.add(int(timestamp), skey, namespace)

    def delete_event(self, timestamp: int, skey: Any, namespace: Any) -> None:
        self.event.remove(int(timestamp), skey, namespace)

    def register_processing(self, timestamp: int, skey: Any, namespace: Any) -> None:
        """Add a timer, and set the physical timer again if this one is the earliest."""
        timestamp = int(timestamp)
        if self._is_quiesced:
            return
        self.processing.add(timestamp, skey, namespace)
        if self._scheduled is None or timestamp < self._scheduled:
            self._schedule(timestamp)

    def delete_processing(self, timestamp: int, skey: Any, namespace: Any) -> None:
        self.processing.remove(int(timestamp), skey, namespace)

    def due_event(self, watermark: int) -> Iterator[tuple[int, Any, Any]]:
        """Advance the watermark, then yield due timers one by one."""
        self.current_watermark = watermark
        pop = self.event.pop_due
        while (timer := pop(watermark)) is not None:
            self.fired += 1
            yield timer

    def due_processing(self, now_ms: int) -> Iterator[tuple[int, Any, Any]]:
        """Yield timers whose time has fully passed, one by one, then set the physical timer for the next one."""
        self._scheduled = None
        pop = self.processing.pop_due
        while (timer := pop(now_ms - 1)) is not None:
            self.fired += 1
            yield timer
        if not self._is_quiesced:
            self._schedule_head()

    def quiesce(self) -> None:
        """End of input: drop pending processing-time timers, and ignore later ones."""
        self._is_quiesced = True
        self.processing.clear()
        self._physical.cancel()

    def _schedule_head(self) -> None:
        head = self.processing.head()
        if head is not None:
            self._schedule(head)

    def _schedule(self, timestamp: int) -> None:
        if self._scheduled is not None:
            self._physical.cancel()
        self._scheduled = timestamp
        # A timer for T fires once T has fully passed: one millisecond later, unless it is overdue.
        self._physical.schedule(physical_due_ms(timestamp, self._physical.now_ms()))


class BatchTimerService(InternalTimerService):
    """The timers of one key in runtime mode BATCH. All fire when the key ends, those of event time first. A timer that is set by a firing
    timer is dropped. Until the key ends, time stands still. Source: Flink BatchExecutionInternalTimeService.
    """

    def due_of_key(self) -> Iterator[tuple[TimeDomain, tuple[int, Any, Any]]]:
        """Yield all timers of the key that ends."""
        for timer in self.due_event(MAX_WATERMARK):
            yield TimeDomain.EVENT_TIME, timer
        for timer in self.due_processing(MAX_WATERMARK):
            yield TimeDomain.PROCESSING_TIME, timer

    def begin_key(self) -> None:
        """Drop what the former key has left."""
        self.current_watermark = MIN_WATERMARK
        if self.event.head() is not None:
            self.event.clear()
        if self.processing.head() is not None:
            self.processing.clear()

    def due_processing(self, now_ms: int) -> Iterator[tuple[int, Any, Any]]:
        while (timer := self.processing.pop_due(now_ms)) is not None:
            self.fired += 1
            yield timer

    def register_event(self, timestamp: int, skey: Any, namespace: Any) -> None:
        if self.current_watermark != MAX_WATERMARK:
            super().register_event(timestamp, skey, namespace)

    def register_processing(self, timestamp: int, skey: Any, namespace: Any) -> None:
        if self.current_watermark != MAX_WATERMARK:
            self.processing.add(int(timestamp), skey, namespace)


def physical_due_ms(timestamp: int, now_ms: int) -> int:
    """When the physical timer fires for a timer at T (`timestamp`): at T + 1, or now if T is in the past."""
    return timestamp + 1 if timestamp >= now_ms else now_ms
