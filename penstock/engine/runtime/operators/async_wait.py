"""AsyncWaitOperator: calls a user's async function for many records at once, with order, timeout and retries.

Calls run away from the mailbox thread (`OperatorContext.async_calls`). Their outcomes come as mails, which set the
operator's timer. Everything is emitted, and every user error raised, when that timer fires, as with all other timers.
Records for which the queue has no room wait in a backlog, and the operator takes no input until the backlog is empty,
so the mailbox is never blocked. The operator heads its chain, because only a head can refuse input. It does not know
threads or an event loop. Source: Flink AsyncWaitOperator, PyFlink's async functions; differs: as described above, and
at the end of the input retries keep their delays (Flink's Java operator makes one last attempt at once, which leaves a
bounded job without retries).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    NO_TIMESTAMP,
    Batch,
    Element,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.operator import MAX_EMIT, AsyncCalls, Emitted, OperatorContext, Outcome
from penstock.engine.runtime.operators.async_retry import AsyncRetryStrategy, NoRetryStrategy
from penstock.engine.runtime.operators.stateless import FunctionOperator, rows_of
from penstock.engine.runtime.records.output_copies import own_copy
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot

ELEMENTS: Final = "elements"
_NO_RECORD: Final = object()
_COMPACT_ABOVE: Final = 1024


@dataclass(slots=True)
class _Record:
    """A record whose call is not done. `attempts` counts from 1; `retry_ms`: when the next attempt is due."""

    value: Any
    stamp: int
    attempts: int = 1
    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AsyncSettings:
    """`timeout_ms`: over all attempts of a record; 0: none. `capacity`: entries that are processed at once."""

    timeout_ms: int
    capacity: int = 100
    is_ordered: bool = True

    def __post_init__(self) -> None:
        if self.timeout_ms < 0 or self.capacity < 1:
            raise ValueError(
                "an async function needs a timeout of 0 ms (none) or more and a capacity of at least 1, got "
                f"{self.timeout_ms} ms and {self.capacity}"
            )


class AsyncWaitOperator(FunctionOperator):
    """`function.call(value)` returns a list of results. After the timeout the owner's `timeout(value)` does, if it
    has that method.
    """

    def __init__(
        self,
        function: UserFunction,
        settings: AsyncSettings,
        retry: AsyncRetryStrategy | None = None,
    ) -> None:
        super().__init__(function)
        self.settings = settings
        self.retry = retry or NoRetryStrategy()
        self._restored: list[Any] = []

    def open(self, context: OperatorContext) -> None:
        if context.services.async_calls is None:
            raise EngineBug("an async operator was opened without async_calls to run its calls")
        self._timers = context.timers
        self._calls: AsyncCalls = context.services.async_calls
        super().open(context)
        self._calls.open(self.function.call, self._on_outcomes, self.settings.capacity)
        self._queue: AsyncQueue = OrderedQueue() if self.settings.is_ordered else UnorderedQueue()
        self._records: dict[int, _Record] = {}
        self._running: set[int] = set()
        # (time, number of the record, whether it is for another attempt)
        self.due: list[tuple[int, int, bool]] = []
        self._outcomes: deque[Outcome] = deque()
        self._failed: dict[int, Exception] = {}
        self._numbers = 0
        self._current: Any = _NO_RECORD
        self._backlog: deque[tuple[Any, int] | Element] = deque(self._restored)
        self._admit()
        if self._restored:
            # An event at the front may leave at once.
            context.timers.schedule(context.timers.now_ms())
        self._restored = []

    # ------------------------------------------------------------------ what comes in

    @property
    def takes_input(self) -> bool:  # type: ignore[override] # a fact, not a choice of the class
        return not self._backlog

    @property
    def is_drained(self) -> bool:  # type: ignore[override]
        return not self._backlog and not len(self._queue)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        stamps = rows.timestamps
        every = [NO_TIMESTAMP] * len(rows.values) if stamps is None else stamps.tolist()
        self._backlog.extend(zip(rows.values, every, strict=True))
        self._admit()
        return ()

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        return self._event(watermark)

    def process_status(self, status: WatermarkStatus, input_index: int) -> Emitted:
        return self._event(status)

    def process_latency_marker(self, marker: LatencyMarker) -> Emitted:
        return self._event(marker)

    def close(self) -> None:
        if self._is_open:
            self._calls.close()
        super().close()

    def failing_record(self) -> str | None:
        return None if self._current is _NO_RECORD else bounded_repr(self._current)

    def snapshot(self) -> OperatorSnapshot:
        """The records whose results have not left, and the events between them. All of them are processed again after a restore."""
        inside = [
            (self._records[entry].value, self._records[entry].stamp)
            if isinstance(entry, int)
            else entry
            for entry in self._queue.entries()
        ]
        kept = [*inside, *self._backlog]
        elements = [one for one in kept if not isinstance(one, LatencyMarker)]
        return OperatorSnapshot(lists={ELEMENTS: ListPart(RedistributionMode.SPLIT, elements)})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = list(snapshot.elements(ELEMENTS))

    def _event(self, event: Element) -> Emitted:
        if self.is_drained:
            return (event,)
        self._backlog.append(event)
        self._admit()
        return self._ready()

    def _admit(self) -> bool:
        """Move entries from the backlog into the queue while there is room, and start their calls together.

        Returns whether an event was added, which may leave without any call.
        """
        has_event = False
        started: list[tuple[int, Any]] = []
        backlog, queue = self._backlog, self._queue
        room = self.settings.capacity - len(queue)
        while backlog and room > 0:
            room -= 1
            entry = backlog.popleft()
            if not isinstance(entry, tuple):
                queue.put_event(entry)
                has_event = True
                continue
            self._numbers += 1
            self._records[self._numbers] = _Record(*entry)
            queue.put(self._numbers)
            started.append((self._numbers, entry[0]))
        if started:
            self._start(started)
            if self.settings.timeout_ms:
                deadline = self._timers.now_ms() + self.settings.timeout_ms
                for number, _ in started:
                    heappush(self.due, (deadline, number, False))
        self._schedule()
        return has_event

    def _start(self, calls: Sequence[tuple[int, Any]]) -> None:
        self._running.update(number for number, _ in calls)
        self._calls.submit(calls)

    # ------------------------------------------------------------------ what became of calls

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Keep outcomes, which come as a mail between two slices. They are handled by the timer, which is set to fire at once."""
        self._outcomes.extend(outcomes)
        self._schedule()

    def on_processing_time(self, now_ms: int) -> Emitted:
        while self._outcomes:
            outcome = self._outcomes.popleft()
            try:
                self._on_outcome(outcome, now_ms)
            except Exception as error:
                self._give_up(outcome.number, error)
        self._on_due(now_ms)
        yield from self._ready()
        while self._admit():
            yield from self._ready()

    def _on_outcome(self, outcome: Outcome, now_ms: int) -> None:
        record = self._records.get(outcome.number)
        if record is None or outcome.number not in self._running:
            # It has timed out in the meantime.
            return
        self._running.discard(outcome.number)
        self._current = record.value
        if self._asks_for_retry(outcome) and self.retry.can_retry(record.attempts):
            record.retry_ms = now_ms + self.retry.get_backoff_time_millis(record.attempts)
            heappush(self.due, (record.retry_ms, outcome.number, True))
        elif outcome.error is not None:
            raise outcome.error
        else:
            self._queue.complete(outcome.number, _checked(outcome.result, "async_invoke"))
        self._current = _NO_RECORD

    def _give_up(self, number: int, error: Exception) -> None:
        """Put a record aside when it leaves the queue: until then a checkpoint has it, and it would be processed again.

        Raises: the error, if the job is to fail.
        """
        if self.poison is None or not self.poison.takes(error):
            raise error
        self._failed[number] = error
        self._queue.complete(number, [])
        self._current = _NO_RECORD

    def _asks_for_retry(self, outcome: Outcome) -> bool:
        predicate = self.retry.get_retry_predicate()
        if outcome.error is not None:
            of_error = predicate.exception_predicate()
            return of_error is not None and bool(of_error(outcome.error))
        of_result = predicate.result_predicate()
        return of_result is not None and bool(of_result(outcome.result))

    def _on_due(self, now_ms: int) -> None:
        """Handle timeouts and attempts whose time has come. Entries of records that are done are ignored."""
        again: list[int] = []
        while self.due and self.due[0][0] <= now_ms:
            due_ms, number, is_retry = heappop(self.due)
            record = self._records.get(number)
            if record is None:
                continue
            if not is_retry and self._is_under_way(number, record):
                try:
                    self._on_timeout(number, record)
                except Exception as error:
                    self._give_up(number, error)
            elif is_retry and record.retry_ms == due_ms:
                again.append(number)
        self._try_again(again)

    def _is_under_way(self, number: int, record: _Record) -> bool:
        """Whether the record is not done, so that its timeout counts."""
        return number in self._running or record.retry_ms is not None

    def _on_timeout(self, number: int, record: _Record) -> None:
        # Between two attempts there is no call to cancel.
        if number in self._running:
            self._running.discard(number)
            self._calls.cancel(number)
        record.retry_ms = None
        self._current = record.value
        timeout = self.function.method("timeout")
        if timeout is None:
            raise TimeoutError(
                f"the async function gave no result within {self.settings.timeout_ms} ms; define timeout(value) "
                "to give other results instead"
            )
        self._queue.complete(
            number, list(map(own_copy, _checked(timeout(record.value), "timeout")))
        )
        self._current = _NO_RECORD

    def _try_again(self, numbers: Sequence[int]) -> None:
        calls = []
        for number in numbers:
            record = self._records[number]
            if record.retry_ms is not None:
                record.attempts += 1
                record.retry_ms = None
                calls.append((number, record.value))
        if calls:
            self._start(calls)

    # ------------------------------------------------------------------ what goes out

    def _ready(self) -> Iterator[Element]:
        """Results in batches of about MAX_EMIT, cut at each event."""
        values: list[Any] = []
        stamps: list[int] = []
        for ready in self._queue.take():
            if not isinstance(ready, tuple):
                yield from _batch(values, stamps)
                values, stamps = [], []
                yield ready
                continue
            self._collect(ready, values, stamps)
            if len(values) >= MAX_EMIT:
                yield from _batch(values, stamps)
                values, stamps = [], []
        yield from _batch(values, stamps)

    def _collect(self, ready: tuple[int, list[Any]], values: list[Any], stamps: list[int]) -> None:
        number, results = ready
        record = self._records.pop(number)
        error = self._failed.pop(number, None)
        if error is not None:
            self.put_aside(error, record.value, record.stamp)
        values += results
        stamps += [record.stamp] * len(results)

    def _schedule(self) -> None:
        """Set the only timer: at once for outcomes, else to the next timeout or attempt."""
        self._forget_due()
        if self._outcomes:
            self._timers.schedule(self._timers.now_ms())
        elif self.due:
            self._timers.schedule(self.due[0][0])

    def _forget_due(self) -> None:
        """Remove timeouts of records that are done. When calls are fast and the timeout is long, these are most entries."""
        due, records = self.due, self._records
        if len(due) > _COMPACT_ABOVE and len(due) > 2 * len(records):
            due = self.due = [entry for entry in due if entry[1] in records]
            heapify(due)
        while due and due[0][1] not in records:
            heappop(due)


