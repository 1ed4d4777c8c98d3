"""Metrics as points of OpenTelemetry. Source: Flink OpenTelemetryMetricReporter."""

import math

import pytest

from penstock.engine.metrics.registry import quantiles_of
from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.metrics import Distribution, Measured, MetricType, Quantiles, Rate
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.otlp import Delta, OtlpPoints, Summary, pieces
from penstock.ops.metrics.selection import MetricFilter, Selection

VARIABLES = {
    "host": "127.0.0.1", "tm_id": "tm-1", "job_id": "j", "job_name": "my job", "task_id": "v",
    "task_name": "map", "task_attempt_id": "j_v_0_0", "task_attempt_num": "0",
    "subtask_index": "0", "operator_id": "o", "operator_name": "my map",
}  # fmt: skip
PLACE = Place(Component.OPERATOR, VARIABLES)
COUNTER, GAUGE, METER, HISTOGRAM = MetricType


def metric(name, kind, value, groups=(), place=PLACE):
    return ReportedMetric(place, Measured(name, kind, value, groups))


def points(*metrics, of=None, now_ns=10):
    return list((of or OtlpPoints(Selection())).points(metrics, now_ns))


def test_a_metric_has_flinks_name_and_its_variables_unchanged():
    groups = (("my grp", None), ("k.1", "v:1 x"))
    (point,) = points(metric("my counter", GAUGE, 3, groups))
    assert point.name == "flink.taskmanager.job.task.operator.my grp.k_1.my counter"
    assert point.attributes == {**VARIABLES, "k.1": "v:1 x"}
    assert point.value == 3


def test_a_gauge_is_a_number_and_nothing_else():
    given = (("a", 1), ("b", 0.5), ("c", "text"), ("d", True))
    found = points(*(metric(name, GAUGE, value) for name, value in given))
    assert [point.value for point in found] == [1, 0.5]
    assert math.isnan(points(metric("e", GAUGE, math.nan))[0].value)


def test_a_counter_tells_what_was_counted_since_the_report_that_arrived_last():
    kept = OtlpPoints(Selection())
    first = points(metric("seen", COUNTER, 7), of=kept, now_ns=100)
    assert (first[0].value.count, first[0].value.start_ns) == (7, 0)
    again = points(metric("seen", COUNTER, 9), of=kept, now_ns=200)  # the first did not arrive
    assert (again[0].value.count, again[0].value.start_ns) == (9, 0)
    kept.sent(again, 200)
    kept.ended(200)
    third = points(metric("seen", COUNTER, 12), of=kept, now_ns=300)
    assert (third[0].value.count, third[0].value.start_ns) == (3, 200)


def test_counters_of_the_same_name_are_told_apart_by_place_and_by_the_values_of_groups():
    kept = OtlpPoints(Selection())
    other = Place(Component.OPERATOR, VARIABLES | {"subtask_index": "1"})
    metrics = (
        metric("seen", COUNTER, 1), metric("seen", COUNTER, 2, place=other),
        metric("seen", COUNTER, 3, (("k", "a"),)), metric("seen", COUNTER, 4, (("k", "b"),)),
    )  # fmt: skip
    kept.sent(points(*metrics, of=kept, now_ns=1), 1)
    found = points(*metrics, of=kept, now_ns=2)
    assert [point.value.count for point in found] == [0, 0, 0, 0]
    assert [point.attributes.get("k") for point in found] == [None, None, "a", "b"]


def test_a_counter_of_the_next_attempt_begins_anew():
    kept = OtlpPoints(Selection())
    kept.sent(points(metric("seen", COUNTER, 50), of=kept, now_ns=1), 1)
    attempt = Place(Component.OPERATOR, VARIABLES | {"task_attempt_num": "1"})
    (point,) = points(metric("seen", COUNTER, 4, place=attempt), of=kept, now_ns=2)
    assert (point.value.count, point.value.start_ns) == (4, 0)


def test_a_counter_that_is_counted_down_is_left_out_once_and_told():
    kept = OtlpPoints(Selection())
    kept.sent(points(metric("seen", COUNTER, 5), of=kept, now_ns=1), 1)
    assert points(metric("seen", COUNTER, 2), of=kept, now_ns=2) == []
    assert kept.fallen == {"flink.taskmanager.job.task.operator.seen"}
    kept.ended(2)
    (point,) = points(metric("seen", COUNTER, 6), of=kept, now_ns=3)
    assert point.value.count == 4


def test_what_has_ended_is_forgotten():
    kept = OtlpPoints(Selection())
    kept.sent(points(metric("seen", COUNTER, 5), of=kept, now_ns=1), 1)
    kept.ended(1)
    kept.sent(points(of=kept, now_ns=2), 2)
    kept.ended(2)
    assert not kept._sent


def test_a_meter_is_a_count_and_a_rate():
    count, rate = points(metric("events", METER, Rate(8.25, 99)))
    assert (count.name[-13:], count.value.count) == (".events.count", 99)
    assert isinstance(count.value, Delta)
    assert (rate.name[-12:], rate.value) == (".events.rate", 8.25)


def test_a_histogram_is_a_summary():
    value = quantiles_of(range(100), 250)
    (point,) = points(metric("latency", HISTOGRAM, value))
    expected = ((0.0, 0), (0.5, 49.5), (0.75, 74.75), (0.95, 94.95), (0.99, 98.99), (1.0, 99))
    assert isinstance(point.value, Summary)
    assert point.value.count == 250
    assert point.value.sum == 250 * 49.5
    assert [q for q, _ in point.value.quantiles] == [q for q, _ in expected]
    assert [v for _, v in point.value.quantiles] == pytest.approx([v for _, v in expected])


def test_a_histogram_without_values_has_quantiles_that_are_no_numbers():
    (point,) = points(metric("latency", HISTOGRAM, Quantiles(0, 0, 0, *[math.nan] * 9)))
    assert point.value.count == 0
    assert math.isnan(dict(point.value.quantiles)[0.5])


def test_a_distribution_of_a_user_is_a_summary_of_its_ends():
    (point,) = points(metric("size", GAUGE, Distribution(6285, 125, 0, 99)))
    assert point.value == Summary(125, 6285.0, ((0.0, 0.0), (1.0, 99.0)))


def test_filters_and_variables_of_the_reporter_count():
    selection = Selection(
        filter=MetricFilter(["*:seen"]), excluded=frozenset(VARIABLES), additional={"zone": "1"}
    )
    found = points(
        metric("seen", COUNTER, 1), metric("other", COUNTER, 1), of=OtlpPoints(selection)
    )
    assert [point.attributes for point in found] == [{"zone": "1"}]


def test_points_come_in_pieces():
    assert list(pieces("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(pieces("abcde", 0)) == [["a", "b", "c", "d", "e"]]
    assert list(pieces("", 2)) == []
