"""What a codec of records says about a value that does not fit."""

import datetime as dt
from decimal import Decimal

import pytest

from penstock.common import Row, Types
from penstock.engine.runtime.codecs.by_type import codec_of
from penstock.engine.runtime.codecs.convert import (
    coded_values,
    coerce_collection,
    to_rows,
    to_sent,
)
from penstock.engine.runtime.elements import ColumnBatch, RowBatch


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]),
            Row(1, 2),
            r"^field 'b': a value of type int",
        ),
        (
            Types.TUPLE([Types.INT(), Types.STRING()]),
            ("x", "y"),
            r"^field 'f0': a value of type str",
        ),
        (
            Types.ROW_NAMED(["a"], [Types.ROW_NAMED(["b"], [Types.BYTE()])]),
            Row(Row(300)),
            r"^field 'a': field 'b': 300 does not fit",
        ),
        (
            Types.ROW_NAMED(["a"], [Types.LIST(Types.INT())]),
            Row([1, "x"]),
            r"^field 'a': a value of type str",
        ),
    ],
)
def test_the_field_is_named(kind, value, text):
    with pytest.raises((TypeError, ValueError, OverflowError), match=text):
        codec_of(kind).enforce([value])


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (Types.FLOAT(), (16777216.0, 16777217.0)),
        (Types.INT(), (1.2, 1.7)),
        (
            Types.SQL_TIMESTAMP(),
            tuple(
                dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=one)))
                for one in (0, 1)
            ),
        ),
    ],
)
def test_keys_of_a_map_that_become_equal_lose_no_entry(key, keys):
    with pytest.raises((ValueError, TypeError), match="does not fit the declared type"):
        coded_values([dict.fromkeys(keys, 0)], Types.MAP(key, Types.INT()))
    with pytest.raises(ValueError, match="expected keys that differ"):
        coerce_collection([{1: 0, 1 + (1 << 8): 0}], Types.MAP(Types.BYTE(), Types.INT()))
    assert coded_values([{keys[0]: 1}, None, {}], Types.MAP(key, Types.INT()))[1:] == [None, {}]


@pytest.mark.parametrize("kind", [Types.SQL_TIME(), Types.SQL_TIMESTAMP()], ids=str)
def test_of_a_time_with_a_zone_its_clock_is_kept(kind):
    zoned = dt.datetime(2024, 1, 1, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    value = zoned.timetz() if kind == Types.SQL_TIME() else zoned
    assert coded_values([None, value], kind) == [None, value.replace(tzinfo=None)]


def test_a_whole_number_fits_a_decimal():
    assert coded_values([3, None], Types.DECIMAL(3, 1)) == [Decimal("3.0"), None]


@pytest.mark.parametrize("kind", [Types.DOUBLE(), Types.FLOAT()], ids=str)
def test_a_whole_number_that_no_float_holds_is_shown_with_the_type(kind):
    told = "1000.* does not fit the declared type (Double|Float): int too large"
    with pytest.raises(OverflowError, match=told):
        coded_values([10**400], kind)
    with pytest.raises(OverflowError, match=told):
        coerce_collection([10**400], kind)


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1)),
        (Types.TUPLE([Types.INT()]), (1,)),
        (Types.INT(), 1),
    ],
    ids=str,
)
def test_a_record_that_is_none_leaves_a_task_as_it_is(kind, record):
    sent = to_sent(RowBatch([record, None]), kind)
    assert (to_rows(sent, kind) if isinstance(sent, ColumnBatch) else sent).values == [record, None]
