"""One metric as a plain description: name, groups, type, value. Knows no scope and no reporter.

Source: Flink Metric, MetricGroup, Meter, HistogramStatistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

Group: TypeAlias = tuple[str, str | None]
"""A group of a metric's name: (name, None), or (key, value) of a key/value group."""
Groups: TypeAlias = tuple[Group, ...]


class MetricType(StrEnum):
    """The four types of Flink. A text is a gauge."""

    COUNTER = "counter"
    GAUGE = "gauge"
    METER = "meter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Rate:
    """The value of a meter. `per_s`: events per second. `count`: all events."""

    per_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The value of a histogram. `count`: all values ever; everything else is of the values that it keeps.

    Without values `min` and `max` are 0 and the others NaN. `stddev`: of the sample (n - 1).
    """

    count: int
    min: int
    max: int
    mean: float
    stddev: float
    p50: float
    p75: float
    p90: float
    p95: float
    p98: float
    p99: float
    p999: float


@dataclass(frozen=True, slots=True)
class Distribution:
    """The value of a user's distribution, over its whole life. A gauge, whose text is that of PyFlink."""

    sum: int
    count: int
    min: int
    max: int

    def __str__(self) -> str:
        figures = f"sum={self.sum}, count={self.count}, min={self.min}, max={self.max}"
        return f"DistributionResult{{{figures}}}"


Value: TypeAlias = int | float | bool | str | Rate | Quantiles | Distribution


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric and its value at one moment."""

    name: str
    type: MetricType
    value: Value
    groups: Groups = ()


@dataclass(frozen=True, slots=True)
class OwnMetric:
    """A metric that a part of a task has. `read`: returns the value on any thread; None: there is none for now.

    `has_rate`: next to it stands the meter `<name>PerSecond`.
    """

    name: str
    type: MetricType
    read: Callable[[], Any]
    groups: Groups = ()
    has_rate: bool = False


def counter(
    name: str, read: Callable[[], int], groups: Groups = (), *, has_rate: bool = False
) -> OwnMetric:
    """A counter that is read from somewhere."""
    return OwnMetric(name, MetricType.COUNTER, read, groups, has_rate)


def gauge(name: str, read: Callable[[], Any], groups: Groups = ()) -> OwnMetric:
    """A gauge that is read from somewhere."""
    return OwnMetric(name, MetricType.GAUGE, read, groups)