def _batch(values: list[Any], stamps: list[int]) -> Iterator[RowBatch]:
    if values:
        array = np.array(stamps, np.int64)
        yield RowBatch(values, None if bool((array == NO_TIMESTAMP).all()) else array)


def _checked(given: Any, method: str) -> list[Any]:
    if isinstance(given, list):
        return given
    raise TypeError(
        f"{method} returned {bounded_repr(given)} ({type(given).__name__}): expected a list of results, also for "
        "one ([result]) and for none ([])"
    )


Ready: TypeAlias = "tuple[int, list[Any]] | Element"
"""(number of the record, its results), or an event."""


class AsyncQueue(ABC):
    """The base of both queues. `len`: number of entries, which the operator limits."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def put(self, number: int) -> None:
        """Add a record whose call begins."""

    @abstractmethod
    def put_event(self, event: Element) -> None:
        """Add an event. It leaves after all results of records before it, and before those of records after it."""

    @abstractmethod
    def complete(self, number: int, results: list[Any]) -> None:
        """The record is done."""

    @abstractmethod
    def take(self) -> Iterator[Ready]:
        """Remove and yield what may leave now."""

    @abstractmethod
    def entries(self) -> list[int | Element]:
        """The numbers and events in the queue, in the order in which they came."""


class OrderedQueue(AsyncQueue):
    """Results leave in the order of their records."""

    def __init__(self) -> None:
        self._entries: deque[int | Element] = deque()
        self._done: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, number: int) -> None:
        self._entries.append(number)

    def put_event(self, event: Element) -> None:
        entries = self._entries
        if entries and isinstance(event, Watermark) and isinstance(entries[-1], Watermark):
            entries.pop()
        entries.append(event)

    def complete(self, number: int, results: list[Any]) -> None:
        self._done[number] = results

    def take(self) -> Iterator[Ready]:
        entries = self._entries
        while entries:
            head = entries[0]
            if not isinstance(head, int):
                yield entries.popleft()  # type: ignore[misc] # it is the event in `head`
            elif head in self._done:
                entries.popleft()
                yield head, self._done.pop(head)
            else:
                return

    def entries(self) -> list[int | Element]:
        return list(self._entries)


@dataclass(slots=True)
class _Segment:
    """Records between two events. They leave in the order in which they are done."""

    waiting: set[int] = field(default_factory=set)
    done: deque[tuple[int, list[Any]]] = field(default_factory=deque)
    event: Element | None = None

    def __len__(self) -> int:
        return len(self.waiting) + len(self.done) + (self.event is not None)


class UnorderedQueue(AsyncQueue):
    """Results leave as they come, but never past an event."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque([_Segment()])
        self._segment_of: dict[int, _Segment] = {}

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def put(self, number: int) -> None:
        if self._segments[-1].event is not None:
            self._segments.append(_Segment())
        segment = self._segments[-1]
        segment.waiting.add(number)
        self._segment_of[number] = segment

    def put_event(self, event: Element) -> None:
        last = self._segments[-1]
        if last.event is not None and not (
            isinstance(event, Watermark) and isinstance(last.event, Watermark)
        ):
            last = _Segment()
            self._segments.append(last)
        last.event = event

    def complete(self, number: int, results: list[Any]) -> None:
        segment = self._segment_of.pop(number)
        segment.waiting.remove(number)
        segment.done.append((number, results))

    def take(self) -> Iterator[Ready]:
        while True:
            first = self._segments[0]
            while first.done:
                yield first.done.popleft()
            if first.waiting or first.event is None:
                return
            event, first.event = first.event, None
            if len(self._segments) > 1:
                self._segments.popleft()
            yield event

    def entries(self) -> list[int | Element]:
        found: list[int | Element] = []
        for segment in self._segments:
            found += sorted((*segment.waiting, *(number for number, _ in segment.done)))
            if segment.event is not None:
                found.append(segment.event)
        return found
