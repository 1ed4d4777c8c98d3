"""Declared types at the edges. Expectations: docs/spec/programs.md#types and
pyflink.common.typeinfo.
"""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.time import Instant
from penstock.engine.model.types import Types, taking_tuples
from penstock.engine.runtime.codecs.base import NoColumnForValue
from penstock.engine.runtime.codecs.convert import (
    arrow_schema,
    coerce_collection,
    enforce,
    enforce_where_it_fits,
    is_columnar,
    to_columns,
    to_rows,
    to_sent,
    travel_form,
)
from penstock.engine.runtime.elements import ColumnBatch, RowBatch

NAIVE = dt.datetime(2020, 1, 2, 3, 4, 5, 6)  # ruff: ignore[call-datetime-without-tzinfo] - SQL timestamps have no zone
NAMED = Types.ROW_NAMED(["a"], [Types.INT()])
BOTH = [
    lambda values, t: to_rows(to_columns(RowBatch(values), t), t).values,
    lambda values, t: enforce(RowBatch(values), t).values,
]


@pytest.mark.parametrize("through", BOTH)
@pytest.mark.parametrize(
    ("values", "type_info", "error"),
    [
        ([2**31], Types.INT(), OverflowError),
        ([-(2**63) - 1], Types.LONG(), OverflowError),
        (["a"], Types.INT(), TypeError),
        ([float("nan")], Types.INT(), TypeError),
        ([1], Types.STRING(), TypeError),
        (["yes"], Types.BOOLEAN(), TypeError),
        (["12"], Types.TUPLE([Types.INT(), Types.INT()]), AssertionError),
        ([(1, 2)], Types.TUPLE([Types.INT()]), AssertionError),
        ([Row(1, 2)], Types.ROW([Types.INT()]), AssertionError),
        ([["x"]], Types.LIST(Types.INT()), TypeError),
        ([Decimal("1.55")], Types.DECIMAL(3, 1), OverflowError),
        ([Decimal(100)], Types.DECIMAL(3, 1), OverflowError),
        ([Decimal("NaN")], Types.DECIMAL(3, 1), TypeError),
        ([1.5], Types.DECIMAL(3, 1), TypeError),
        ([NAIVE], Types.TIMESTAMP_LTZ(), TypeError),
        ([(1, 2)], taking_tuples(Types.ROW([Types.INT()])), AssertionError),
        ([(1,)], Types.TUPLE([Types.INT(), Types.INT()]), AssertionError),
        ([{"a": 1}], Types.TUPLE([Types.INT()]), AssertionError),
        ([{"b": 1}], NAMED, AssertionError),
        ([Row(b=1)], NAMED, ValueError),
    ],
)
def test_a_declared_type_refuses_what_does_not_fit(through, values, type_info, error):
    with pytest.raises(error):
        through(values, type_info)


@pytest.mark.parametrize("through", BOTH)
@pytest.mark.parametrize(
    ("value", "type_info", "becomes"),
    [
        (1.5, Types.INT(), 1),
        (-2.9, Types.LONG(), -2),
        (2.0, Types.BIG_INT(), 2),
        (np.float32(3.5), Types.BYTE(), 3),
        (Decimal("7.9"), Types.SHORT(), 7),
        (5, Types.BOOLEAN(), True),
        (0.0, Types.BOOLEAN(), False),
        (1e300, Types.FLOAT(), math.inf),
        (Decimal("0.5"), Types.DOUBLE(), 0.5),
        (5, Types.BIG_DEC(), Decimal(5)),
        ([1, "a"], Types.TUPLE([Types.INT(), Types.STRING()]), (1, "a")),
        (Row(1, "a"), Types.TUPLE([Types.INT(), Types.STRING()]), (1, "a")),
        ((1,), NAMED, Row(a=1)),
        ([1.5], NAMED, Row(a=1)),
        ({"a": 1}, NAMED, Row(a=1)),
        (Row.of_kind(RowKind.DELETE, 1.5), NAMED, Row.of_kind(RowKind.DELETE, a=1)),
        ([1.5, 2], Types.LIST(Types.INT()), [1, 2]),
        ({"k": [1]}, Types.MAP(Types.STRING(), NAMED), {"k": Row(a=1)}),
    ],
)
def test_a_value_of_another_class_is_converted_where_no_doubt_is(
    through, value, type_info, becomes
):
    if not is_columnar(type_info):
        through = BOTH[1]
    (found,) = through([value], type_info)
    assert (type(found), found) == (type(becomes), becomes)


def test_between_two_functions_of_a_chain_a_value_that_does_not_fit_passes_unchanged():
    values = [1.5, True, "a", 2**31, None]
    found, has_misfits = enforce_where_it_fits(RowBatch(values), Types.INT())
    assert list(map(repr, found.values)) == ["1.5", "1", "'a'", "2147483648", "None"]
    assert has_misfits
    rows = [Row(1), Row(2, 3), {"a": 1}, Row(b=4)]
    found, has_misfits = enforce_where_it_fits(RowBatch(rows), NAMED)
    assert found.values == [Row(a=1), Row(2, 3), {"a": 1}, Row(b=4)]
    assert has_misfits


def test_where_all_values_fit_none_is_called_a_misfit():
    batch = RowBatch([1, 2])
    assert enforce_where_it_fits(batch, Types.INT()) == (batch, False)
    found, has_misfits = enforce_where_it_fits(RowBatch([Row(1)]), NAMED)
    assert (found.values, has_misfits) == ([Row(a=1)], False)


