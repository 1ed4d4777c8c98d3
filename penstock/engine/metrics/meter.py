"""Meters and time gauges: rates of counters that somebody updates every 5 s. They do not know a clock.

Source: Flink MeterView, TimerGauge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.engine.model.metrics import Rate

UPDATE_S: Final = 5
"""How often the owner calls `update`."""
SPAN_S: Final = 60
_WINDOWS: Final = 12


class Meter:
    """The rate of a count over a span. The divisor is the whole span from the start on, so a steady rate shows after one span only."""

    __slots__ = ("_read", "_ring", "_span_s", "per_s")

    def __init__(self, read: Callable[[], int], span_s: int = SPAN_S) -> None:
        """`read`: the count so far. `span_s`: is rounded down to a multiple of 5 s, and is at least 5 s."""
        self._read = read
        self._span_s = max(UPDATE_S, span_s - span_s % UPDATE_S)
        size = self._span_s // UPDATE_S + 1
        self._ring: deque[int] = deque([0] * size, maxlen=size)
        self.per_s = 0.0

    def update(self) -> None:
        """Take the count into the ring. Every 5 s."""
        self._ring.append(self._read())
        self.per_s = (self._ring[-1] - self._ring[0]) / self._span_s

    @property
    def rate(self) -> Rate:
        """The rate at the last update, and the count now."""
        return Rate(self.per_s, self._read())


class SpentTime:
    """How many milliseconds per second something took, over at most 60 s: 0 until the first window of 5 s is over.

    The divisor grows with the windows that are filled.
    """

    __slots__ = ("_last_ms", "_read_ms", "_windows")

    def __init__(self, read_ms: Callable[[], int]) -> None:
        """`read_ms`: the time spent so far, with the period that lasts."""
        self._read_ms = read_ms
        self._last_ms = read_ms()
        self._windows: deque[int] = deque(maxlen=_WINDOWS)

    def update(self) -> None:
        """End a window. Every 5 s."""
        now_ms = self._read_ms()
        self._windows.append(now_ms - self._last_ms)
        self._last_ms = now_ms

    @property
    def ms_per_s(self) -> int:
        """Whole milliseconds per second, from 0 to 1,000."""
        if not self._windows:
            return 0
        return max(0, min(1000, sum(self._windows) // (UPDATE_S * len(self._windows))))


class LongestTime:
    """The longest single period in the window of 5 s that ended last, in ms. A period that lasts counts in each window it touches."""

    __slots__ = ("_longest_ms", "last_ms")

    def __init__(self) -> None:
        self._longest_ms = 0
        self.last_ms = 0

    def add(self, period_ms: int) -> None:
        """A period that has ended, or that lasts so long by now."""
        self._longest_ms = max(self._longest_ms, period_ms)

    def update(self) -> None:
        """End a window. Every 5 s."""
        self.last_ms, self._longest_ms = self._longest_ms, 0
