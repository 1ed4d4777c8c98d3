"""The metrics of one place (a task, an operator, a process), registered once and read at each report.

What fails when it is read is left out of that report. Meters and time gauges move with `update`. Does not know threads:
whoever registers says by that that reading is safe on the reporting thread. Source: Flink MetricRegistryImpl,
MetricDumpSerialization.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

from penstock.engine.model.metrics import (
    Groups,
    Measured,
    MetricType,
    OwnMetric,
    Quantiles,
    Rate,
    Value,
)

UPDATE_S: Final = 5
"""How often the owner calls `update`."""
SPAN_S: Final = 60
_WINDOWS: Final = 12


class Meter:
    """Meters and time gauges: rates of counters that somebody updates every 5 s. They do not know a clock.

    Source: Flink MeterView, TimerGauge.

    The rate of a count over a span. The divisor is the whole span from the start on, so a steady rate shows after one
    span only.
    """

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
    """The longest single period in the window of 5 s that ended last, in ms. A period that lasts counts in each window it
    touches.
    """

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


PER_SECOND: Final = "PerSecond"
More: TypeAlias = "Callable[[], Iterable[Measured]]"


class Updated(Protocol):
    """A meter or a time gauge."""

    def update(self) -> None: ...


class Registry:
    """The metrics of one place. Names are unique by their groups; the first of a name stays."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[Groups, str], tuple[MetricType, Callable[[], Any]]] = {}
        self._updated: list[Updated] = []
        self._more: list[More] = []

    def add(self, *metrics: OwnMetric) -> None:
        """Register metrics. One with `has_rate` gets its meter."""
        for one in metrics:
            self._register(one.groups, one.name, one.type, one.read)
            if one.has_rate:
                self.meter(one.name + PER_SECOND, one.read, one.groups)

    def meter(
        self, name: str, read: Callable[[], int], groups: Groups = (), span_s: int = SPAN_S
    ) -> None:
        """Register the rate of a count."""
        meter = Meter(read, span_s)
        self.updated(meter)
        self._register(groups, name, MetricType.METER, lambda: meter.rate)

    def histogram(self, name: str, histogram: Histogram, groups: Groups = ()) -> None:
        self._register(groups, name, MetricType.HISTOGRAM, lambda: histogram.quantiles)

    def updated(self, one: Updated) -> None:
        """Have `update` of this called every 5 s."""
        self._updated.append(one)

    def more(self, read: More) -> None:
        """Register metrics whose names are known only when they are read."""
        self._more.append(read)

    def update(self) -> None:
        """Move meters and time gauges on. Every 5 s."""
        for one in self._updated:
            try:
                one.update()
            except Exception:  # What it reads may have just ended: it keeps its last value.
                continue

    def measured(self) -> list[Measured]:
        """All metrics that have a value now."""
        found = list(self._read_registered())
        for more in self._more:
            try:
                found += more()
            except Exception:  # As above: the others are reported all the same.
                continue
        return found

    def _read_registered(self) -> Iterator[Measured]:
        for (groups, name), (kind, read) in list(self._metrics.items()):
            try:
                value: Value | None = read()
            except Exception:  # Flink leaves out a gauge that raises.
                continue
            if value is not None:
                yield Measured(name, kind, value, groups)

    def _register(
        self, groups: Groups, name: str, kind: MetricType, read: Callable[[], Any]
    ) -> None:
        self._metrics.setdefault((groups, name), (kind, read))


QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)


class Histogram:
    """Histograms of the last N values, and Flink's rule for quantiles.

    Source: Flink DescriptiveStatisticsHistogram.

    Keeps the last `size` values, and the number of all values.
    """

    __slots__ = ("_values", "count")

    def __init__(self, size: int) -> None:
        self._values: deque[int] = deque(maxlen=size)
        self.count = 0

    def add(self, value: int) -> None:
        self._values.append(value)
        self.count += 1

    @property
    def quantiles(self) -> Quantiles:
        """Statistics of the values that are kept. Any thread."""
        return quantiles_of(self._values.copy(), self.count)


def quantiles_of(kept: Iterable[int], count: int) -> Quantiles:
    """Statistics of `kept`. `count`: how many values there have ever been."""
    values = sorted(kept)
    if not values:
        return Quantiles(count, 0, 0, *[math.nan] * 9)
    mean = sum(values) / len(values)
    places = (quantile(values, q) for q in QUANTILES)
    return Quantiles(count, values[0], values[-1], mean, _deviation(values, mean), *places)


def _deviation(values: Sequence[float], mean: float) -> float:
    """The standard deviation of the sample; 0 for a single value."""
    if len(values) == 1:
        return 0.0
    squares = sum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1))


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantiles as Flink computes them: position q(n+1) in sorted order, linear between neighbours, clamped to the
    extremes.

    Source: commons-math DescriptiveStatistics; numpy calls it `weibull`.

    Return the quantile of values in ascending order. `q`: from 0 to 1. NaN: there are no values.
    """
    if not ordered:
        return float("nan")
    position = q * (len(ordered) + 1)
    below = int(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)
