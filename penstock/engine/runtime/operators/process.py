"""Process functions: context, timers, side outputs. They reach state backends only through KeyedOperator.

Source: Flink ProcessOperator, KeyedProcessOperator, PyFlink's process functions; differs: results are
pulled from the user's generator until a batch is full. A surprising behaviour of PyFlink is kept: tagged tuples stay
in the main output unless some side output is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from inspect import isgeneratorfunction
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from penstock.engine.model.errors import FinalError
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    MIN_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    Int64s,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.keys.hashing import NO_KEY_OF_BROADCAST, original_key
from penstock.engine.runtime.operator import MAX_EMIT, Emitted, OperatorContext
from penstock.engine.runtime.operators.collectors import Collector, pull
from penstock.engine.runtime.operators.keyed import KEY_ENDS, KeyedOperator
from penstock.engine.runtime.operators.stateless import (
    RECORDS_AT_ONCE,
    FunctionOperator,
    expand,
    rows_of,
)
from penstock.engine.runtime.operators.timer_service import InternalTimerService, TimeDomain
from penstock.engine.runtime.records.dead_letters import FiredTimer
from penstock.engine.runtime.records.output_copies import ONE_RECORD, opened
from penstock.engine.runtime.records.side_output import separated


class TimerService(ABC):
    """Gives user functions the current times, and sets timers of the current key.

    All times are epoch ms. Source: PyFlink TimerService.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in epoch ms."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark in epoch ms; -2^63 before the first one."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Set a timer that fires when processing time reaches `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Set a timer that fires when the watermark reaches `timestamp`."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer; no effect if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer; no effect if there is none."""


class KeyedTimerService(TimerService):
    """Timers of the current key."""

    def __init__(self, operator: KeyedOperator) -> None:
        self._timers = operator.timers
        self._state = operator.state

    def current_processing_time(self) -> int:
        return self._timers.now_ms()

    def current_watermark(self) -> int:
        return self._timers.current_watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register_processing(timestamp, self._skey(), self._state.namespace)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event(timestamp, self._skey(), self._state.namespace)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing(timestamp, self._skey(), self._state.namespace)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event(timestamp, self._skey(), self._state.namespace)

    def _skey(self) -> Any:
        """The current state key. Raises: NoKeySet, also where a timer would be dropped."""
        skey = self._state.skey
        hash(skey)
        return skey


class UnkeyedTimerService(TimerService):
    """Gives the times. Timers need a key."""

    def __init__(self, operator: ProcessOperator, now_ms: Callable[[], int]) -> None:
        self._operator = operator
        self._now_ms = now_ms

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return self._operator.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise FinalError(
            "Setting timers is only supported on a keyed stream, and that of "
            f"{self._operator.function.name} has no keys. Call key_by before process."
        )


class _Stamped(Protocol):
    stamp: int


class NoCurrentKey(FinalError, AttributeError):
    """`ctx.get_current_key()` is called where no record has a key."""


class ProcessContext:
    """`ctx` of process functions: timestamp, timers, and on keyed streams the key."""

    without_key = "the stream has no keys. Call key_by before process"
    """Why there is no current key, and what to do."""

    def __init__(self, operator: _Stamped, timer_service: TimerService) -> None:
        self._operator = operator
        self._timer_service = timer_service
        self._time_domain: TimeDomain | None = None

    def timestamp(self) -> int:
        """The timestamp of the record or timer; -2^63 when it has none."""
        return self._operator.stamp

    def timer_service(self) -> TimerService:
        return self._timer_service

    # A type checker would otherwise accept any name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name == "get_current_key":
                raise NoCurrentKey(f"ctx.get_current_key() gives nothing here: {self.without_key}.")
            text = f"the context of a process function has no {name!r}"
            # As in Flink's Java API.
            if name in {"output", "collect"}:
                text += (
                    ". Results are yielded: `yield value`, and `yield tag, value` for a side output"
                )
            raise AttributeError(text)


class KeyedProcessContext(ProcessContext):
    """The `ctx` of keyed process functions; in `on_timer` it also gives the time domain."""

    def __init__(self, operator: KeyedOperator) -> None:
        super().__init__(operator, KeyedTimerService(operator))
        self._state = operator.state

    def get_current_key(self) -> Any:
        """Return the key of the record or timer. Raises: NoKeySet: none is processed."""
        key = self._state.key
        if key is None:
            hash(self._state.skey)
        return key

    def time_domain(self) -> TimeDomain | None:
        return self._time_domain

    def set_time_domain(self, domain: TimeDomain | None) -> None:
        self._time_domain = domain


def _expanded(
    operator: FunctionOperator,
    results: Iterator[Any],
    stamps: Int64s | list[int] | None,
    *,
    is_generator: bool = False,
) -> Iterator[RowBatch]:
    """As `expand`: the results of a process function, which may return None, but no single record."""
    return expand(
        operator, results, stamps, takes_none=True, is_generator=is_generator, refused=ONE_RECORD
    )


class ProcessOperator(FunctionOperator):
    """`process_element(value, ctx)`. `side_tags`: ids of the tags that are read."""

    records_at_once = RECORDS_AT_ONCE

    def __init__(self, function: UserFunction, side_tags: tuple[str, ...] = ()) -> None:
        super().__init__(function)
        self.side_tags = side_tags
        self.stamp = NO_TIMESTAMP
        self.watermark = MIN_WATERMARK

    def open(self, context: OperatorContext) -> None:
        self._context = ProcessContext(self, UnkeyedTimerService(self, context.timers.now_ms))
        super().open(context)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return self.processed(rows_of(batch), self.function.call)

    def processed(self, rows: RowBatch, call: Callable[..., Any]) -> Emitted:
        """The results of `call(value, ctx)` for the records."""
        position = self.watched(rows.values, rows.timestamps)
        entering = position if rows.timestamps is None else self._entering(position, rows)
        results = map(call, entering, repeat(self._context))
        emitted = _expanded(self, results, rows.timestamps, is_generator=isgeneratorfunction(call))
        return separated(emitted, self.side_tags)

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        self.watermark = watermark.timestamp_ms
        return (watermark,)

    def _entering(self, position: Iterator[Any], rows: RowBatch) -> Iterator[Any]:
        assert rows.timestamps is not None
        for value, stamp in zip(position, rows.timestamps.tolist(), strict=False):
            self.stamp = stamp
            yield value
        self.stamp = NO_TIMESTAMP


class KeyedProcessOperator(KeyedOperator):
    """`process_element(value, ctx)` and `on_timer(timestamp, ctx)` with state and timers."""

    may_get_fields = True
    records_at_once = RECORDS_AT_ONCE
    _firing: tuple[tuple[int, Any, Any], TimeDomain] | None = None
    """The timer whose function's error would be met now."""

    def __init__(
        self,
        function: UserFunction,
        keys: KeySelection,
        side_tags: tuple[str, ...] = (),
    ) -> None:
        super().__init__(function, keys)
        self.side_tags = side_tags
        self._context: KeyedProcessContext

    def open_function(self, context: OperatorContext) -> None:
        runtime_context = self.runtime_context(context)
        self.ends_keys = self.function.does("on_timer")
        self._context = KeyedProcessContext(self)
        self._is_open = True
        self.function.open(runtime_context)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return self.processed(rows_of(batch), self.function.call)

    def processed(self, rows: RowBatch, call: Callable[..., Any]) -> Emitted:
        """The results of `call(value, ctx)` for the records, each in the context of its key. In BATCH also the
        results of the keys' timers.
        """
        context = self._context
        context.set_time_domain(None)
        if self.key_timers is not None and self.ends_keys:
            return separated(self._key_by_key_processed(rows, call), self.side_tags)
        results = map(call, self.entering(rows), repeat(context))
        emitted = _expanded(self, results, rows.timestamps, is_generator=isgeneratorfunction(call))
        return separated(emitted, self.side_tags)

    def _key_by_key_processed(self, rows: RowBatch, call: Callable[..., Any]) -> Iterator[RowBatch]:
        stamps: list[int] = []
        results = self._with_timers(rows, call, stamps)
        for batch in _expanded(self, results, stamps):
            assert batch.timestamps is not None, (
                "the results of timers and of records have timestamps here"
            )
            is_timed = int(batch.timestamps.max()) != NO_TIMESTAMP
            yield batch if is_timed else RowBatch(batch.values)

    def _with_timers(
        self, rows: RowBatch, call: Callable[..., Any], stamps: list[int]
    ) -> Iterator[Any]:
        """The results of the records, and after the last record of each key the results of its timers. `stamps`
        gets the timestamp of each.
        """
        context = self._context
        for value in self.entering(rows):
            if value is KEY_ENDS:
                yield from self._timers_of_key(stamps)
                context.set_time_domain(None)
                continue
            stamps.append(self.stamp)
            result = None
            try:
                result = call(value, context)
            except Exception as error:
                self.put_current_aside(error)
            yield result

    def _timers_of_key(self, stamps: list[int]) -> Iterator[Any]:
        assert self.key_timers is not None
        for domain, timer in self.key_timers.due_of_key():
            stamps.append(timer[0])
            self._context.set_time_domain(domain)
            self._firing = timer, domain
            result = None
            try:
                result = self._on_timer(timer)
            except BaseException as error:
                self.put_current_aside(error)
            # What it returned is read while the timer is still the current record.
            yield result
            self._firing = None

    def put_current_aside(self, error: BaseException) -> int:
        """As of any function operator; while a timer fires, the timer is the record."""
        if self._firing is None:
            return super().put_current_aside(error)
        (timestamp, skey, _), domain = self._firing
        is_event_time = domain is TimeDomain.EVENT_TIME
        timer = FiredTimer(original_key(skey), timestamp, domain.name)
        self.put_aside(error, timer, timestamp if is_event_time else None)
        return self.current_index

    def processed_without_key(
        self, rows: RowBatch, call: Callable[..., Any], context: ProcessContext
    ) -> Emitted:
        """The results of `call(value, context)` for records that belong to no key."""
        stamps = rows.timestamps

        def entering() -> Iterator[Any]:
            self.state.leave_key(NO_KEY_OF_BROADCAST)
            every = [NO_TIMESTAMP] * len(rows.values) if stamps is None else stamps.tolist()
            for value, stamp in zip(self.watched(rows.values, stamps), every, strict=False):
                self.stamp = stamp
                yield value
            self.state.leave_key()

        emitted = _expanded(self, map(call, entering(), repeat(context)), stamps)
        return separated(emitted, self.side_tags)

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        due = self.timers.due_event(watermark.timestamp_ms)
        yield from self._fired(due, TimeDomain.EVENT_TIME)
        if self.key_timers is not None:
            yield from self.on_processing_time(watermark.timestamp_ms)
        yield watermark

    def on_processing_time(self, now_ms: int) -> Emitted:
        return self._fired(self.timers.due_processing(now_ms), TimeDomain.PROCESSING_TIME)

    def finish(self) -> Emitted:
        """Timers that were set for the past still fire; those of the future are dropped."""
        yield from self.on_processing_time(self.timers.now_ms())
        self.timers.quiesce()

    def _fired(self, due: Iterator[tuple[int, Any, Any]], domain: TimeDomain) -> Emitted:
        self._context.set_time_domain(domain)
        self.watched([])
        emitted = self._collect_timers(due, domain)
        return separated(emitted, self.side_tags)

    def _collect_timers(
        self, due: Iterator[tuple[int, Any, Any]], domain: TimeDomain
    ) -> Iterator[RowBatch | None]:
        """The results of timers in batches. They carry the timer's time, as in PyFlink; in Flink those of processing time have none."""
        stamps: list[int] = []
        collector = Collector(stamps)
        self._pauses.begin()
        for timer in due:
            stamps.append(timer[0])
            try:
                result = self._on_timer(timer)
                if type(result) is list:
                    self.take(collector.values, result)
                elif result is not None:
                    yield from pull(self, opened(result), collector)
            except BaseException as error:
                self._firing = timer, domain
                self.put_current_aside(error)
                self._firing = None
                self.end_record()
            collector.counts.append(len(collector.values))
            if self._pauses.is_due():
                yield from collector.take()
                yield None
                self._pauses.resume()
            elif len(collector.values) >= MAX_EMIT:
                yield from collector.take()
        self.leave_key()
        yield from collector.take()

    def _on_timer(self, timer: tuple[int, Any, Any]) -> Any:
        timestamp, skey, _ = timer
        self.enter_timer(skey, timestamp)
        on_timer = self.function.method("on_timer")
        return on_timer(timestamp, self._context) if on_timer is not None else None


__all__ = [
    "InternalTimerService",
    "KeyedProcessContext",
    "KeyedProcessOperator",
    "ProcessContext",
    "ProcessOperator",
    "TimerService",
]