class WithoutHash(dt.tzinfo):
    """As those of dateutil."""

    __hash__ = None

    def utcoffset(self, _):
        return dt.timedelta(0)


@pytest.mark.parametrize("through", BOTH)
def test_of_a_datetime_a_date_keeps_the_day_and_a_timestamp_what_the_clock_shows(through):
    east = dt.timezone(dt.timedelta(hours=2))
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=east)
    assert list(map(repr, through([moment, None], Types.SQL_DATE()))) == [
        "datetime.date(2020, 1, 2)",
        "None",
    ]
    assert through([moment, NAIVE], Types.SQL_TIMESTAMP()) == [NAIVE, NAIVE]
    odd = moment.replace(tzinfo=WithoutHash())
    assert through([odd], Types.SQL_TIMESTAMP()) == [NAIVE]


def test_a_type_without_fields_or_with_a_pickled_part_has_rows_that_are_enforced():
    assert travel_form(None) is None
    assert travel_form(Types.PICKLED_BYTE_ARRAY()) is None
    assert travel_form(Types.INT()) is to_sent
    for type_info in (Types.ROW([]), Types.ROW([Types.BIG_DEC()])):
        assert travel_form(type_info) is enforce
    assert [tuple(row) for row in enforce(RowBatch([Row()]), Types.ROW([])).values] == [()]


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
    assert coerce_collection([1.5], Types.INT()) == [1]
    assert coerce_collection([5, "x", None], Types.STRING()) == ["5", "x", None]
    assert coerce_collection([1e300, 1e-60], Types.FLOAT()) == [math.inf, 0.0]
    for too_wide in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError, match="more than 64 bits"):
            coerce_collection([too_wide], Types.LONG())
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


def test_lists_that_fit_are_not_made_anew():
    kind = Types.ROW_NAMED(["l"], [Types.LIST(Types.INT())])
    batch = RowBatch([Row(l=[1, None]), Row(l=None), Row(l=[])])
    assert enforce(batch, kind) is batch
    assert enforce(RowBatch([Row(l=(1, 2))]), kind).values == [Row(l=[1, 2])]
    assert repr(enforce(RowBatch([Row(l=[True])]), kind).values) == "[Row(l=[1])]"


def test_fields_that_no_column_takes_are_named():
    kind = Types.ROW_NAMED(["n", "price"], [Types.INT(), Types.BIG_DEC()])
    with pytest.raises(
        TypeError, match=r"fields 'price' \(BigDecimal\). Declare others: .*DECIMAL"
    ):
        arrow_schema(kind)


HALF = "cut \ud83d"
UNHELD = [
    (Types.STRING(), HALF),
    (Types.CHAR(), "\udc00"),
    (Types.LIST(Types.STRING()), ["a", HALF]),
    (Types.MAP(Types.STRING(), Types.INT()), {None: 1}),
    (Types.MAP(Types.STRING(), Types.STRING()), {HALF: HALF}),
    (Types.INSTANT(), Instant(2**40, 5)),
    (Types.INSTANT(), Instant(-(2**60), 999_999_999)),
    (Types.LIST(Types.INSTANT()), [Instant(2**40, 5), None]),
    (Types.ROW_NAMED(["x"], [Types.STRING()]), Row("x")(HALF)),
    (Types.TUPLE([Types.STRING(), Types.INSTANT()]), (HALF, Instant(2**40, 0))),
]


class Word(str):
    """Comes out of a column as a plain str."""

    __slots__ = ()


@pytest.mark.parametrize(("kind", "odd"), UNHELD)
def test_what_arrow_cannot_hold_is_sent_in_rows_and_stays_what_it_is(kind, odd):
    both = Types.ROW_NAMED(["n", "f", "it"], [Types.LONG(), Types.FLOAT(), kind])
    made = Row("n", "f", "it")
    rows = [made(number, 1.1, odd if number in {2, 5} else None) for number in range(7)]
    stamps = np.arange(7)
    sent = to_sent(RowBatch(rows, stamps), both)
    rounded = float(np.float32(1.1))
    assert isinstance(sent, RowBatch)
    assert sent.timestamps is stamps
    assert sent.values == [made(one.n, rounded, one.it) for one in rows]
    # A record does not depend on the others of its batch.
    assert isinstance(to_sent(RowBatch(rows[:2]), both), ColumnBatch)
    words = to_sent(
        RowBatch([(Word("a"), odd), (Word("b"), None)]), Types.TUPLE([Types.STRING(), kind])
    )
    assert [type(word) for word, _ in words.values] == [str, str]


def test_a_value_that_does_not_have_its_type_is_refused_also_among_those_that_arrow_cannot_hold():
    both = Types.ROW_NAMED(["n", "it"], [Types.INT(), Types.STRING()])
    with pytest.raises(OverflowError, match="2147483648"):
        to_sent(RowBatch([Row(n=1, it=HALF), Row(n=2**31, it="a")]), both)
    deleted = Row.of_kind(RowKind.DELETE, n=1.0, it=HALF)
    (row,) = to_sent(RowBatch([deleted]), both).values
    assert (row.get_row_kind(), row.n, type(row.n)) == (RowKind.DELETE, 1, int)


def test_where_there_must_be_columns_the_error_shows_the_record_and_the_field():
    both = Types.ROW_NAMED(["n", "it"], [Types.INT(), Types.STRING()])
    rows = [Row(n=number, it=HALF if number in {5, 6} else "a") for number in range(9)]
    with pytest.raises(NoColumnForValue, match=r"field 'it': .*Row\(n=5, it='cut"):
        to_columns(RowBatch(rows), both)
