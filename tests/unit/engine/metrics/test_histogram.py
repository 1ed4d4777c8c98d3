"""Flink's quantiles, with the numbers of a live histogram."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.metrics.histogram import QUANTILES, Histogram, quantiles_of


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
