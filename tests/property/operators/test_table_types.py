"""Law: a record of a DataFrame's types is the same after it has lain in Arrow, and after a chain has checked it."""

import datetime as dt
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.engine.model.types import taking_tuples
from penstock.engine.runtime.codecs.convert import enforce, to_columns, to_rows
from penstock.engine.runtime.elements import RowBatch

TIMES = st.datetimes()
UTC_TIMES = st.datetimes(timezones=st.just(dt.UTC))
DECIMALS = st.integers(-(10**12) + 1, 10**12 - 1).map(lambda digits: Decimal(digits).scaleb(-3))
SIMPLE = [
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.STRING(), st.text(max_size=5)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
    (Types.DECIMAL(12, 3), DECIMALS),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIMESTAMP(), TIMES),
    (Types.TIMESTAMP_LTZ(), UTC_TIMES),
]


def _listed(pair):
    return Types.LIST(pair[0]), st.lists(pair[1], max_size=3)


def _mapped(pair):
    return Types.MAP(Types.STRING(), pair[0]), st.dictionaries(
        st.text(max_size=3), pair[1], max_size=3
    )


def _nullable(pair):
    return pair[0], st.none() | pair[1]


def _named(pairs):
    """A ROW and its records as Rows with names."""
    names = [f"c{index}" for index in range(len(pairs))]
    values = st.tuples(*(values for _, values in pairs))
    return Types.ROW_NAMED(names, [kind for kind, _ in pairs]), values.map(
        lambda v: Row(*names)(*v)
    )


COLUMNS = st.recursive(
    st.sampled_from(SIMPLE).map(_nullable),
    lambda inner: st.one_of(
        inner.map(_listed).map(_nullable),
        inner.map(_mapped).map(_nullable),
        st.lists(inner, min_size=1, max_size=3).map(_named).map(_nullable),
    ),
    max_leaves=4,
)
TABLES = st.lists(COLUMNS, min_size=1, max_size=4).map(_named)
CASES = TABLES.flatmap(lambda table: st.tuples(st.just(table[0]), st.lists(table[1], max_size=5)))


@given(CASES)
def test_records_come_back_equal_from_columns_and_from_a_check(case):
    type_info, records = case
    assert to_rows(to_columns(RowBatch(records), type_info), type_info).values == records
    assert enforce(RowBatch(records), type_info).values == records


@given(CASES)
def test_tuples_in_place_of_rows_come_back_as_the_rows_that_they_stand_for(case):
    type_info, records = case
    lenient = taking_tuples(type_info)
    tuples = [tuple(record) for record in records]
    assert to_rows(to_columns(RowBatch(tuples), lenient), lenient).values == records
    assert enforce(RowBatch(tuples), lenient).values == records
