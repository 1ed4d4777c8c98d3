"""Window assigners, with PyFlink's names. They know triggers (their defaults), but not state backends.

Source: PyFlink pyflink.datastream.window, Flink's assigners; differs: durations may be Time, Duration or timedelta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from math import gcd
from typing import Any

import numpy as np

from penstock.engine.model.parametrised import OfTwo, Parametrised, X, Y
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.time import millis_of
from penstock.engine.runtime.elements import MAX_WATERMARK, NO_TIMESTAMP, Int64s
from penstock.engine.runtime.state.descriptors import ValueStateDescriptor
from penstock.engine.runtime.windowing.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from penstock.engine.runtime.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    TypeSerializer,
    Window,
    cut_window,
)


class WindowAssigner(OfTwo[X, Y], ABC):
    """Decides to which windows a record belongs."""

    class WindowAssignerContext(ABC):
        """Gives an assigner the time and the runtime context."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in epoch ms."""

        @abstractmethod
        def get_runtime_context(self) -> Any:
            """Return the operator's RuntimeContext, with the record's key set."""

    @abstractmethod
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[Any]:
        """Return the windows of one record, newest first."""

    @abstractmethod
    def get_default_trigger(self, env: Any = None) -> Trigger:
        """Return the trigger to use if the program sets none."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether the windows follow event time."""

    def get_window_serializer(self) -> TypeSerializer:
        """Return the serializer of the windows: by default that of time windows.

        PyFlink needs it; here windows are pickled.
        """
        return TimeWindowSerializer()


class MergingWindowAssigner(WindowAssigner[X, Y]):
    """A window assigner whose windows may merge, as sessions do."""

    class MergeCallback(Parametrised, ABC):
        """Gets the windows that merge."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
            """Merge these windows into that one."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[Any], callback: Any) -> None:
        """Call `callback.merge` for each group of windows that merge."""


class _TimeGrid(WindowAssigner):
    """Tumbling and sliding windows on a grid. `slide` equals `size` when they tumble.

    Operators name a window by its start on the grid, which no other window has. It is below the start of the TimeWindow if that one
    is cut at the first of all times. A pane is the widest slice of time that no window cuts.
    """

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        name = type(self).__name__
        self.size = size
        self.slide = slide
        self.offset = offset
        if size <= 0 or slide <= 0:
            raise ValueError(
                f"{name}: size and slide must be positive, got {size} ms and {slide} ms"
            )
        if abs(offset) >= slide:
            raise ValueError(
                f"{name}: the offset must be smaller than {slide} ms, in both directions; got {offset} ms"
            )

    def windows_at(self, timestamp: int) -> list[TimeWindow]:
        """The windows that contain the timestamp, newest first."""
        return [self.window(start) for start in self.starts_at(timestamp)]

    def starts_at(self, timestamp: int) -> Collection[int]:
        """The starts of these windows on the grid, newest first."""
        size, slide = self.size, self.slide
        start = TimeWindow.get_window_start_with_offset(timestamp, self.offset, slide)
        return (start,) if size == slide else range(start, timestamp - size, -slide)

    def window(self, start: int) -> TimeWindow:
        """The window with this start on the grid."""
        return cut_window(start, start + self.size)

    def last_ms(self, start: int) -> int:
        """The last time of this window, and so the watermark that completes it."""
        return min(start + self.size - 1, MAX_WATERMARK)

    @property
    def pane_ms(self) -> int:
        return gcd(self.size, self.slide)

    @property
    def pane_zero_ms(self) -> int:
        """When pane 0 begins. Panes of 1 ms are numbered by their times, so that the numbers have 64 bits, too."""
        return self.offset if self.pane_ms > 1 else 0

    def panes_of(self, stamps: Int64s) -> Int64s:
        """The number of each timestamp's pane."""
        pane_ms = self.pane_ms
        panes: Int64s = stamps // pane_ms
        if self.pane_zero_ms:
            # Without `stamps - pane_zero_ms`, which can leave 64 bits.
            whole, part = divmod(self.pane_zero_ms, pane_ms)
            panes -= (stamps - panes * pane_ms < part) + np.int64(whole)
        return panes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class _Tumbling(_TimeGrid):
    """Windows without gaps; each record is in exactly one."""

    def __init__(self, size: int, offset: int = 0) -> None:
        super().__init__(size, size, offset)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.offset})"


