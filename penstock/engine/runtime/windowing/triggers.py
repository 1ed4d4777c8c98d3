"""Triggers: when a window emits, with PyFlink's names. Do not know operators.

Source: PyFlink pyflink.datastream.window, Flink's triggers (docs/spec/windows.md#triggers);
differs: intervals may be Time, Duration or timedelta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.engine.model.parametrised import OfTwo, X, Y
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.time import millis_of
from penstock.engine.runtime.state.descriptors import (
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.runtime.windows import GlobalWindow


class TriggerResult(Enum):
    """What happens to the window, as (fires, purges)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window fires."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window's records are deleted."""
        return self.value[1]


def checked_result(result: TriggerResult, trigger: Trigger, method: str) -> TriggerResult:
    """The result of a user's trigger. Raises: TypeError: it is not a TriggerResult, for example because a `return` is missing."""
    if not isinstance(result, TriggerResult):
        raise TypeError(
            f"{type(trigger).__name__}.{method} must return a TriggerResult such as TriggerResult.CONTINUE, got {bounded_repr(result, 200)}"
        )
    return result


def merges(trigger: Trigger) -> bool:
    """Whether the trigger works with windows that merge: it says so, or it has an `on_merge` of its own, which suffices in PyFlink."""
    kind = type(trigger)
    is_silent = kind.can_merge is Trigger.can_merge
    return trigger.can_merge() or (is_silent and kind.on_merge is not Trigger.on_merge)


_CONTINUE, _FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class Trigger(OfTwo[X, Y], ABC):
    """Decides when a window of a key fires, and when its records are deleted."""

    class TriggerContext(ABC):
        """Gives times, timers and state of one key and window. All times are epoch ms."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in epoch ms."""

        @abstractmethod
        def get_metric_group(self) -> Any:
            """Return the operator's metric group."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark in epoch ms."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Set a timer for which `on_processing_time` is called."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Set a timer for which `on_event_time` is called."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete the timer; no effect if there is none."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete the timer; no effect if there is none."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the state of this key and window."""

    class OnMergeContext(TriggerContext):
        """A TriggerContext that can also merge the trigger's state of merged windows."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the merged windows into that of the resulting window."""

    @abstractmethod
    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Decide after a record was added."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Decide after a processing-time timer of the window fired."""

    @abstractmethod
    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Decide after an event-time timer of the window fired."""

    def can_merge(self) -> bool:
        """Return whether the trigger works with windows that merge."""
        return False

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Merge state and set timers: windows were merged into this one."""

    @abstractmethod
    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Delete state and timers: the window is removed."""


class EventTimeTrigger(Trigger):
    """Fires when the watermark passes the window's end, and then for each late record."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Return a trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return _FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return _CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _FIRE if time == window.max_timestamp() else _CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger):
    """Fires when processing time passes the window's end."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Return a trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return _CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _FIRE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class NeverTrigger(Trigger):
    """Never fires."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _CONTINUE

    def can_merge(self) -> bool:
        return True

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        return


def add(first: int, second: int) -> int:
    """The reduce function of the count. A module function, because triggers are pickled."""
    return first + second


class CountTrigger(Trigger):
    """Fires every `window_size` records; it does not purge."""

    def __init__(self, window_size: int) -> None:
        self._window_size = window_size
        self._count = ReducingStateDescriptor("trigger-count", add)

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Return a trigger that fires every `window_size` records."""
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self._window_size:
            return _CONTINUE
        count.clear()
        return _FIRE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._count).clear()


class PurgingTrigger(Trigger):
    """Wraps another trigger; each time that one fires, the window is purged too."""

    def __init__(self, nested_trigger: Trigger) -> None:
        self._nested = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger) -> PurgingTrigger:
        """Return a trigger that wraps `nested_trigger`."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(
            self._nested, "on_element", self._nested.on_element(element, timestamp, window, ctx)
        )

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(
            self._nested, "on_processing_time", self._nested.on_processing_time(time, window, ctx)
        )

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(
            self._nested, "on_event_time", self._nested.on_event_time(time, window, ctx)
        )

    def can_merge(self) -> bool:
        return merges(self._nested)

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        self._nested.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        self._nested.clear(window, ctx)


