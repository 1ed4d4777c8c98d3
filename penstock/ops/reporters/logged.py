"""Writes all metrics to the log `penstock.metrics` in intervals, at level INFO. Source: Flink Slf4jReporter.

All metrics as text, one line each, for logs. Source: Flink Slf4jReporter; differs: it is cut into pieces.

Does not know where the text goes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.engine.metrics.values import rest_text
from penstock.engine.model.metrics import MetricType, Quantiles, Value
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.selection import Selection
from penstock.ops.reporters.pushing import PushingReporter
from penstock.ops.reporters.settings import ReporterSettings
from penstock.ops.reporters.source import lent_metrics

_TITLES: Final = {
    MetricType.COUNTER: "Counters",
    MetricType.GAUGE: "Gauges",
    MetricType.METER: "Meters",
    MetricType.HISTOGRAM: "Histograms",
}
_SHOWN: Final = ("min", "max", "mean", "stddev", "median", "p75", "p95", "p98", "p99", "p999")
_FLINKS: Final = {"median": "p50"}
"""What logs call it."""
_LINES: Final = 500


def report_texts(
    metrics: Iterable[ReportedMetric], selection: Selection, lines: int = _LINES
) -> Iterator[str]:
    """Return the texts of one report, by type of metric. `lines`: the most that one text has, besides its title."""
    found: dict[MetricType, list[str]] = {type_: [] for type_ in MetricType}
    for metric in metrics:
        if selection.takes(metric):
            text = f"{selection.identifier(metric)}: {_printed(metric.measured.value)}"
            found[metric.measured.type].append(text)
    for type_, title in _TITLES.items():
        of_type = found[type_]
        for begin in range(0, len(of_type), lines):
            yield "\n".join((f"-- {title} --", *of_type[begin : begin + lines]))


def _printed(value: Value) -> str:
    if not isinstance(value, Quantiles):
        return rest_text(value)
    parts = [f"{_FLINKS.get(one, one)}={rest_text(value, one)}" for one in _SHOWN]
    return ", ".join((f"count={value.count}", *parts))


METRICS_LOG: Final = logging.getLogger("penstock.metrics")


def logging_reporter(settings: ReporterSettings) -> PushingReporter:
    """Return one that runs. Raises: ConfigurationError: a setting is wrong."""
    selection = settings.selection()

    def report() -> None:
        with lent_metrics() as metrics:
            found = list(report_texts(metrics, selection))
        for text in found:
            METRICS_LOG.info("%s", text)

    return PushingReporter(settings.name, settings.interval_s, report)
