"""The metrics of one place (a task, an operator, a process), registered once and read at each report.

What fails when it is read is left out of that report. Meters and time gauges move with `update`. Does not know threads: whoever registers
says by that that reading is safe on the reporting thread. Source: Flink MetricRegistryImpl, MetricDumpSerialization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from penstock.engine.metrics.histogram import Histogram
from penstock.engine.metrics.meter import SPAN_S, Meter
from penstock.engine.model.metrics import Groups, Measured, MetricType, OwnMetric, Value

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
