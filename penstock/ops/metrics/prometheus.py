"""Metrics as families of Prometheus: names, labels and values as Flink's reporters write them.

Does not know the text format or a connection. Source: Flink AbstractPrometheusReporter. Differs: each sample has its own labels, so
that none is dropped whose labels are not those of the first one; labels have only characters that Prometheus takes; a distribution
of a user is a summary with its sum and count, and two gauges, where Flink writes 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.metrics import Distribution, Groups, MetricType, Quantiles, Rate, Value
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.selection import Selection

_OTHERS: Final = re.compile(r"[^a-zA-Z0-9:_]")
_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
QUANTILES: Final = (
    ("0.5", "p50"), ("0.75", "p75"), ("0.95", "p95"), ("0.98", "p98"), ("0.99", "p99"),
    ("0.999", "p999"),
)  # fmt: skip
"""The label `quantile` and the statistic that it means."""
GAUGE: Final = "gauge"
SUMMARY: Final = "summary"
Labels: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Series:
    """Labels, and what distinguishes them from others."""

    labels: Labels
    key: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Family:
    """All metrics with one name. `type`: `gauge` or `summary`. `series`: labels and value, by the labels."""

    name: str
    documentation: str
    type: str
    series: dict[tuple[tuple[str, str], ...], tuple[Labels, Value]] = field(default_factory=dict)

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Return name, labels and value of each line."""
        for labels, value in self.series.values():
            yield from _samples(self.name, labels, value)


@dataclass(frozen=True, slots=True)
class _Described:
    """What all metrics with one description share."""

    takes: bool
    name: str = ""
    documentation: str = ""


_Key: TypeAlias = tuple[Component, Groups, str, MetricType]


class Families:
    """One page. Holds values only while it is made."""

    def __init__(self, selection: Selection, *, filters_values: bool = True) -> None:
        self._selection = selection
        self._filters_values = filters_values
        self._described: dict[_Key, _Described] = {}
        self._place: Place | None = None
        self._series = _Series({}, ())
        self._families: dict[str, Family] = {}
        self.left_out: set[str] = set()
        """Names that already were of a family of another type."""

    def take(self, metrics: Iterable[ReportedMetric]) -> None:
        """Add metrics. Of two with the same name and labels the later one counts."""
        for metric in metrics:
            described = self._description(metric)
            if described.takes:
                self._add(metric, described)

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def _description(self, metric: ReportedMetric) -> _Described:
        measured = metric.measured
        key = metric.place.component, measured.groups, measured.name, measured.type
        known = self._described.get(key)
        if known is None:
            known = self._described[key] = self._describe(metric)
        return known

    def _describe(self, metric: ReportedMetric) -> _Described:
        if not self._selection.takes(metric):
            return _Described(takes=False)
        words = [*metric.place.component.value.split(".")]
        words += [key for key, _ in metric.measured.groups]
        scope = "_".join(filtered(word) for word in words)
        name = metric.measured.name
        return _Described(
            takes=True,
            name=f"flink_{scope}_{filtered(name)}",
            documentation=f"{name} (scope: {scope})",
        )

    def _add(self, metric: ReportedMetric, described: _Described) -> None:
        value, series = metric.measured.value, self._series_of(metric)
        name, documentation = described.name, described.documentation
        if isinstance(value, Distribution):
            self._put(Family(name, documentation, SUMMARY), series, value)
            for end, bound in (("min", value.min), ("max", value.max)):
                self._put(Family(f"{name}_{end}", documentation, GAUGE), series, bound)
        else:
            kind = SUMMARY if isinstance(value, Quantiles) else GAUGE
            self._put(Family(name, documentation, kind), series, value)

    def _put(self, made: Family, series: _Series, value: Value) -> None:
        family = self._families.setdefault(made.name, made)
        if family.type != made.type:
            self.left_out.add(made.name)
            return
        family.series[series.key] = series.labels, value

    def _series_of(self, metric: ReportedMetric) -> _Series:
        """Return the labels. Metrics of one place come one after the other, and mostly have no variables of their own."""
        if any(value is not None for _, value in metric.measured.groups):
            return self._made(metric)
        if metric.place is not self._place:
            self._place, self._series = metric.place, self._made(metric)
        return self._series

    def _made(self, metric: ReportedMetric) -> _Series:
        values = filtered if self._filters_values else str
        variables = self._selection.variables(metric)
        labels = {label_name(name): values(value) for name, value in variables.items()}
        return _Series(labels, tuple(sorted(labels.items())))


def filtered(text: str) -> str:
    """Return the text with `_` for each character that names of Prometheus do not have."""
    return _OTHERS.sub("_", text)


def label_name(text: str) -> str:
    """Return a name for a label. Unlike a metric's it has no colon, and a digit does not come first."""
    name = _NO_LABEL.sub("_", text)
    return f"_{name}" if not name or name[0].isdigit() else name


def _samples(name: str, labels: Labels, value: Value) -> Iterator[tuple[str, Labels, float]]:
    if isinstance(value, Quantiles):
        for quantile, statistic in QUANTILES:
            yield name, {**labels, "quantile": quantile}, float(getattr(value, statistic))
        yield f"{name}_count", labels, float(value.count)
    elif isinstance(value, Distribution):
        yield f"{name}_count", labels, float(value.count)
        yield f"{name}_sum", labels, float(value.sum)
    else:
        yield name, labels, _number(value)


def _number(value: float | bool | str | Rate) -> float:
    """Return a text as 0, as Flink does."""
    if isinstance(value, Rate):
        return value.per_s
    return 0.0 if isinstance(value, str) else float(value)