class _EventTime(_TimeGrid):
    """Assigns by the record's timestamp."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self.windows_at(checked_timestamp(timestamp, element))

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTime(_TimeGrid):
    """Assigns by the clock; timestamps are ignored."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self.windows_at(context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class TumblingEventTimeWindows(_Tumbling, _EventTime):
    """Assigns windows of one size that follow each other, in event time."""

    @staticmethod
    def of(size: Any, offset: Any = None) -> TumblingEventTimeWindows:
        """Return an assigner. `size` and `offset` (default 0): Time, Duration or timedelta."""
        return TumblingEventTimeWindows(millis_of(size), _optional_millis(offset))


class TumblingProcessingTimeWindows(_Tumbling, _ProcessingTime):
    """Assigns windows of one size that follow each other, in processing time."""

    @staticmethod
    def of(size: Any, offset: Any = None) -> TumblingProcessingTimeWindows:
        """Return an assigner. `size` and `offset` (default 0): Time, Duration or timedelta."""
        return TumblingProcessingTimeWindows(millis_of(size), _optional_millis(offset))


class SlidingEventTimeWindows(_EventTime):
    """Assigns windows of one size that start every slide, in event time."""

    @staticmethod
    def of(size: Any, slide: Any, offset: Any = None) -> SlidingEventTimeWindows:
        """Return an assigner. `size`, `slide` and `offset` (default 0): Time, Duration or timedelta."""
        return SlidingEventTimeWindows(millis_of(size), millis_of(slide), _optional_millis(offset))


class SlidingProcessingTimeWindows(_ProcessingTime):
    """Assigns windows of one size that start every slide, in processing time."""

    @staticmethod
    def of(size: Any, slide: Any, offset: Any = None) -> SlidingProcessingTimeWindows:
        """Return an assigner. `size`, `slide` and `offset` (default 0): Time, Duration or timedelta."""
        millis = millis_of(size), millis_of(slide), _optional_millis(offset)
        return SlidingProcessingTimeWindows(*millis)


class SessionWindowTimeGapExtractor(ABC):
    """Returns the session gap of a record."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap in ms, more than 0."""


class _Sessions(MergingWindowAssigner):
    """Windows that grow while records come within the gap."""

    def __init__(self, gap_of: Callable[[Any], int], *, event_time: bool) -> None:
        self._gap_of = gap_of
        self._event_time = event_time

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        if self._event_time:
            start = checked_timestamp(timestamp, element)
        else:
            start = context.get_current_processing_time()
        gap = self._gap_of(element)
        if not hasattr(gap, "__index__") or gap <= 0:
            raise ValueError(
                f"a session gap must be positive, in whole ms, got {gap!r} for "
                f"{bounded_repr(element, 200)}"
            )
        return [cut_window(start, start + int(gap))]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._gap_of!r})"

    def merge_windows(self, windows: Iterable[TimeWindow], callback: Any) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger() if self._event_time else ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return self._event_time


def _gap_of(extractor: SessionWindowTimeGapExtractor) -> Callable[[Any], int]:
    if isinstance(extractor, type) or not callable(getattr(extractor, "extract", None)):
        raise TypeError(
            "a dynamic gap takes an object of a class that extends SessionWindowTimeGapExtractor and defines "
            f"extract(element), got {bounded_repr(extractor, 200)}"
        )
    return extractor.extract


class _FixedGap:
    """A gap that is the same for all records. A class, because assigners are pickled."""

    def __init__(self, gap: int) -> None:
        if gap <= 0:
            raise ValueError(f"a session gap must be positive, got {gap} ms")
        self._gap = gap

    def __call__(self, element: Any) -> int:
        return self._gap

    def __repr__(self) -> str:
        return str(self._gap)


