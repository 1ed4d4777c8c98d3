"""Reduces that are sums, minima, maxima, first and last values combine records in columns to what they make of them one by one."""

import random
import sys

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.model.row import Row, make_row
from penstock.runtime.codecs.convert import to_columns, to_rows
from penstock.runtime.elements import RowBatch
from penstock.runtime.row_functions.partials import Combiner, combining_of
from tests.tools.runtime.same_values import are_same

NAMES = ("k", "a", "b", "n", "x", "s")
TYPES = [Types.STRING(), Types.LONG(), Types.LONG(), Types.INT(), Types.DOUBLE(), Types.STRING()]
ROW = Types.ROW_NAMED(list(NAMES), TYPES)
TUPLE = Types.TUPLE(TYPES)
OTHER = "it is no sum, minimum, maximum, first or last value of each field"


def of_rows(one, other):
    return Row(
        k=one.k, a=one.a + other.a, b=min(other.b, one.b), n=max(one.n, other.n), x=other.x, s=one.s
    )


def of_items(one, other):
    return Row(
        k=other["k"],
        a=max(one["a"], other["a"]),
        b=other[2] + one[2],
        n=other[3],
        x=one[4],
        s=other[5],
    )


def of_tuples(one, other):
    return one[0], one[1] + other[1], max(one[2], other[2]), other[3] + one[3], other[-2], one[5]


CASES = {"rows": (of_rows, ROW), "items": (of_items, ROW), "tuples": (of_tuples, TUPLE)}


def records(draw, count, kind, numbers):
    texts = ("x", "y", "İ", None)
    for _ in range(count):
        a, b, n = (draw.choice(numbers) for _ in range(3))
        x = draw.choice((0.0, -0.0, 1.5, float("nan"), None))
        made = ("k", a, b, n % 1000, x, draw.choice(texts))
        yield make_row(NAMES, made) if kind is ROW else made


def one_by_one(function, rows, groups):
    made = {}
    for row, group in zip(rows, groups, strict=True):
        made[group] = function(made[group], row) if group in made else row
    return list(made.values())


@pytest.mark.parametrize("name", CASES)
def test_combined_records_are_what_the_function_makes_of_them(name):
    function, kind = CASES[name]
    for seed in range(300):
        draw = random.Random(seed)
        numbers = (0, 1, -1, 5, 2**40, -(2**40)) if seed % 2 else range(-99, 99)
        rows = list(records(draw, 40, kind, numbers))
        groups = np.array([draw.randrange(0, 900, 90) for _ in rows], np.int64)
        batch = to_columns(RowBatch(rows), kind)
        made = Combiner(function).combined(batch, kind, groups)
        expected = one_by_one(function, to_rows(batch, kind).values, groups.tolist())
        assert are_same(made.values, expected)
        assert [groups.tolist().index(one) for one in dict.fromkeys(groups.tolist())] == list(
            made.first
        )


@pytest.mark.parametrize("value", [None, 2**62])
def test_records_whose_sum_may_leave_64_bits_or_with_None_are_not_combined(value):
    rows = [make_row(NAMES, ("k", value if at == 3 else 1, 1, 1, 1.0, "s")) for at in range(8)]
    batch = to_columns(RowBatch(rows), ROW)
    groups = np.zeros(8, np.int64)
    assert Combiner(of_rows).combined(batch, ROW, groups) is None


def test_keys_with_few_records_are_not_combined():
    rows = [make_row(NAMES, ("k", 1, 1, 1, 1.0, "s")) for _ in range(8)]
    batch = to_columns(RowBatch(rows), ROW)
    combiner = Combiner(of_rows)
    assert combiner.combined(batch, ROW, np.arange(8)) is None
    assert combiner.combined(batch, ROW, np.arange(8) // 2) is not None


def test_columns_of_other_types_are_not_combined():
    rows = [make_row(NAMES, ("k", 1, 1, 1, 1.0, "s")) for _ in range(8)]
    batch = to_columns(RowBatch(rows), ROW)
    batch.data = batch.data.set_column(1, "a", batch.data.column(1).cast(pa.int32()))
    assert Combiner(of_rows).combined(batch, ROW, np.zeros(8, np.int64)) is None


@pytest.mark.parametrize(
    ("function", "kind", "why"),
    [
        (of_rows, None, "its records have no declared type with columns"),
        (of_rows, Types.LONG(), "its records have no declared type with columns"),
        (of_rows, TUPLE, "it returns another class of records than it gets"),
        (of_tuples, ROW, "it returns another class of records than it gets"),
        (lambda one, other: Row(k=one.k), ROW, "it returns records with other fields than it gets"),
        (lambda one, other: (*one[:2], other[0]), TUPLE, ""),
        (lambda one, other: print(one), ROW, ""),
        (max, ROW, "it is no function of Python whose bytecode is known"),
    ],
)
def test_why_a_reduce_does_not_combine_is_told(function, kind, why):
    found = combining_of(function, kind)
    assert found.why_not.startswith(why)
    assert found.why_not


PAIR = Types.TUPLE([Types.LONG(), Types.DOUBLE()])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            lambda one, other: (one[0], one[1] + other[1]),
            "it is the sum of a field that is no whole number",
        ),
        (
            lambda one, other: (one[0], max(one[1], other[1])),
            "it is the max of a field that is no whole number",
        ),
        (lambda one, other: (one[0] + 1, one[1]), OTHER),
        (lambda one, other: (one[0] + one[0], one[1]), OTHER),
        (lambda one, other: (one[0] - other[0], one[1]), OTHER),
        (lambda one, other: (max(one[0], other[0], 3), one[1]), OTHER),
        (lambda one, other: (one[1], one[0]), OTHER),
        (lambda one, other: (one[0] + other[1], one[1]), OTHER),
    ],
)
def test_a_field_of_another_kind_does_not_combine(function, why):
    assert combining_of(function, PAIR).why_not == why


def test_a_changed_variable_outside_is_seen(monkeypatch):
    monkeypatch.setitem(globals(), "min", min)
    combiner = Combiner(of_rows)
    assert combiner.combining(ROW) is not None
    monkeypatch.setitem(globals(), "min", max)
    assert combiner.combining(ROW) is None


def test_nothing_is_combined_while_a_tracer_sees_calls():
    combiner = Combiner(of_rows)
    former = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert combiner.combining(ROW) is None
    finally:
        sys.settrace(former)
    assert combiner.combining(ROW) is not None
