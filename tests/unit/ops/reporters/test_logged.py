"""Metrics in the log `penstock.metrics`."""

import logging

from penstock.engine.model.config import Settings
from penstock.ops.reporters.logged import METRICS_LOG, logging_reporter
from penstock.ops.reporters.settings import ReporterSettings
from tests.tools.waiting import wait_until


def test_each_report_has_a_record_for_each_type_of_metric(job_registry, caplog):
    given = {
        "metrics.reporter.x.interval": "10 ms",
        "metrics.reporter.x.filter.includes": "taskmanager*",
        "metrics.reporter.x.scope.delimiter": "/",
        "metrics.scope.tm": "here.<tm_id>",
    }
    with caplog.at_level(logging.INFO, METRICS_LOG.name):
        reporter = logging_reporter(ReporterSettings("x", Settings(given)))
        wait_until(lambda: len(caplog.records) >= 2, "nothing is reported")
        reporter.stop()
    first, second = caplog.records[:2]
    assert first.getMessage() == "-- Counters --\nhere/tm-1/my grp/seen: 7"
    assert second.getMessage() == "-- Meters --\nhere/tm-1/events: 8.25"
    assert {one.name for one in caplog.records} == {"penstock.metrics"}