class EventTimeSessionWindows(_Sessions):
    """Assigns sessions with a fixed gap, in event time."""

    def __init__(self, session_gap: int) -> None:
        super().__init__(_FixedGap(session_gap), event_time=True)

    @staticmethod
    def with_gap(size: Any) -> EventTimeSessionWindows:
        """Return an assigner. `size`: the gap as Time, Duration or timedelta."""
        return EventTimeSessionWindows(millis_of(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Return an assigner whose gap depends on the record."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_Sessions):
    """Assigns sessions with a fixed gap, in processing time."""

    def __init__(self, session_gap: int) -> None:
        super().__init__(_FixedGap(session_gap), event_time=False)

    @staticmethod
    def with_gap(size: Any) -> ProcessingTimeSessionWindows:
        """Return an assigner. `size`: the gap as Time, Duration or timedelta."""
        return ProcessingTimeSessionWindows(millis_of(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return an assigner whose gap depends on the record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_Sessions):
    """Assigns sessions whose gap depends on the record, in event time."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        super().__init__(_gap_of(session_window_time_gap_extractor), event_time=True)

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Return an assigner with this extractor."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_Sessions):
    """Assigns sessions whose gap depends on the record, in processing time."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        super().__init__(_gap_of(session_window_time_gap_extractor), event_time=False)

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return an assigner with this extractor."""
        return DynamicProcessingTimeSessionWindows(extractor)


class GlobalWindows(WindowAssigner):
    """Assigns all records of a key to one window, which fires only by a trigger you set."""

    def __repr__(self) -> str:
        return "GlobalWindows()"

    @staticmethod
    def create() -> GlobalWindows:
        """Return an assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def get_window_serializer(self) -> GlobalWindowSerializer:
        return GlobalWindowSerializer()


class _CountWindows(WindowAssigner):
    """Windows by the count of a key's records. They fire when they are full."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        if window_size <= 0 or window_slide <= 0:
            raise ValueError(
                f"count windows need a positive size and slide, got {window_size} and {window_slide}"
            )
        self._window_size = window_size
        self._window_slide = window_slide
        self._counter = ValueStateDescriptor("__window_count__")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._window_size}, {self._window_slide})"

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(self._counter)
        position = state.value() or 0
        state.update(position + 1)
        size, slide = self._window_size, self._window_slide
        newest = position // slide
        oldest = max(0, (position - size) // slide + 1)
        return [CountWindow(index) for index in range(newest, oldest - 1, -1)]

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return PurgingTrigger(CountTrigger(self._window_size))

    def is_event_time(self) -> bool:
        return False

    def get_window_serializer(self) -> CountWindowSerializer:
        return CountWindowSerializer()


class CountTumblingWindowAssigner(_CountWindows):
    """Assigns every `window_size` records of a key to one window."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, window_size)

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self._window_size})"

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Return an assigner of windows with `window_size` records."""
        return CountTumblingWindowAssigner(window_size)


class CountSlidingWindowAssigner(_CountWindows):
    """Assigns windows of `window_size` records of a key, one every `window_slide` records."""

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return an assigner. `window_size` and `window_slide` are numbers of records."""
        return CountSlidingWindowAssigner(window_size, window_slide)


def checked_timestamp(timestamp: int, element: Any) -> int:
    """The timestamp. Raises: RuntimeError when the record has none."""
    if timestamp == NO_TIMESTAMP:
        raise RuntimeError(
            f"record {bounded_repr(element, 200)} has no timestamp, but its window needs "
            "event time; call "
            "assign_timestamps_and_watermarks(...) before window(), or use processing-time windows"
        )
    return timestamp


def _optional_millis(length: Any) -> int:
    return 0 if length is None else millis_of(length)


__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "GlobalWindows",
    "MergingWindowAssigner",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
]
