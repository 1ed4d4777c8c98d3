"""What is registered, and what becomes of metrics that cannot be read."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.metrics.registry import (
    QUANTILES,
    Histogram,
    LongestTime,
    Meter,
    Registry,
    SpentTime,
    quantile,
    quantiles_of,
)
from penstock.engine.model.metrics import Measured, MetricType, Rate, counter, gauge


def values(registry: Registry) -> dict[str, object]:
    return {one.name: one.value for one in registry.measured()}


def test_a_metric_with_a_rate_has_a_meter_beside_it():
    registry = Registry()
    registry.add(counter("numRecordsIn", lambda: 600, has_rate=True))
    registry.update()
    assert values(registry) == {"numRecordsIn": 600, "numRecordsInPerSecond": Rate(10.0, 600)}
    types = {one.name: one.type for one in registry.measured()}
    assert types["numRecordsInPerSecond"] is MetricType.METER


def test_a_metric_that_raises_or_has_no_value_is_left_out_alone():
    registry = Registry()
    registry.add(gauge("bad", lambda: 1 / 0), gauge("none", lambda: None), gauge("good", lambda: 1))
    registry.more(lambda: [Measured("more", MetricType.GAUGE, 2)])
    registry.more(lambda: 1 / 0)
    assert values(registry) == {"good": 1, "more": 2}


def test_the_first_of_a_name_stays_and_groups_tell_names_apart():
    registry = Registry()
    registry.add(
        gauge("a", lambda: 1), gauge("a", lambda: 2), gauge("a", lambda: 3, (("g", None),))
    )
    assert [(one.groups, one.value) for one in registry.measured()] == [
        ((), 1),
        ((("g", None),), 3),
    ]


def test_a_rate_that_cannot_be_updated_keeps_its_value_and_holds_nobody_up():
    registry = Registry()
    reads = iter([300])
    registry.meter("first", lambda: next(reads))
    registry.meter("second", lambda: 600)
    registry.update()
    registry.update()
    assert values(registry) == {"second": Rate(10.0, 600)}


def test_a_histogram_is_read_when_it_is_reported():
    registry, histogram = Registry(), Histogram(10)
    registry.histogram("h", histogram)
    histogram.add(5)
    (found,) = registry.measured()
    assert (found.type, found.value) == (MetricType.HISTOGRAM, histogram.quantiles)


class Count:
    def __init__(self) -> None:
        self.value = 0

    def __call__(self) -> int:
        return self.value


def rates(meter: Meter, count: Count, steps: list[int]) -> list[float]:
    """The rate after each step of 5 s, in which so many events came."""
    found = []
    for step in steps:
        count.value += step
        meter.update()
        found.append(meter.per_s)
    return found


def test_a_steady_rate_of_100_shows_a_twelfth_after_5_s_and_all_after_60_s():
    count = Count()
    found = rates(Meter(count), count, [500] * 14)
    assert found[0] == pytest.approx(8.333, abs=0.001)
    assert found[5] == pytest.approx(50)
    assert found[11:] == [100.0, 100.0, 100.0]


def test_a_rate_is_0_a_whole_span_after_the_last_event():
    count = Count()
    found = rates(Meter(count, 10), count, [50, 0, 0])
    assert found == [5.0, 5.0, 0.0]


@pytest.mark.parametrize(("span", "used"), [(60, 60), (14, 10), (5, 5), (3, 5), (0, 5)])
def test_a_span_is_rounded_down_to_a_multiple_of_5_and_is_at_least_5(span, used):
    count = Count()
    (found,) = rates(Meter(count, span), count, [used])
    assert found == 1.0


def test_a_meter_tells_the_count_now_and_the_rate_of_the_last_update():
    count = Count()
    meter = Meter(count)
    rates(meter, count, [60])
    count.value += 7
    assert (meter.rate.count, meter.rate.per_s) == (67, 1.0)


def test_a_share_of_time_divides_by_the_windows_that_are_filled():
    spent = Count()
    share = SpentTime(spent)
    assert share.ms_per_s == 0
    spent.value += 1000
    assert share.ms_per_s == 0, "until the first window is over"
    share.update()
    assert share.ms_per_s == 200
    share.update()
    assert share.ms_per_s == 100


def test_a_share_of_time_forgets_after_60_s_and_stays_within_a_second():
    spent = Count()
    share = SpentTime(spent)
    spent.value += 9000
    share.update()
    assert share.ms_per_s == 1000
    for _ in range(12):
        share.update()
    assert share.ms_per_s == 0


def test_the_longest_time_is_that_of_the_window_that_ended_last():
    longest = LongestTime()
    longest.add(3)
    longest.add(40)
    assert longest.last_ms == 0
    longest.update()
    assert longest.last_ms == 40
    longest.update()
    assert longest.last_ms == 0


def filled(size: int, values) -> Histogram:
    histogram = Histogram(size)
    for value in values:
        histogram.add(value)
    return histogram


def test_the_quantiles_of_0_to_99_are_those_of_a_true_cluster():
    found = filled(128, range(100)).quantiles
    assert (found.p75, found.p99) == pytest.approx((74.75, 98.99))
    assert (found.min, found.max, found.mean, found.count) == (0, 99, 49.5, 100)


def test_only_the_last_values_are_kept_but_all_are_counted():
    found = filled(10, range(1000)).quantiles
    assert (found.min, found.max, found.count) == (990, 999, 1000)


def test_without_values_minimum_and_maximum_are_0_and_all_else_is_no_number():
    found = filled(10, ()).quantiles
    assert (found.count, found.min, found.max) == (0, 0, 0)
    others = (found.mean, found.stddev, found.p50, found.p75, found.p90, found.p95, found.p999)
    assert all(map(math.isnan, others))


def test_a_single_value_is_every_quantile_and_deviates_by_nothing():
    found = filled(10, [7]).quantiles
    assert (found.min, found.p50, found.p999, found.max, found.stddev) == (7, 7, 7, 7, 0)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=200))
def test_quantiles_are_those_that_numpy_calls_weibull(values):
    found = quantiles_of(values, len(values))
    told = (found.p50, found.p75, found.p90, found.p95, found.p98, found.p99, found.p999)
    for q, value in zip(QUANTILES, told, strict=True):
        assert value == pytest.approx(np.percentile(values, q * 100, method="weibull"))


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=50))
def test_the_deviation_is_that_of_a_sample(values):
    found = filled(50, values).quantiles
    assert found.stddev == pytest.approx(statistics.stdev(values), abs=1e-6)


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50),
    st.floats(0.001, 0.999),
)
def test_a_quantile_is_that_of_commons_math(values, q):
    """numpy calls the rule weibull."""
    expected = np.percentile(values, 100 * q, method="weibull")
    assert np.isclose(quantile(sorted(values), q), expected, atol=1e-6)


def test_without_values_there_is_no_quantile():
    assert np.isnan(quantile([], 0.5))
