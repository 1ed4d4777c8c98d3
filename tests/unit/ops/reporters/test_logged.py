"""Metrics in the log `penstock.metrics`."""

import logging

from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.config import Settings
from penstock.engine.model.metrics import Measured, MetricType, Quantiles, Rate
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.selection import MetricFilter, Selection
from penstock.ops.reporters.logged import METRICS_LOG, logging_reporter, report_texts
from penstock.ops.reporters.settings import ReporterSettings
from tests.tools.waiting import wait_until

PLACE = Place(Component.TASKMANAGER, {"host": "h.1", "tm_id": "t"})
HISTOGRAM = Quantiles(125, 0, 99, 1.0, 2.0, 50.0, 75.5, 90.0, 95.0, 98.0, 99.0, 99.9)


def metric(name, type_, value):
    return ReportedMetric(PLACE, Measured(name, type_, value, (("my grp", None),)))


ALL = [
    metric("g", MetricType.GAUGE, "a text"),
    metric("c", MetricType.COUNTER, 5),
    metric("m", MetricType.METER, Rate(8.25, 99)),
    metric("h", MetricType.HISTOGRAM, HISTOGRAM),
    metric("f", MetricType.GAUGE, True),
]


def test_each_type_has_its_lines_and_each_metric_one():
    assert list(report_texts(ALL, Selection())) == [
        "-- Counters --\nh_1.taskmanager.t.my grp.c: 5",
        "-- Gauges --\nh_1.taskmanager.t.my grp.g: a text\nh_1.taskmanager.t.my grp.f: true",
        "-- Meters --\nh_1.taskmanager.t.my grp.m: 8.25",
        (
            "-- Histograms --\nh_1.taskmanager.t.my grp.h: count=125, min=0, max=99, mean=1.0, "
            "stddev=2.0, p50=50.0, p75=75.5, p95=95.0, p98=98.0, p99=99.0, p999=99.9"
        ),
    ]


def test_a_text_is_cut_after_some_lines():
    many = [metric(str(i), MetricType.COUNTER, i) for i in range(5)]
    found = [text.split("\n") for text in report_texts(many, Selection(), lines=2)]
    assert [len(lines) - 1 for lines in found] == [2, 2, 1]
    assert {lines[0] for lines in found} == {"-- Counters --"}


def test_what_the_reporter_does_not_show_is_left_out():
    chosen = Selection(filter=MetricFilter(["*:*:meter"]), delimiter="/")
    found = list(report_texts(ALL, chosen))
    assert found == ["-- Meters --\nh.1/taskmanager/t/my grp/m: 8.25"]


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
