"""What both window operators share: opening, late records, results with their timestamp.

Source: Flink WindowOperator; `records` has the operator for all assigners, `grid` the one for the fast case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.engine.model.errors import FinalError
from penstock.engine.model.key_types import KeyType
from penstock.engine.runtime.context import RuntimeContext, UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, Int64s, RowBatch, Tagged
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.operator import Emitted, OperatorContext
from penstock.engine.runtime.operators.collectors import StampedCollector
from penstock.engine.runtime.operators.keyed import KeyedOperator, new_backend, restore_backend
from penstock.engine.runtime.operators.windowed.functions import (
    CONTENTS,
    AggregateContents,
    WindowContents,
    WindowContext,
    caller,
    clearer,
)
from penstock.engine.runtime.records.dead_letters import FiredWindow
from penstock.engine.runtime.records.side_output import AsideCollector
from penstock.engine.runtime.state.contract import KeyedStateBackend
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, StateInfo
from penstock.engine.runtime.windowing.assigners import MergingWindowAssigner, WindowAssigner
from penstock.engine.runtime.windowing.triggers import Trigger

GRID: Final = "__window_tables__"
SESSIONS: Final = "__merging_windows__"


def shape_of_records(kind: str, *, is_merging: bool) -> str:
    """Describes windows that do not fire as a whole. `kind`: of the state that keeps their contents."""
    return f"{kind.lower()} windows that {'merge' if is_merging else 'fire for each key'}"


def no_function(_value: Any) -> None:
    """Stands for 'no user function'. A module function, because it is pickled."""


class WindowOperator(KeyedOperator):
    """Windows of a keyed stream. `window_operator` chooses which of the two subclasses is made.

    `function`: is called with `(key, window, elements)` (apply) or `(key, context, elements)` (process);
    None: the contents themselves are the results. `late_tag`: id of the side output for late records.
    `side_tags`: ids of the tags that are read.
    """

    drops_late_records = True

    has_time_of_firing = False
    """Whether a result has the time of the record or the timer that fired the window, as in PyFlink. Else it has the window's
    last time, as in Flink.
    """

    def __init__(
        self,
        *,
        keys: KeySelection,
        assigner: WindowAssigner,
        contents: WindowContents,
        trigger: Trigger | None = None,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
        function: UserFunction | None = None,
    ) -> None:
        super().__init__(function or UserFunction(no_function), keys)
        if allowed_lateness_ms < 0:
            raise ValueError(f"allowed lateness must not be negative, got {allowed_lateness_ms} ms")
        self.assigner = assigner
        self.trigger = trigger
        self.allowed_lateness_ms = allowed_lateness_ms
        self.late_tag = late_tag
        self.side_tags: tuple[str, ...] = ()
        self.contents = contents
        self.evictor = contents.evictor
        self.output = function
        self.windows: KeyedStateBackend
        self.context: WindowContext
        self._aside = AsideCollector()

    def open_function(self, context: OperatorContext) -> None:
        runtime_context = self.runtime_context(context)
        self._count_late = context.late_records_dropped
        self.windows = new_backend(context, self.keys)
        self._check_shape(restore_backend(self.windows, self._restored, "windows"))
        is_merging = isinstance(self.assigner, MergingWindowAssigner)
        self.context = WindowContext(
            self.windows, self.state, context.timers.now_ms, is_merging=is_merging
        )
        self.window_call = caller(self.output, self.context)
        self._clear = clearer(self.output)
        self._opened: list[UserFunction] = []
        for function in (self.contents.function, self.output):
            if function is not None:
                self._opened.append(function)
                function.open(runtime_context)
        self.prepare(runtime_context)

    def _check_shape(self, restored: Mapping[str, StateInfo]) -> None:
        """Raises: FinalError: the windows of the checkpoint have another shape than those of the program."""
        if refusal := self.shape_refusal(restored):
            raise FinalError(f"{self.windows.owner} cannot restore its windows: {refusal}")

    def shape_refusal(self, restored: Mapping[str, StateInfo]) -> str:
        """Why these restored states cannot be those of its windows; empty: they can. `restored`: by name."""
        former, now = self.former_shape(restored), self.shape()
        if former is None or former == now:
            return ""
        return (
            f"the checkpoint has {former}, and the program now "
            f"has {now}. Make assigner, trigger, evictor and function what they were, or give the operator another uid "
            "and start with execution.savepoint.ignore-unclaimed-state (penstock run -s ... -n), which drops what "
            "these windows held."
        )

    def former_shape(self, restored: Mapping[str, StateInfo]) -> str | None:
        """The shape of the restored windows, given the restored states by name; None: no window was restored."""
        if (grid := restored.get(GRID)) is not None:
            return f"{grid.kind.lower()} of {grid.type_text}"
        if (contents := restored.get(CONTENTS)) is None:
            return None
        return shape_of_records(contents.kind, is_merging=SESSIONS in self.restored_states)

    def called_with_records(self) -> Callable[..., Any]:
        contents = self.contents
        assert isinstance(contents, AggregateContents), "others call nothing with each record"
        add: Callable[..., Any] = contents.function.owner.add
        return add

    def shape(self) -> str:
        """A text that describes the windows. Windows restored with another text cannot be continued. Each subclass has its own."""
        raise NotImplementedError

    def prepare(self, runtime_context: RuntimeContext) -> None:
        """Called by `open` when the backends exist."""

    def close(self) -> None:
        for function in getattr(self, "_opened", ()):
            function.close()
        self._opened = []
        super().close()
        if hasattr(self, "windows"):
            self.windows.close()

    @property
    def state_keys(self) -> KeyType:
        serializer = type(self.assigner.get_window_serializer()).__name__
        return self.key_type(serializer.removesuffix("Serializer"))

    def forget_key(self) -> None:
        super().forget_key()
        self.windows.forget()

    def enter_key(self, skey: Any, window: Any) -> None:
        """Set the key and window of the next call, in both backends."""
        key = original_key(skey)
        self.state.key = self.windows.key = key
        self.state.skey = self.windows.skey = skey
        self.enter_window(window)

    def enter_window(self, window: Any) -> None:
        """Set the window of the next calls of the window function."""
        self.windows.namespace = self.context.window_now = window
        self.context.watermark_now = self.timers.current_watermark

    def cleanup_ms(self, window: Any) -> int:
        """When the window's state is dropped; 2^63-1 is never."""
        if not self.assigner.is_event_time():
            return int(window.max_timestamp())
        return min(int(window.max_timestamp()) + self.allowed_lateness_ms, MAX_WATERMARK)

    def is_window_late(self, window: Any) -> bool:
        """Whether the watermark has reached the window's cleanup time."""
        if not self.assigner.is_event_time():
            return False
        return self.cleanup_ms(window) <= self.timers.current_watermark

    def late(self, value: Any, stamp: int) -> None:
        """Handle a record that no window took. If it is late, count it or keep it for the side output."""
        if not self.assigner.is_event_time():
            return
        if stamp + self.allowed_lateness_ms > self.timers.current_watermark:
            return
        if self.late_tag is not None:
            self._aside.add(self.late_tag, value, stamp)
        elif self._count_late is not None:
            self._count_late.inc()

    def all_late(self, values: list[Any], stamps: Int64s) -> None:
        for value, stamp in zip(values, stamps.tolist(), strict=True):
            self.late(value, stamp)

    def take_aside(self) -> Iterator[Tagged]:
        """Late records and tagged results of the window function, for the side outputs that are read."""
        tags = self.side_tags
        return self._aside.take(tags if self.late_tag is None else (*tags, self.late_tag))

    def call_window(
        self, skey: Any, window: Any, elements: list[Any], collector: StampedCollector
    ) -> Iterable[RowBatch]:
        """Add the results of the window function to the collector. Returns: full batches, as `StampedCollector.add`."""
        self.enter_key(skey, window)
        fired_at = self.context.fired_at_ms if self.has_time_of_firing else None
        stamp = window.max_timestamp() if fired_at is None else fired_at
        try:
            made = self.collected(
                self.window_call(self.state.key, window, elements), stamp, collector
            )
        except BaseException as error:
            self.put_window_aside(error, skey, window)
            return ()
        return self.going_on(made, skey, window) if made else ()

    def collected(
        self, results: Any, stamp: int, collector: StampedCollector
    ) -> Iterable[RowBatch]:
        """Add what one call of the window function returned, all with this timestamp. Returns and raises: as `StampedCollector.add`."""
        if results is None:
            return ()
        if self.side_tags:
            results = self._aside.untagged(results, stamp)
        return collector.add(results, stamp)

    def going_on(self, made: Iterable[RowBatch], skey: Any, window: Any) -> Iterator[RowBatch]:
        """Full batches of a window whose function may still raise."""
        try:
            yield from made
        except BaseException as error:
            self.put_window_aside(error, skey, window)

    def put_window_aside(self, error: BaseException, skey: Any, window: Any) -> None:
        """Put a window aside whose function raised. Raises: the error, if the job is to fail."""
        self.end_record()
        self.put_aside(error, FiredWindow(original_key(skey), window), window.max_timestamp())

    def pause(self, collector: StampedCollector) -> Emitted:
        """Emit what was collected, and offer a place to stop."""
        yield from collector.take()
        yield from self.take_aside()
        yield None
        self._pauses.resume()

    def clear_window_state(self, skey: Any, window: Any) -> None:
        """Call the user's own clean-up."""
        if self._clear is not None:
            self.enter_key(skey, window)
            try:
                self._clear(self.context)
            except BaseException as error:
                self.put_window_aside(error, skey, window)

    def snapshot(self) -> OperatorSnapshot:
        snapshot = super().snapshot()
        snapshot.add("windows", self.windows.snapshot())
        return snapshot
