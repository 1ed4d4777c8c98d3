"""Partition transforms of whole arrays, held against pyiceberg's of single values."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from penstock.connectors.lakehouse.iceberg_files import transformed

RANDOM = random.Random(1)
MICROS = [RANDOM.randrange(-(2**51), 2**51) for _ in range(300)]
MOMENTS = [
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=one) for one in MICROS
]
LONGS = [
    0,
    -1,
    2**63 - 1,
    -(2**63) + 100,
    *(RANDOM.randrange(-(2**63) + 100, 2**63) for _ in range(300)),
]
INTS = [
    0,
    -1,
    2**31 - 1,
    -(2**31) + 100,
    *(RANDOM.randrange(-(2**31) + 100, 2**31) for _ in range(300)),
]
TEXTS = ["", "a", "iceberg", "grüße", "水の流れ", *map(str, LONGS)]
DECIMALS = [Decimal(one).scaleb(-2) for one in INTS]
DATES = [one.date() for one in MOMENTS]
TIMES = [one.time() for one in MOMENTS]
PLAIN = [one.replace(tzinfo=None) for one in MOMENTS]
CASES = [
    (LongType(), pa.int64(), LONGS, ["bucket[7]", "truncate[10]"]),
    (IntegerType(), pa.int32(), INTS, ["bucket[16]", "truncate[3]"]),
    (DateType(), pa.date32(), DATES, ["bucket[16]", "year", "month", "day"]),
    (TimeType(), pa.time64("us"), TIMES, ["bucket[16]"]),
    (TimestampType(), pa.timestamp("us"), PLAIN, ["bucket[16]", "year", "month", "day", "hour"]),
    (TimestamptzType(), pa.timestamp("us", "UTC"), MOMENTS, ["bucket[5]", "year", "day", "hour"]),
    (StringType(), pa.large_string(), TEXTS, ["bucket[16]", "truncate[2]"]),
    (StringType(), pa.string(), TEXTS, ["truncate[3]"]),
    (DecimalType(12, 2), pa.decimal128(12, 2), DECIMALS, ["bucket[16]", "truncate[10]"]),
    (
        BinaryType(),
        pa.large_binary(),
        [one.encode() for one in TEXTS],
        ["bucket[16]", "truncate[2]"],
    ),
]


def internal(value):
    """As pyiceberg's transforms take it."""
    if isinstance(value, dt.datetime):
        return datetime_to_micros(value)
    if isinstance(value, dt.date):
        return date_to_days(value)
    return time_to_micros(value) if isinstance(value, dt.time) else value


@pytest.mark.parametrize(
    ("source", "kind", "values", "name"),
    [
        pytest.param(source, kind, values, name, id=f"{kind}-{name}")
        for source, kind, values, names in CASES
        for name in names
    ],
)
def test_an_array_gives_what_single_values_give(source, kind, values, name):
    transform = parse_transform(name)
    one = transform.transform(source)
    found = transformed(transform, source, pa.array([*values, None], kind))
    assert found.to_pylist() == [*(one(internal(value)) for value in values), None]


def test_identity_keeps_values_and_void_none():
    values = pa.array([1, None], pa.int32())
    assert transformed(parse_transform("identity"), IntegerType(), values) is values
    assert transformed(parse_transform("void"), IntegerType(), values).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("source", "kind", "values", "cut"),
    [
        (IntegerType(), pa.int32(), [-(2**31), -(2**31) + 8], [2**31 - 2, -(2**31) + 8]),
        (LongType(), pa.int64(), [-(2**63), -(2**63) + 8], [2**63 - 2, -(2**63) + 8]),
    ],
)
def test_what_would_be_cut_below_the_least_number_is_as_iceberg_has_it(source, kind, values, cut):
    """As `Transforms.truncate(10)` of Iceberg 1.10.0 in Java; pyiceberg leaves the type's range."""
    found = transformed(parse_transform("truncate[10]"), source, pa.array(values, kind))
    assert found.to_pylist() == cut
