"""Writes all metrics to the log `penstock.metrics` in intervals, at level INFO. Source: Flink Slf4jReporter."""

from __future__ import annotations

import logging
from typing import Final

from penstock.ops.metrics.report_text import report_texts
from penstock.ops.reporters.pushing import PushingReporter
from penstock.ops.reporters.settings import ReporterSettings
from penstock.ops.reporters.source import lent_metrics

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
