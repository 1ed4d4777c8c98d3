"""Metrics as OpenTelemetry has them: names, attributes and points as Flink's reporter writes them.

Does not know a message or a connection. Source: Flink OpenTelemetryMetricReporter, OpenTelemetryMetricAdapter. Differs: what a report
that was not sent has counted is in the next one; a distribution of a user is a summary, where Flink sends nothing; the largest value of
a summary comes once, where Flink writes it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.metrics import Distribution, Groups, MetricType, Quantiles, Rate
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.selection import Selection

_PREFIX: Final = "flink"
_SHOWN: Final = (
    (0.0, "min"), (0.5, "p50"), (0.75, "p75"), (0.95, "p95"), (0.99, "p99"), (1.0, "max"),
)  # fmt: skip
"""The quantiles of a summary, and the statistics that they are."""


_IDENTITY: Final = (
    "tm_id", "job_id", "task_id", "subtask_index", "task_attempt_num", "operator_id",
)  # fmt: skip
"""The variables that distinguish one place from all others."""
_Groups: TypeAlias = tuple[str, ...]
Key: TypeAlias = tuple[str, tuple[str | None, ...], _Groups]
"""The identity of a counter: its name, the identity of its place, and the values of its groups."""
_Described: TypeAlias = tuple[Component, Groups, str, MetricType]


@dataclass(frozen=True, slots=True)
class Delta:
    """How much was counted since the time `start_ns`, epoch ns; 0: since the counter was made. `total`: all that it has counted."""

    count: int
    start_ns: int
    total: int
    key: Key


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary as OpenTelemetry has it. `quantiles`: (quantile from 0 to 1, value)."""

    count: int
    sum: float
    quantiles: tuple[tuple[float, float], ...]


PointValue: TypeAlias = Delta | Summary | int | float


@dataclass(frozen=True, slots=True)
class Point:
    """One value at the time of the report. A plain number is a gauge."""

    name: str
    attributes: Mapping[str, str]
    value: PointValue


@dataclass(frozen=True, slots=True)
class _Series:
    """What all metrics of one place share."""

    place: Place
    attributes: Mapping[str, str]
    identity: tuple[str | None, ...]


class OtlpPoints:
    """The points of one reporter. It remembers what each counter had when it was sent last.

    A report is `points`, then `sent` for those that have arrived, then `ended` if all have.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._names: dict[_Described, str | None] = {}
        self._sent: dict[Key, tuple[int, int]] = {}
        self._series: _Series | None = None
        self.fallen: set[str] = set()
        """Names of counters that have been counted down. A delta cannot say that, so such a point is left out."""

    def points(self, metrics: Iterable[ReportedMetric], now_ns: int) -> Iterator[Point]:
        """Return the points of a report. `now_ns`: its time, epoch ns."""
        for metric in metrics:
            name = self._name(metric)
            if name is not None:
                yield from self._of(name, metric, now_ns)

    def sent(self, points: Iterable[Point], now_ns: int) -> None:
        """These have arrived, of the report at this time."""
        for point in points:
            if isinstance(point.value, Delta):
                self._sent[point.value.key] = point.value.total, now_ns

    def ended(self, now_ns: int) -> None:
        """Forget counters that the report at this time did not have: their subtasks have ended."""
        self._sent = {key: known for key, known in self._sent.items() if known[1] == now_ns}

    def _name(self, metric: ReportedMetric) -> str | None:
        """Return the name; None: the reporter does not show the metric. Most metrics share it with those of other subtasks."""
        measured = metric.measured
        key = metric.place.component, measured.groups, measured.name, measured.type
        if key not in self._names:
            shown = f"{_PREFIX}.{metric.logical_scope()}.{measured.name}"
            self._names[key] = shown if self._selection.takes(metric) else None
        return self._names[key]

    def _of(self, name: str, metric: ReportedMetric, now_ns: int) -> Iterator[Point]:
        measured, series = metric.measured, self._series_of(metric)
        attributes = series.attributes
        match measured.value:
            case Rate(per_s, count):
                yield from self._counted(f"{name}.count", series, metric, (count, now_ns))
                yield Point(f"{name}.rate", attributes, per_s)
            case Quantiles():
                yield Point(name, attributes, _summary(measured.value))
            case Distribution(total, count, least, most):
                ends = ((0.0, float(least)), (1.0, float(most)))
                yield Point(name, attributes, Summary(count, float(total), ends))
            case bool() | str():  # OpenTelemetry has no form for them.
                return
            case _ if measured.type is MetricType.COUNTER:
                yield from self._counted(name, series, metric, (int(measured.value), now_ns))
            case _:
                yield Point(name, attributes, measured.value)

    def _counted(
        self, name: str, series: _Series, metric: ReportedMetric, counted: tuple[int, int]
    ) -> Iterator[Point]:
        """`counted`: the count, and when."""
        count, _ = counted
        values = tuple(value for _, value in metric.measured.groups if value is not None)
        key = name, series.identity, values
        before, start_ns = self._sent.get(key, (0, 0))
        if count < before:
            self.fallen.add(name)
            self._sent[key] = counted
            return
        yield Point(name, series.attributes, Delta(count - before, start_ns, count, key))

    def _series_of(self, metric: ReportedMetric) -> _Series:
        """Return what is the same for the metrics of a place, which come one after the other."""
        known, place = self._series, metric.place
        has_own = any(value is not None for _, value in metric.measured.groups)
        if known is not None and known.place is place and not has_own:
            return known
        identity = tuple(place.variables.get(name) for name in _IDENTITY)
        made = _Series(place, self._selection.variables(metric), identity)
        if not has_own:
            self._series = made
        return made


def pieces(points: Iterable[Point], size: int) -> Iterator[Sequence[Point]]:
    """Return the points in pieces of one request each. `size`: the most in a piece; 0: all are one piece."""
    piece: list[Point] = []
    for point in points:
        piece.append(point)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


def _summary(value: Quantiles) -> Summary:
    quantiles = tuple((quantile, float(getattr(value, name))) for quantile, name in _SHOWN)
    return Summary(value.count, value.mean * value.count, quantiles)
