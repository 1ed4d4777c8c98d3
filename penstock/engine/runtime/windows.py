"""Windows, and the merging of sessions. Do not know assigners or state.

Times are signed 64-bit epoch ms. A window that would begin before the first of them, or end after
the last one, is cut there (docs/spec/windows.md#assigners). Source: PyFlink
pyflink.datastream.window, Flink TimeWindow; differs: windows can be pickled, so the engine needs no
serializers for them.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Final

from penstock.engine.model.parametrised import OfOne, X
from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK


class Window(ABC):
    """The base of windows: a finite or endless group of records."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp, in epoch ms, that belongs to the window."""


class TimeWindow(Window):
    """The time from `start` up to, but not including, `end`; both in epoch ms. A window that ends at 2^63-1 has no end: it includes
    this time too.
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1 if self.end < MAX_WATERMARK else MAX_WATERMARK

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window that contains `timestamp`; all in ms, also below zero."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: Any) -> None:
        """Call `callback.merge(merged windows, result)` for each group of at least two."""
        merge = getattr(callback, "merge", callback)
        for group, result in merged_groups(windows):
            if len(group) > 1:
                merge(group, result)

    def __eq__(self, other: object) -> bool:
        return type(other) is TimeWindow and self.start == other.start and self.end == other.end

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) <= (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """A window of a number of records; `id` counts the windows of a key."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # ruff: ignore[builtin-argument-shadowing] - PyFlink's name
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_WATERMARK

    def __eq__(self, other: object) -> bool:
        return type(other) is CountWindow and self.id == other.id

    def __hash__(self) -> int:
        return hash(("CountWindow", self.id))

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The one window that contains everything."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return MAX_WATERMARK

    def __eq__(self, other: object) -> bool:
        return type(other) is GlobalWindow

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow"


def cut_window(start: int, end: int) -> TimeWindow:
    """The window from `start` to `end`, as far as times can be 64-bit integers. Flink's wrap around there, so that the window ends
    before it starts, and its records are late.
    """
    return TimeWindow(max(start, MIN_WATERMARK), min(end, MAX_WATERMARK))


def merged_groups(
    windows: Iterable[TimeWindow],
) -> list[tuple[list[TimeWindow], TimeWindow]]:
    """Groups of windows that merge (also those that only touch), each with its cover, by start."""
    groups: list[tuple[list[TimeWindow], TimeWindow]] = []
    for window in sorted(windows, key=lambda one: one.start):
        if groups and groups[-1][1].intersects(window):
            members, cover = groups[-1]
            members.append(window)
            groups[-1] = (members, cover.cover(window))
        else:
            groups.append(([window], window))
    return groups


class MergingWindowSet:
    """The in-flight sessions of one key: window -> the window under which its state is kept.

    `mapping` is the key's persisted state; the caller stores it back when `is_changed`.
    """

    def __init__(self, mapping: dict[Any, Any] | None = None) -> None:
        self.mapping: dict[Any, Any] = mapping or {}
        self.is_changed = False

    def state_window(self, window: Any) -> Any | None:
        return self.mapping.get(window)

    def retire(self, window: Any) -> None:
        if self.mapping.pop(window, None) is not None:
            self.is_changed = True

    def add(
        self,
        window: Any,
        merge_windows: Callable[[Iterable[Any], Any], None],
        on_merge: Callable[[Any, list[Any], Any, list[Any]], None],
    ) -> Any:
        """Add a window. Returns the in-flight window that contains it.

        `on_merge(result, merged windows, state window of the result, merged state windows)` is called
        unless the result is the one existing window that was merged.
        """
        found: list[tuple[Any, list[Any]]] = []
        merge_windows(
            [*self.mapping, window],
            lambda merged, result: found.append((result, list(merged))),
        )
        result_window = window
        is_merged = False
        for result, members in found:
            is_merged = True
            if window in members:
                # Only once, because an equal window may be in flight already.
                members.remove(window)
                result_window = result
            existing = [member for member in members if member in self.mapping]
            if not existing:
                continue
            self._merge(result, existing, on_merge)
        if (not is_merged and window not in self.mapping) or result_window not in self.mapping:
            self.mapping[result_window] = result_window
            self.is_changed = True
        return result_window

    def _merge(
        self,
        result: Any,
        existing: list[Any],
        on_merge: Callable[[Any, list[Any], Any, list[Any]], None],
    ) -> None:
        if existing == [result]:
            return
        states = [self.mapping.pop(member) for member in existing]
        state = states[0]
        self.mapping[result] = state
        self.is_changed = True
        on_merge(result, existing, state, states[1:])


_LONG: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
_NOTHING: Final = b"\x00"


class TypeSerializer(OfOne[X], ABC):
    """Windows to bytes and back, for programs that ask for it. The engine pickles windows and uses none of these.

    Source: PyFlink pyflink.common.serializer and the serializers of pyflink.datastream.window; the bytes are the same.

    Writes and reads values of one type as bytes.
    """

    @abstractmethod
    def serialize(self, element: Any, stream: BinaryIO) -> None:
        """Append a value to the stream."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> Any:
        """Read the next value of the stream."""


class TimeWindowSerializer(TypeSerializer):
    """Writes a window's start and end, 8 bytes each."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        stream.write(_TIMES.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        return TimeWindow(*_TIMES.unpack(stream.read(_TIMES.size)))


class CountWindowSerializer(TypeSerializer):
    """Writes a window's number in 8 bytes."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        return CountWindow(*_LONG.unpack(stream.read(_LONG.size)))


class GlobalWindowSerializer(TypeSerializer):
    """Writes one byte: there is only one window."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        stream.write(_NOTHING)

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        stream.read(len(_NOTHING))
        return GlobalWindow.get()
