"""One number for each measure of a vertex. Source: docs/spec/autoscaler.md#measures."""

import math

import pytest

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.evaluation import Measured, measured
from penstock.ops.autoscaler.rules.samples import JobSample, VertexSample
from penstock.ops.autoscaler.rules.settings import Aggregator, WindowSettings

V = VertexId("v")


DEFAULTS = WindowSettings()


def measure(*samples, settings=DEFAULTS, every_ms=10_000):
    return measured(
        [JobSample(number * every_ms, {V: one}) for number, one in enumerate(samples)], V, settings
    )


@pytest.mark.parametrize(
    ("aggregator", "busy"), [(Aggregator.MAX, 750), (Aggregator.MIN, 150), (Aggregator.AVG, 400)]
)
def test_busy_time_is_of_the_subtask_that_the_aggregator_names(aggregator, busy):
    """AVG: 16,000 ms of 4 subtasks in 10 s."""
    first = VertexSample(4, busy_ms_max=700, busy_ms_min=100, busy_ms_total=1_000)
    last = VertexSample(4, busy_ms_max=800, busy_ms_min=200, busy_ms_total=17_000)
    found = measure(first, last, settings=WindowSettings(aggregator=aggregator))
    assert found.busy_ms == busy


def test_busy_times_that_are_not_finite_do_not_count():
    nan = VertexSample(1, busy_ms_max=math.nan)
    assert measure(nan, VertexSample(1, busy_ms_max=500)).busy_ms == 500
    assert measure(nan, VertexSample(1)).busy_ms is None


def test_a_rate_is_the_mean_of_the_gauge_or_comes_from_the_counts():
    gauge = [VertexSample(1, records_in=0, records_in_per_second=rate) for rate in (100, 300)]
    assert measure(*gauge).in_rate == 200
    counts = [
        VertexSample(1, records_in=count, records_out=2 * count) for count in (5_000, 0, 25_000)
    ]
    found = measure(*counts)
    assert (found.in_rate, found.out_rate) == (1_000, 2_000)
    assert measure(VertexSample(1), VertexSample(1)).in_rate is None


def test_lag_is_that_of_the_end_and_missing_is_zero():
    found = measure(VertexSample(1), VertexSample(1, pending_records=30_000))
    assert (found.lag, found.lag_growth) == (30_000, 3_000)


def test_the_rate_by_busy_time_is_that_of_full_load():
    assert (
        measure(*[VertexSample(1, busy_ms_max=250, records_in_per_second=100)] * 2).busy_rate == 400
    )
    idle = [VertexSample(1, busy_ms_max=0, records_in_per_second=0)] * 2
    assert measure(*idle).busy_rate == math.inf


def source(rate, lag, back_pressured=0.0):
    return VertexSample(
        1,
        busy_ms_max=100,
        back_pressured_ms=back_pressured,
        records_in_per_second=rate,
        pending_records=lag,
    )


def test_a_source_shows_what_it_can_do_while_much_waits():
    """100/s in the 80 % of its time in which it is not held up."""
    assert measure(*[source(100, 3_000, 200)] * 2).observed_rate == 125
    assert measure(*[source(100, 2_999, 200)] * 2).observed_rate is None


def test_it_must_show_that_often_enough():
    assert measure(source(100, 0), source(100, 3_000)).observed_rate is None
    assert measure(source(100, 0), source(100, 3_000), source(200, 6_000)).observed_rate == 150


def test_held_up_all_the_time_or_without_records_it_shows_nothing():
    assert measure(*[source(100, 9_000, 1000)] * 3).observed_rate is None
    assert measure(*[source(0, 9_000)] * 3).observed_rate is None


@pytest.mark.parametrize(
    ("busy_ms", "observed", "used"),
    [
        (1000, None, (1000, False)),
        (1000, 870, (1000, False)),  # 1.149 times
        (1000, 869, (869, True)),  # 1.151 times
        (0, 500, (500, True)),
        (None, 500, (500, True)),
        (None, None, (None, False)),
        (1000, 2000, (1000, False)),
    ],
)
def test_what_a_source_has_shown_counts_where_its_busy_time_promises_much_more(
    busy_ms, observed, used
):
    found = Measured(1, busy_ms, 0, 1000, 1000, observed_rate=observed)
    assert found.true_rate(0.15) == used


def test_a_finished_vertex_counts_as_zero():
    found = measure(VertexSample(2, records_in=5), VertexSample(2, records_in=9, is_finished=True))
    assert found.is_finished
    assert (found.in_rate, found.out_rate, found.lag) == (0, 0, 0)


def test_of_a_vertex_that_the_newest_sample_lacks_nothing_is_known():
    assert (
        measured([JobSample(0, {V: VertexSample(1)}), JobSample(1, {})], V, WindowSettings())
        is None
    )
