"""Evictors: drop elements of a window before or after its function. Do not know state.

An element is (value, timestamp). Source: Flink CountEvictor, TimeEvictor, DeltaEvictor
(docs/spec/windows.md#evictors).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.engine.model.time import millis_of, millis_or_number
from penstock.engine.runtime.elements import NO_TIMESTAMP


class Evictor(ABC):
    """Removes records from a window when it fires.

    Args:
        do_evict_after: remove after the window function instead of before it.
    """

    def __init__(self, *, do_evict_after: bool = False) -> None:
        self.do_evict_after = do_evict_after

    @abstractmethod
    def kept(self, elements: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Return the elements, each (value, timestamp in ms), that stay, in order."""


class CountEvictor(Evictor):
    """Keeps the last `count` records."""

    def __init__(self, count: int, *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after=do_evict_after)
        self._count = count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Return an evictor that keeps the last `max_count` records."""
        return CountEvictor(max_count, do_evict_after=do_evict_after)

    def kept(self, elements: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        return elements[max(0, len(elements) - self._count) :]


class TimeEvictor(Evictor):
    """Keeps records less than `size` older than the newest; without timestamps it removes none."""

    def __init__(self, size: Any, *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after=do_evict_after)
        self._size_ms = millis_or_number(size)  # PyFlink documents it in ms.

    @staticmethod
    def of(window_size: Any, do_evict_after: bool = False) -> TimeEvictor:
        """Return an evictor. `window_size`: Time, Duration or timedelta."""
        return TimeEvictor(millis_of(window_size), do_evict_after=do_evict_after)

    def kept(self, elements: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        if not elements or elements[0][1] == NO_TIMESTAMP:
            return elements
        limit = max(stamp for _, stamp in elements) - self._size_ms
        return [element for element in elements if element[1] > limit]


class DeltaEvictor(Evictor):
    """Keeps records that differ from the newest by less than `threshold`."""

    def __init__(
        self, threshold: float, delta: Callable[[Any, Any], float], *, do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after=do_evict_after)
        self._threshold = threshold
        self._delta = delta

    @staticmethod
    def of(
        threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> DeltaEvictor:
        """Return an evictor. `delta_function(element, newest)` returns the difference."""
        return DeltaEvictor(threshold, delta_function, do_evict_after=do_evict_after)

    def kept(self, elements: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        if not elements:
            return elements
        last = elements[-1][0]
        return [one for one in elements if self._delta(one[0], last) < self._threshold]
