"""Declared types at the edges. Expectations: docs/spec/programs.md#types and
pyflink.common.typeinfo.
"""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.model.row import Row, RowKind
from penstock.model.time import Instant
from penstock.model.types import Types, taking_tuples
from penstock.runtime.codecs.convert import (
    coerce_collection,
    enforce,
    is_columnar,
    to_columns,
    to_rows,
)
from penstock.runtime.elements import ColumnBatch, RowBatch

NAIVE = dt.datetime(2020, 1, 2, 3, 4, 5, 6)  # ruff: ignore[call-datetime-without-tzinfo] - SQL timestamps have no zone
BOTH = [
    lambda values, t: to_rows(to_columns(RowBatch(values), t), t).values,
    lambda values, t: enforce(RowBatch(values), t).values,
]


@pytest.mark.parametrize("through", BOTH)
@pytest.mark.parametrize(
    ("values", "type_info", "error"),
    [
        ([(1,)], Types.ROW([Types.INT()]), AssertionError),
        ([2**31], Types.INT(), OverflowError),
        ([-(2**63) - 1], Types.LONG(), OverflowError),
        ([1e300], Types.FLOAT(), OverflowError),
        (["a"], Types.INT(), TypeError),
        ([1.5], Types.INT(), TypeError),
        ([1], Types.STRING(), TypeError),
        ([1], Types.BOOLEAN(), TypeError),
        ([(1, 2)], Types.TUPLE([Types.INT()]), AssertionError),
        ([Row(1, 2)], Types.ROW([Types.INT()]), AssertionError),
        ([["x"]], Types.LIST(Types.INT()), TypeError),
        ([Decimal("1.55")], Types.DECIMAL(3, 1), OverflowError),
        ([Decimal(100)], Types.DECIMAL(3, 1), OverflowError),
        ([Decimal("NaN")], Types.DECIMAL(3, 1), TypeError),
        ([1.5], Types.DECIMAL(3, 1), TypeError),
        ([NAIVE], Types.TIMESTAMP_LTZ(), TypeError),
        ([(1, 2)], taking_tuples(Types.ROW([Types.INT()])), AssertionError),
        ([[1]], taking_tuples(Types.ROW([Types.INT()])), AssertionError),
    ],
)
def test_a_declared_type_refuses_what_does_not_fit(through, values, type_info, error):
    with pytest.raises(error):
        through(values, type_info)


@pytest.mark.parametrize("through", BOTH)
def test_float_is_32_bits_and_rows_come_back_with_names(through):
    assert through([1.1], Types.FLOAT()) == [1.100000023841858]
    (row,) = through([Row("a", 1)], Types.ROW([Types.STRING(), Types.INT()]))
    assert repr(row) == "Row(f0='a', f1=1)"


@pytest.mark.parametrize("through", BOTH)
def test_every_columnar_type_comes_back_equal(through):
    record = Types.ROW_NAMED(
        ["i", "s", "l", "m", "t", "d", "ts", "tm", "in", "b", "r"],
        [
            Types.INT(), Types.STRING(), Types.LIST(Types.DOUBLE()),
            Types.MAP(Types.STRING(), Types.TUPLE([Types.INT(), Types.STRING()])),
            Types.TUPLE([Types.BYTE(), Types.BOOLEAN()]), Types.SQL_DATE(), Types.SQL_TIMESTAMP(),
            Types.SQL_TIME(), Types.INSTANT(), Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.ROW_NAMED(["x"], [Types.LONG()]),
        ],
    )  # fmt: skip
    names = tuple(record.get_field_names())
    full = Row(*names)(
        1, "é", [1.0], {"k": (1, "v")}, (1, True), dt.date(2020, 1, 2), NAIVE,
        dt.time(1, 2, 3, 4), Instant(5, 7000), b"\x00\xff", Row("x")(9),
    )  # fmt: skip
    empty = Row(*names)(*[None] * len(names))
    assert through([full, empty], record) == [full, empty]


def test_row_kinds_cross_as_columns():
    row_type = Types.ROW_NAMED(["a"], [Types.INT()])
    rows = [Row.of_kind(RowKind.DELETE, a=1), Row(a=2)]
    back = to_rows(to_columns(RowBatch(rows), row_type), row_type).values
    assert back == rows


def test_what_has_no_arrow_form_is_not_columnar():
    assert is_columnar(Types.TUPLE([Types.STRING(), Types.LONG()]))
    for type_info in (None, Types.PICKLED_BYTE_ARRAY(), Types.BIG_INT(), Types.BIG_DEC()):
        assert not is_columnar(type_info)
    with pytest.raises(TypeError, match="declare"):
        to_columns(RowBatch([1]), None)
    assert enforce(RowBatch([2**80]), Types.BIG_INT()).values == [2**80]


def test_undeclared_columns_become_rows_with_names():
    batch = ColumnBatch(pa.record_batch({"a": [1, None], "b": ["x", "y"]}))
    assert to_rows(batch, None).values == [Row("a", "b")(1, "x"), Row("a", "b")(None, "y")]


def test_collections_are_the_lenient_edge():
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    rows = coerce_collection([(2**31, "x"), [1, "y"], {"a": 3, "b": "z"}], row_type)
    assert rows == [Row("a", "b")(-(2**31), "x"), Row("a", "b")(1, "y"), Row("a", "b")(3, "z")]
    assert coerce_collection([300], Types.BYTE()) == [44]
    assert coerce_collection([1], Types.DOUBLE()) == [1.0]
    with pytest.raises(ValueError, match="fields"):
        coerce_collection([(1,)], row_type)


def test_columns_that_do_not_fit_the_declared_type_are_refused_by_name():
    batch = ColumnBatch(pa.record_batch({"a": ["x"]}))
    with pytest.raises(TypeError, match="'a'"):
        to_rows(batch, Types.ROW_NAMED(["a"], [Types.INT()]))
    with pytest.raises(TypeError, match="expected 2 columns"):
        to_rows(batch, Types.ROW([Types.INT(), Types.INT()]))


@pytest.mark.parametrize("through", BOTH)
def test_decimals_have_their_digits_and_times_with_a_zone_become_utc(through):
    found = through([Decimal("-1.5"), Decimal(0), None], Types.DECIMAL(5, 3))
    assert list(map(repr, found)) == ["Decimal('-1.500')", "Decimal('0.000')", "None"]
    east = dt.timezone(dt.timedelta(hours=2))
    (moment,) = through([dt.datetime(2020, 1, 2, 3, 4, tzinfo=east)], Types.TIMESTAMP_LTZ())
    assert (moment, moment.tzinfo) == (dt.datetime(2020, 1, 2, 1, 4, tzinfo=dt.UTC), dt.UTC)


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_a_decimal_that_cannot_be_is_refused(precision, scale):
    with pytest.raises(ValueError, match="a DECIMAL has 1 to 38 digits"):
        Types.DECIMAL(precision, scale)
