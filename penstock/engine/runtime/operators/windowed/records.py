"""RecordWindowOperator: any assigner, trigger and evictor, one record at a time.

Source: Flink WindowOperator, EvictingWindowOperator (docs/spec/windows.md#window-operator); differs: the contents of
merging windows are lists or accumulators in the same keyed backend as all contents.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from penstock.engine.runtime.context import RuntimeContext
from penstock.engine.runtime.elements import MAX_WATERMARK, Batch, RowBatch, Watermark
from penstock.engine.runtime.operator import Emitted
from penstock.engine.runtime.operators.collectors import StampedCollector
from penstock.engine.runtime.operators.keyed import KEY_ENDS
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.operators.timer_service import TimeDomain
from penstock.engine.runtime.operators.windowed.base import (
    SESSIONS,
    WindowOperator,
    shape_of_records,
)
from penstock.engine.runtime.operators.windowed.functions import absorbing
from penstock.engine.runtime.records.output_copies import own_copy
from penstock.engine.runtime.state.descriptors import StateDescriptor, ValueStateDescriptor
from penstock.engine.runtime.windowing.assigners import MergingWindowAssigner, WindowAssigner
from penstock.engine.runtime.windowing.triggers import Trigger, checked_result, merges
from penstock.engine.runtime.windows import MergingWindowSet


class _AssignerContext(WindowAssigner.WindowAssignerContext):
    """The clock and the keyed state for assigners."""

    def __init__(self, operator: RecordWindowOperator, runtime_context: RuntimeContext) -> None:
        self._operator = operator
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._operator.timers.now_ms()

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class _TriggerContext(Trigger.OnMergeContext):
    """Timers and state of the current key and `window`. `merged`: the windows that were merged into it."""

    def __init__(self, operator: RecordWindowOperator, runtime_context: RuntimeContext) -> None:
        self._operator = operator
        self._runtime_context = runtime_context
        self.window: Any = None
        self.merged: list[Any] = []

    def get_current_processing_time(self) -> int:
        return self._operator.timers.now_ms()

    def get_metric_group(self) -> Any:
        return self._runtime_context.get_metrics_group()

    def get_current_watermark(self) -> int:
        return self._operator.timers.current_watermark

    def register_processing_time_timer(self, time: int) -> None:
        self._operator.timers.register_processing(time, self._operator.state.skey, self.window)

    def register_event_time_timer(self, time: int) -> None:
        self._operator.timers.register_event(time, self._operator.state.skey, self.window)

    def delete_processing_time_timer(self, time: int) -> None:
        self._operator.timers.delete_processing(time, self._operator.state.skey, self.window)

    def delete_event_time_timer(self, time: int) -> None:
        self._operator.timers.delete_event(time, self._operator.state.skey, self.window)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        windows = self._operator.windows
        windows.namespace = self.window
        return windows.of(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = absorbing(self._operator.windows.of(state_descriptor))
        state.merge_namespaces(self.window, self.merged)


class RecordWindowOperator(WindowOperator):
    """Processes one record at a time, in the order of docs/spec/windows.md#window-operator."""

    ends_keys = True

    def prepare(self, runtime_context: RuntimeContext) -> None:
        assigner = self.assigner
        self._assigner = assigner
        self._merging = assigner if isinstance(assigner, MergingWindowAssigner) else None
        self._trigger = self.trigger or assigner.get_default_trigger(None)
        if self._merging is not None and not merges(self._trigger):
            raise ValueError(
                f"{type(assigner).__name__} merges windows, but {type(self._trigger).__name__} cannot: "
                "use a trigger that has on_merge()"
            )
        self._assigner_context = _AssignerContext(self, runtime_context)
        self._trigger_context = _TriggerContext(self, runtime_context)
        contents = self.contents.descriptor()
        contents.stored_type = self.contents.stored_type(self.windows.owner.records)
        self.window_state = self.windows.of(contents)
        self._sessions = self.state.get_state(ValueStateDescriptor(SESSIONS))

    def shape(self) -> str:
        is_merging = isinstance(self.assigner, MergingWindowAssigner)
        return shape_of_records(self.contents.kind, is_merging=is_merging)

    # ------------------------------------------------------------------ records

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        collector = StampedCollector(self)
        for value in self.entering(rows):
            if value is KEY_ENDS:
                yield from self._end_key(collector)
                continue
            try:
                yield from self._take_in(value, self.stamp, collector)
            except Exception as error:
                self.put_current_aside(error)
        yield from collector.take()
        yield from self.take_aside()

    def _take_in(self, value: Any, stamp: int, collector: StampedCollector) -> Iterator[RowBatch]:
        self.windows.key, self.windows.skey = self.state.key, self.state.skey
        self.context.fired_at_ms = stamp
        windows = self._assigner.assign_windows(value, stamp, self._assigner_context)
        if self._merging is not None:
            is_skipped = yield from self._add_merging(self._merging, windows, value, collector)
        else:
            is_skipped = yield from self._add(windows, value, collector)
        if is_skipped:
            self.late(value, stamp)

    def _add(
        self, windows: Iterable[Any], value: Any, collector: StampedCollector
    ) -> Generator[RowBatch, None, bool]:  # returns whether no window took it
        is_skipped = True
        for window in windows:
            if not self.is_window_late(window):
                is_skipped = False
                yield from self._add_to(window, window, value, collector)
        return is_skipped  # ruff: ignore[return-in-generator]

    def _add_merging(
        self,
        assigner: MergingWindowAssigner,
        windows: Iterable[Any],
        value: Any,
        collector: StampedCollector,
    ) -> Generator[RowBatch, None, bool]:
        is_skipped = True
        sessions = MergingWindowSet(self._sessions.value())
        for window in windows:
            actual = sessions.add(window, assigner.merge_windows, self._on_merge)
            if self.is_window_late(actual):
                sessions.retire(actual)
                continue
            is_skipped = False
            self._sessions.update(sessions.mapping)
            yield from self._add_to(actual, sessions.state_window(actual), value, collector)
        self._sessions.update(sessions.mapping or None)
        return is_skipped  # ruff: ignore[return-in-generator]

    def _add_to(
        self, window: Any, state_window: Any, value: Any, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        self.windows.namespace = state_window
        kept = (value, self.stamp) if self.evictor is not None else value
        absorbing(self.window_state).add(kept)
        self._trigger_context.window = window
        trigger = self._trigger
        result = trigger.on_element(value, self.stamp, window, self._trigger_context)
        result = checked_result(result, trigger, "on_element")
        if result.is_fire():
            yield from self._fire(window, state_window, collector)
        if result.is_purge():
            self._purge(state_window)
        cleanup = self.cleanup_ms(window)
        if cleanup != MAX_WATERMARK:
            register = (
                self.timers.register_event
                if self._assigner.is_event_time()
                else self.timers.register_processing
            )
            register(cleanup, self.state.skey, window)

    def _on_merge(
        self, result: Any, merged: list[Any], state_window: Any, merged_states: list[Any]
    ) -> None:
        self._refuse_late_merge(result)
        context = self._trigger_context
        context.window, context.merged = result, [w for w in merged if w != result]
        self._trigger.on_merge(result, context)
        for window in context.merged:
            context.window = window
            self._trigger.clear(window, context)
            delete = (
                self.timers.delete_event
                if self._assigner.is_event_time()
                else self.timers.delete_processing
            )
            delete(self.cleanup_ms(window), self.state.skey, window)
        absorbing(self.window_state).merge_namespaces(state_window, merged_states)

    def _refuse_late_merge(self, result: Any) -> None:
        if self._assigner.is_event_time():
            now, end = self.timers.current_watermark, self.cleanup_ms(result)
        else:
            now, end = self.timers.now_ms(), result.max_timestamp()
        if end <= now:
            raise RuntimeError(
                f"merging made {result!r}, whose end {end} is not after the current time {now}: windows "
                "must not move into the past; check merge_windows of the assigner"
            )

    # ------------------------------------------------------------------ timers

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        due = self.timers.due_event(watermark.timestamp_ms)
        yield from self._fired(due, is_event_time=True)
        if self.key_timers is not None:
            yield from self.on_processing_time(watermark.timestamp_ms)
        yield watermark

    def on_processing_time(self, now_ms: int) -> Emitted:
        return self._fired(self.timers.due_processing(now_ms), is_event_time=False)

    def finish(self) -> Emitted:
        yield from self.on_processing_time(self.timers.now_ms())
        self.timers.quiesce()

    def _fired(self, due: Iterator[tuple[int, Any, Any]], *, is_event_time: bool) -> Emitted:
        collector = StampedCollector(self)
        self.watched([])
        self._pauses.begin()
        for timer in due:
            yield from self._fire_timer(timer, collector, is_event_time)
            if self._pauses.is_due():
                yield from self.pause(collector)
        yield from collector.take()
        yield from self.take_aside()

    def _end_key(self, collector: StampedCollector) -> Iterator[RowBatch]:
        assert self.key_timers is not None
        for domain, timer in self.key_timers.due_of_key():
            yield from self._fire_timer(timer, collector, domain is TimeDomain.EVENT_TIME)

    def _fire_timer(
        self, timer: tuple[int, Any, Any], collector: StampedCollector, is_event_time: bool
    ) -> Iterator[RowBatch]:
        stamp, skey, window = timer
        self.enter_key(skey, window)
        self.context.fired_at_ms = stamp
        state_window = window
        if self._merging is not None:
            state_window = (self._sessions.value() or {}).get(window)
            if state_window is None:
                # It has been merged into another window since.
                return
        try:
            yield from self._on_timer(stamp, window, state_window, collector, is_event_time)
        except BaseException as error:
            self.put_window_aside(error, skey, window)

    def _on_timer(
        self,
        stamp: int,
        window: Any,
        state_window: Any,
        collector: StampedCollector,
        is_event_time: bool,
    ) -> Iterator[RowBatch]:
        context = self._trigger_context
        context.window = window
        if is_event_time:
            method, result = "on_event_time", self._trigger.on_event_time(stamp, window, context)
        else:
            method = "on_processing_time"
            result = self._trigger.on_processing_time(stamp, window, context)
        result = checked_result(result, self._trigger, method)
        if result.is_fire():
            yield from self._fire(window, state_window, collector)
        if result.is_purge():
            self._purge(state_window)
        if is_event_time == self._assigner.is_event_time() and stamp == self.cleanup_ms(window):
            self._forget(window, state_window)

    def _forget(self, window: Any, state_window: Any) -> None:
        skey = self.state.skey
        self._purge(state_window)
        self._trigger_context.window = window
        self._trigger.clear(window, self._trigger_context)
        self.clear_window_state(skey, window)
        if self._merging is not None:
            sessions = MergingWindowSet(self._sessions.value())
            sessions.retire(window)
            self._sessions.update(sessions.mapping or None)

    def _purge(self, state_window: Any) -> None:
        self.windows.namespace = state_window
        self.window_state.clear()

    # ------------------------------------------------------------------ firing

    def _fire(
        self, window: Any, state_window: Any, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        try:
            yield from self._fire_contents(window, state_window, collector)
        except BaseException as error:
            self.put_window_aside(error, self.state.skey, window)

    def _fire_contents(
        self, window: Any, state_window: Any, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        self.windows.namespace = state_window
        if not absorbing(self.window_state).has_value():
            return
        kept = absorbing(self.window_state).get()
        # A window may go on after it has fired, and emitted results must not change with it.
        elements: list[Any] = kept if self.contents.function is None else [own_copy(kept)]
        evictor = self.evictor
        if evictor is None:
            yield from self.call_window(self.state.skey, window, elements, collector)
            return
        pairs = elements if evictor.do_evict_after else evictor.kept(elements)
        values = [value for value, _ in pairs]
        yield from self.call_window(self.state.skey, window, values, collector)
        if evictor.do_evict_after:
            pairs = evictor.kept(pairs)
        self.windows.namespace = state_window
        self.window_state.update(pairs)  # type: ignore[attr-defined] # with an evictor: a ListState
