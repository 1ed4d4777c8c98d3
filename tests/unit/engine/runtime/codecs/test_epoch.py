"""Event times of columns. Expectations: Python's integer arithmetic, and its datetime."""

import datetime as dt

import pyarrow as pa
import pytest

from penstock.engine.runtime.codecs.time_columns import epoch_ms
from penstock.engine.runtime.elements import NO_TIMESTAMP

NANOS = [0, 1, 999_999, 1_000_000, -1, -1_000_001, 1_711_852_200_123_456_789, -(2**62)]
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_timestamp_is_cut_to_milliseconds_towards_the_past(unit, zone):
    numbers = [one // UNITS[unit] for one in NANOS]
    column = pa.array([*numbers, None], pa.int64()).cast(pa.timestamp(unit, zone))
    expected = [one * UNITS[unit] // 10**6 for one in numbers]
    assert epoch_ms(column).tolist() == [*expected, NO_TIMESTAMP]
    assert epoch_ms(column.slice(0, 8)).tolist() == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint16(), pa.uint64()])
def test_an_integer_has_milliseconds(kind):
    assert epoch_ms(pa.array([7, None], kind)).tolist() == [7, NO_TIMESTAMP]
    assert epoch_ms(pa.array([], kind)).tolist() == []


def test_with_a_null_no_digit_is_lost():
    big = 2**53 + 1
    assert epoch_ms(pa.array([big, None, -big])).tolist() == [big, NO_TIMESTAMP, -big]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_a_date_is_its_midnight_in_utc(kind):
    days = [dt.date(2024, 1, 1), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    expected = [(one - dt.date(1970, 1, 1)).days * 86_400_000 for one in days]
    assert epoch_ms(pa.array([*days, None], kind)).tolist() == [*expected, NO_TIMESTAMP]


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array(["1"]), pa.array([True])])
def test_other_types_have_no_time(column):
    with pytest.raises(TypeError, match="expected epoch milliseconds as an integer, a timestamp"):
        epoch_ms(column)


def test_what_does_not_fit_is_refused():
    with pytest.raises(OverflowError, match="64 bits"):
        epoch_ms(pa.array([2**62], pa.int64()).cast(pa.timestamp("s")))
    with pytest.raises(pa.ArrowInvalid):
        epoch_ms(pa.array([2**63], pa.uint64()))
