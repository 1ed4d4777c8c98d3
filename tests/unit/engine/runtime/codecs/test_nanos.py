"""Times in nanoseconds become Python's microseconds by one rule, with and without pandas. Expectations: integer arithmetic."""

import datetime as dt

import pyarrow as pa
import pytest

from penstock.engine.runtime.codecs.base import values_of_array
from penstock.engine.runtime.codecs.time_columns import nanos_as_micros, nanos_as_numbers

EPOCH = dt.datetime(1970, 1, 1)  # ruff: ignore[call-datetime-without-tzinfo] - as in files
NANOS = [1_711_852_200_123_456_789, -1, None, 999, -1000]
PLAIN = [
    EPOCH + dt.timedelta(microseconds=one // 1000) if one is not None else None for one in NANOS
]


def nanos(values):
    return pa.array(values, pa.int64()).cast(pa.timestamp("ns"))


def nested():
    times = nanos(NANOS)
    structs = pa.StructArray.from_arrays([times, pa.array("abcde")], ["at", "word"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, None, 3, 5], pa.int32()), times)
    maps = pa.MapArray.from_arrays([0, 2, 2, 5], pa.array("abcde"), times)
    return structs, lists, maps


def test_what_is_finer_than_a_microsecond_is_cut_towards_the_past():
    assert values_of_array(nanos(NANOS)) == PLAIN
    assert {type(one) for one in values_of_array(nanos(NANOS)) if one} == {dt.datetime}
    assert values_of_array(pa.array([1, 86_399_999_999_999], pa.time64("ns"))) == [
        dt.time(0), dt.time(23, 59, 59, 999_999),
    ]  # fmt: skip
    assert values_of_array(pa.array([-1, 1999], pa.duration("ns"))) == [
        dt.timedelta(microseconds=-1), dt.timedelta(microseconds=1),
    ]  # fmt: skip


@pytest.mark.parametrize("start", [0, 1])
def test_inside_of_nested_values_too(start):
    structs, lists, maps = (one.slice(start) for one in nested())
    words = zip(PLAIN, "abcde", strict=True)
    assert values_of_array(structs) == [{"at": at, "word": word} for at, word in words][start:]
    assert values_of_array(lists) == [PLAIN[:1], PLAIN[1:3], None, PLAIN[3:]][start:]
    pairs = [list(zip("ab", PLAIN[:2], strict=True)), [], list(zip("cde", PLAIN[2:], strict=True))]
    assert values_of_array(maps) == pairs[start:]
    fixed = pa.FixedSizeListArray.from_arrays(nanos(NANOS[:4]), 2).slice(start)
    assert values_of_array(fixed) == [PLAIN[:2], PLAIN[2:4]][start:]
    assert values_of_array(nanos(NANOS).dictionary_encode()) == PLAIN


def test_as_numbers_no_digit_is_lost_and_other_values_stay():
    assert nanos_as_numbers(nanos(NANOS)).to_pylist() == NANOS
    whole = pa.array([[1]], pa.list_(pa.int64()))
    assert nanos_as_numbers(whole) is whole
    assert nanos_as_micros(whole) is whole