class _Continuous(Trigger):
    """Fires at every multiple of an interval; the next time is kept in state."""

    def __init__(self, interval: int) -> None:
        if interval <= 0:
            raise ValueError(f"a trigger interval must be positive, got {interval} ms")
        self._interval = interval
        self._fire_timestamp = ReducingStateDescriptor("trigger-fire-time", min)

    def can_merge(self) -> bool:
        return True

    def _next(self, time: int, window: Any) -> int:
        return min(time + self._interval, int(window.max_timestamp()))


class ContinuousEventTimeTrigger(_Continuous):
    """Fires at multiples of an interval in event time, and at the window's end.

    Differs: when all input has ended, a global window fires for the multiple that is due and then for its end. Flink fires it for
    each multiple until the end of time, which no job lives to see.
    """

    @staticmethod
    def of(interval: Any) -> ContinuousEventTimeTrigger:
        """Return a trigger. `interval`: Time, Duration or timedelta."""
        return ContinuousEventTimeTrigger(millis_of(interval))

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return _FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        state = ctx.get_partitioned_state(self._fire_timestamp)
        if state.get() is None:
            start = timestamp - timestamp % self._interval
            self.register_next_fire_timestamp(start, window, ctx, state)
        return _CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return _FIRE
        state = ctx.get_partitioned_state(self._fire_timestamp)
        if state.get() != time:
            return _CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return _FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._fire_timestamp)
        next_fire = ctx.get_partitioned_state(self._fire_timestamp).get()
        if next_fire is not None:
            ctx.register_event_time_timer(next_fire)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self._fire_timestamp)
        if state.get() is not None:
            ctx.delete_event_time_timer(state.get())
            state.clear()
        ctx.delete_event_time_timer(window.max_timestamp())

    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Set the timer for the interval after `time` (ms), or for the end of the window if that is earlier."""
        next_fire = self._next(time, window)
        if (
            isinstance(window, GlobalWindow)
            and ctx.get_current_watermark() >= window.max_timestamp()
        ):
            next_fire = window.max_timestamp()
        fire_timestamp_state.add(next_fire)
        ctx.register_event_time_timer(next_fire)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires at multiples of an interval in processing time, and at the window's end in it."""

    def _next(self, time: int, window: Any) -> int:
        """The next time to fire. An end in the past is an end in event time, at which it must not fire again and again."""
        is_over = int(window.max_timestamp()) <= time
        return time + self._interval if is_over else super()._next(time, window)

    @staticmethod
    def of(interval: Any) -> ContinuousProcessingTimeTrigger:
        """Return a trigger. `interval`: Time, Duration or timedelta."""
        return ContinuousProcessingTimeTrigger(millis_of(interval))

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._fire_timestamp)
        if state.get() is None:
            now = ctx.get_current_processing_time()
            self.register_next_fire_timestamp(now - now % self._interval, window, ctx, state)
        return _CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._fire_timestamp)
        if state.get() != time:
            return _CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return _FIRE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._fire_timestamp)
        next_fire = ctx.get_partitioned_state(self._fire_timestamp).get()
        if next_fire is not None:
            ctx.register_processing_time_timer(next_fire)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self._fire_timestamp)
        if state.get() is not None:
            ctx.delete_processing_time_timer(state.get())
            state.clear()

    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Set the timer for the interval after `time` (ms), or for the end of the window if that is earlier."""
        next_fire = self._next(time, window)
        fire_timestamp_state.add(next_fire)
        ctx.register_processing_time_timer(next_fire)


class DeltaTrigger(Trigger):
    """Fires when a record differs by more than a threshold from the one at the last firing."""

    def __init__(self, threshold: float, delta: Callable[[Any, Any], float]) -> None:
        self._threshold = threshold
        self._delta = delta
        self._last = ValueStateDescriptor("trigger-last-element")

    @staticmethod
    def of(threshold: float, delta: Callable[[Any, Any], float]) -> DeltaTrigger:
        """Return a trigger. `delta(old, new)` returns the difference."""
        return DeltaTrigger(threshold, delta)

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update((element,))
            return _CONTINUE
        if self._delta(last[0], element) <= self._threshold:
            return _CONTINUE
        state.update((element,))
        return _FIRE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _CONTINUE

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


def _purging(nested: Trigger, method: str, result: TriggerResult) -> TriggerResult:
    is_fire = checked_result(result, nested, method).is_fire()
    return TriggerResult.FIRE_AND_PURGE if is_fire else result
