"""Texts of Delta's log that stand for values of partition columns. The expected values follow from the Delta protocol."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.connectors.lakehouse.delta_source import partition_value

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (None, pa.string(), None),
        ("", pa.string(), None),
        ("", pa.int32(), None),
        ("2026-01-02 03:04:05.000006", pa.timestamp("us", "UTC"), MOMENT),
        ("2026-01-02T03:04:05.000006Z", pa.timestamp("us", "UTC"), MOMENT),
        ("2026-01-02 05:04:05.000006+02:00", pa.timestamp("us", "UTC"), MOMENT),
        ("2026-01-02 03:04:05.000006", pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
        ("2026-01-02", pa.date32(), MOMENT.date()),
        ("-7", pa.int8(), -7),
        ("1.50", pa.decimal128(10, 2), Decimal("1.50")),
        ("true", pa.bool_(), True),
        ("1.5", pa.float64(), 1.5),
        ("a b/=%ü", pa.string(), "a b/=%ü"),
        ("\\u00FF\\u0001", pa.binary(), b"\xff\x01"),
        ("\u00ff\u0001", pa.binary(), b"\xff\x01"),
    ],
)
def test_a_text_stands_for_a_value(text, kind, value):
    found = partition_value(text, kind)
    assert found.type == kind
    assert found.as_py() == value
