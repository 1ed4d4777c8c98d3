"""Values as Java prints them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.metrics.values import as_number, java_double, printed, rest_values
from penstock.engine.model.metrics import Distribution, Quantiles, Rate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (8.25, "8.25"), (100.0, "100.0"), (0.001, "0.001"),
        (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (1e-4, "1.0E-4"),
        (1.5e-10, "1.5E-10"), (-2.5e22, "-2.5E22"), (math.nan, "NaN"), (math.inf, "Infinity"),
        (-math.inf, "-Infinity"), (0.00012, "1.2E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)  # fmt: skip
def test_doubles_are_printed_as_by_java(value, text):
    assert java_double(value) == text


@given(st.floats(allow_nan=False))
def test_a_printed_double_is_the_same_double(value):
    assert float(java_double(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (False, "false"), (7, "7"), (-(2**63), "-9223372036854775808"),
        (2**63 - 1, "9223372036854775807"), ("n/a", "n/a"),
        (Distribution(6285, 125, 0, 99), "DistributionResult{sum=6285, count=125, min=0, max=99}"),
    ],
)  # fmt: skip
def test_other_values_are_printed_as_by_java(value, text):
    assert printed(value) == text


def test_a_meter_shows_its_rate():
    assert dict(rest_values("m", Rate(2.5, 100))) == {"m": "2.5"}


def test_a_histogram_has_an_id_for_each_statistic_and_none_of_its_own():
    value = Quantiles(1000, 1, 9, 5.0, 0.5, 5.5, 7.5, 9.0, 9.5, 9.8, 9.9, 9.99)
    assert dict(rest_values("h", value)) == {
        "h_min": "1", "h_max": "9", "h_mean": "5.0", "h_median": "5.5", "h_stddev": "0.5",
        "h_p75": "7.5", "h_p90": "9.0", "h_p95": "9.5", "h_p98": "9.8", "h_p99": "9.9",
        "h_p999": "9.99",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("1.0E7", 1e7), ("true", None), ("1_0", None), ("n/a", None)]
)
def test_a_text_is_a_number_only_if_java_reads_it_as_one(text, number):
    assert as_number(text) == number
