"""The metrics of user functions as they are reported. Does not know who registered them.

Source: PyFlink's MetricGroup in process mode; differs: a meter has its rate here, and gauges may give any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from penstock.engine.metrics import registry as rates
from penstock.engine.model.metrics import Distribution as DistributionValue
from penstock.engine.model.metrics import Groups, Measured, MetricType, Rate, Value
from penstock.engine.runtime.user_metrics import (
    MOST_CHARACTERS,
    MOST_NUMBERS,
    Counter,
    Distribution,
    Gauge,
    Meter,
    Metric,
    whole_name,
)

Walk: TypeAlias = Callable[[], Iterator[tuple[Groups, str, Metric]]]
_INT64: Final = range(-(2**63), 2**63)


class Allowance:
    """How many metrics of users one task may report. `left_out`: how many more it has, or whose names are too long."""

    def __init__(self) -> None:
        self.left_out = 0
        self._left = MOST_NUMBERS

    def begin(self) -> None:
        """A report begins."""
        self.left_out, self._left = 0, MOST_NUMBERS

    def admits(self, groups: Groups, name: str) -> bool:
        """Whether one more metric is reported. If not, it is counted."""
        if self._left > 0 and len(whole_name(groups, name)) <= MOST_CHARACTERS:
            self._left -= 1
            return True
        self.left_out += 1
        return False


class UserMetricsView:
    """The metrics of one operator's functions. Call `update` every 5 s."""

    def __init__(self, walk: Walk, allowance: Allowance) -> None:
        self._walk = walk
        self._allowance = allowance
        self._meters: dict[Meter, rates.Meter] = {}

    def update(self) -> None:
        """Move the rates of the users' meters on."""
        known, self._meters = self._meters, {}
        for _, _, metric in self._walk():
            if isinstance(metric, Meter):
                self._meters[metric] = meter = known.get(metric) or _meter_of(metric)
                meter.update()

    def measured(self) -> Iterator[Measured]:
        """All metrics that have a value and that the task may report."""
        for groups, name, metric in self._walk():
            found = self._value(metric)
            if found is not None and self._allowance.admits(groups, name):
                yield Measured(name, *found, groups)

    def _value(self, metric: Metric) -> tuple[MetricType, Value] | None:
        if isinstance(metric, Counter):
            count = metric.get_count()
            return (MetricType.COUNTER, count) if _is_whole(count) else None
        if isinstance(metric, Gauge):
            return None if metric.last is None else (MetricType.GAUGE, metric.last)
        if isinstance(metric, Meter):
            count, meter = metric.get_count(), self._meters.get(metric)
            per_s = 0.0 if meter is None else meter.per_s
            return (MetricType.METER, Rate(per_s, count)) if _is_whole(count) else None
        if isinstance(metric, Distribution) and metric.count:
            return MetricType.GAUGE, _distribution(metric)
        return None


def _meter_of(metric: Meter) -> rates.Meter:
    return rates.Meter(metric.get_count, metric.time_span_in_seconds)


def _is_whole(count: object) -> bool:
    return isinstance(count, int) and count in _INT64


def _distribution(metric: Distribution) -> Value:
    """The value, or its text if users gave it other numbers than ints."""
    numbers = (metric.sum, metric.count, metric.min, metric.max)
    assert metric.min is not None, "a distribution with values has a minimum"
    assert metric.max is not None, "a distribution with values has a maximum"
    value = DistributionValue(metric.sum, metric.count, metric.min, metric.max)
    return value if all(map(_is_whole, numbers)) else str(value)
