"""Metrics of user functions: what is reported of them, and how much of it at most."""

from decimal import Decimal

import numpy as np
import pytest

from penstock.engine.model.messages import UserMetric
from penstock.engine.runtime.user_metrics import (
    MOST_CHARACTERS,
    MOST_NUMBERS,
    Counter,
    Metric,
    MetricGroup,
    UserMetrics,
)


def reported(metrics: UserMetrics) -> dict[str, float]:
    return {metric.name: metric.value for metric in metrics.numbers()[0]}


@pytest.fixture
def metrics() -> UserMetrics:
    return UserMetrics()


@pytest.fixture
def group(metrics: UserMetrics) -> MetricGroup:
    return metrics.group_of("uid", "Map")


def test_a_number_has_its_operator_and_its_name_with_groups(metrics, group) -> None:
    group.add_group("outer").add_group("key", "value").counter("seen").inc(3)
    assert metrics.numbers() == ((UserMetric("uid", "Map", "outer.key.value.seen", 3),), 0)


def test_each_kind_of_metric_is_reported_as_numbers(metrics, group) -> None:
    counter = group.counter("c")
    counter.inc()
    counter.inc(5)
    counter.dec(2)
    meter = group.meter("m")
    meter.mark_event()
    meter.mark_event(4)
    distribution = group.distribution("d")
    for value in (5, 2, 9):
        distribution.update(value)
    assert reported(metrics) == {
        "c": 4, "m.count": 5, "d.count": 3, "d.sum": 16, "d.min": 2, "d.max": 9,
    }  # fmt: skip


def test_a_distribution_without_values_has_no_extremes(metrics, group) -> None:
    group.distribution("d")
    assert reported(metrics) == {"d.count": 0, "d.sum": 0}


def test_the_same_name_is_the_same_metric(metrics, group) -> None:
    group.counter("c").inc()
    group.counter("c").inc()
    assert reported(metrics) == {"c": 2}


def test_a_name_cannot_be_of_two_kinds(group) -> None:
    group.counter("c")
    with pytest.raises(TypeError, match="'c' is a counter already, so it cannot be a meter"):
        group.meter("c")
    with pytest.raises(TypeError, match="'c' is a counter already, so it cannot be a gauge"):
        group.gauge("c", lambda: 1)


def test_the_last_gauge_of_a_name_counts(metrics, group) -> None:
    group.gauge("g", lambda: 1)
    group.gauge("g", lambda: 2)
    metrics.update_gauges()
    assert reported(metrics) == {"g": 2}


def test_a_gauge_is_asked_on_the_tasks_thread_only(metrics, group) -> None:
    asked = []
    group.gauge("g", lambda: asked.append(1) or len(asked))
    assert metrics.has_gauges
    assert reported(metrics) == {}
    metrics.update_gauges()
    assert reported(metrics) == reported(metrics) == {"g": 1}
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("told", "expected"),
    [(7, 7), (True, 1), (1.5, 1.5), (np.int64(3), 3), (np.float32(0.5), 0.5)],
)
def test_a_gauge_is_reported_as_a_plain_number(metrics, group, told, expected) -> None:
    group.gauge("g", lambda: told)
    metrics.update_gauges()
    (found,) = reported(metrics).values()
    assert found == expected
    assert type(found) in {int, float}


@pytest.mark.parametrize("told", ["7", None, Decimal(1)])
def test_a_gauge_that_tells_no_number_is_complained_of_once(metrics, group, told) -> None:
    group.gauge("g", lambda: told)
    (complaint,) = metrics.update_gauges()
    assert "gauge 'g' of operator 'Map' returned" in complaint
    assert metrics.update_gauges() == []
    assert reported(metrics) == {}


def test_a_gauge_that_fails_is_complained_of_anew_after_it_has_told_a_number(
    metrics, group
) -> None:
    answers = iter([1 / 1, ZeroDivisionError("no"), ZeroDivisionError("no"), 2, ValueError("x")])

    def tell():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    group.gauge("g", tell)
    complaints = [metrics.update_gauges() for _ in range(5)]
    assert [len(one) for one in complaints] == [0, 1, 0, 0, 1]
    assert "raised ZeroDivisionError: no" in complaints[1][0]


def test_a_gauge_must_be_a_function(group) -> None:
    with pytest.raises(TypeError, match="takes a function"):
        group.gauge("g", 3)


def test_what_is_too_much_is_left_out_and_counted(metrics, group) -> None:
    for number in range(MOST_NUMBERS + 7):
        group.counter(f"c{number}")
    numbers, left_out = metrics.numbers()
    assert (len(numbers), left_out) == (MOST_NUMBERS, 7)


def test_a_name_that_is_too_long_is_left_out_and_counted(metrics, group) -> None:
    group.counter("x" * MOST_CHARACTERS)
    group.counter("x" * (MOST_CHARACTERS + 1))
    numbers, left_out = metrics.numbers()
    assert (len(numbers), left_out) == (1, 1)


def test_what_is_no_number_any_more_is_left_out(metrics, group) -> None:
    group.counter("c").inc(Decimal(1))
    assert metrics.numbers() == ((), 1)


def test_an_operator_that_is_opened_again_begins_anew(metrics, group) -> None:
    group.counter("c").inc()
    metrics.group_of("uid", "Map").counter("c")
    assert reported(metrics) == {"c": 0}


def test_the_names_under_pyflinks_address_are_these() -> None:
    from penstock import metrics as public

    assert public.Counter is Counter
    assert issubclass(public.Distribution, Metric)
    assert public.MetricGroup is MetricGroup
