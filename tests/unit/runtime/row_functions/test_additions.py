"""Aggregates that count and sum add the records of a key at once, and leave what they leave record by record."""

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.row import Row
from penstock.runtime.row_functions import additions as additions_module
from penstock.runtime.row_functions.additions import Additions, why_not_added
from tests.tools.runtime.same_values import are_same

ONE = 1
TWO_HALVES = 1.0
SLIDING = 5


class Count:
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1


class Twos(Count):
    def create_accumulator(self):
        return 100

    def add(self, value, accumulator):
        return 2 + accumulator


class Known(Count):
    def add(self, _value, accumulator):
        return accumulator + ONE


class Sum(Count):
    def add(self, value, accumulator):
        return accumulator + value


class OfField(Count):
    def add(self, value, accumulator):
        return value[1] + accumulator


class OfRow(Count):
    def add(self, value, accumulator):
        return accumulator + value.n


class Average(Count):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1


NUMBERS = (1, -7, 2**70, 0)
ODD = (*NUMBERS, True, 1.5, -0.0, float("nan"))
RECORDS = {
    Count: lambda number: object(),
    Twos: lambda number: number,
    Known: lambda number: number,
    Sum: lambda number: number,
    OfField: lambda number: ("a", number),
    OfRow: lambda number: Row(k="a", n=number),
    Average: lambda number: ["a", number],
}


def one_by_one(made, table, skeys, values):
    for skey, value in zip(skeys, values, strict=True):
        kept = table[skey] if skey in table else made.create_accumulator()
        table[skey] = made.add(value, kept)
    return table


def additions_of(made):
    return Additions(made.create_accumulator, made.add)


def drawn(kind, numbers, seed=1, count=200):
    draw = random.Random(seed)
    skeys = [draw.choice(("b", "a", 3, None)) for _ in range(count)]
    return skeys, [RECORDS[kind](draw.choice(numbers)) for _ in skeys]


@pytest.mark.parametrize("kind", RECORDS)
def test_records_of_a_key_are_added_as_one_by_one(kind):
    made = kind()
    additions = additions_of(made)
    table, expected = {}, {}
    for seed in range(8):
        skeys, values = drawn(kind, NUMBERS, seed)
        sums = additions.sums(skeys, values, SLIDING)
        assert sums is not None
        assert len(sums.keys) == 4
        assert sums.are_added_to(table)
        one_by_one(made, expected, skeys, values)
        assert are_same(list(table.items()), list(expected.items()))


@pytest.mark.parametrize("kind", [Sum, OfField, OfRow, Average])
def test_what_is_no_whole_number_is_added_one_by_one(kind):
    for odd in (True, 1.5, float("inf"), None, "text"):
        skeys, values = drawn(kind, (*NUMBERS, odd))
        assert additions_of(kind()).sums(skeys, values, SLIDING) is None


@pytest.mark.parametrize("odd", [True, 1.5, None, "text", (1,), (1, 2.0), (1, 2, 3), [1, 2]])
@pytest.mark.parametrize("kind", [Count, Average])
def test_an_accumulator_of_another_class_is_left_to_the_function(kind, odd):
    """As a checkpoint of another function may have."""
    table = {"a": odd}
    skeys, values = drawn(kind, NUMBERS)
    sums = additions_of(kind()).sums(skeys, values, SLIDING)
    assert not sums.are_added_to(table)
    assert table == {"a": odd}


class Own:
    def __init__(self, number):
        self.number = number

    def __getitem__(self, _place):
        return self.number


def test_records_of_a_class_of_the_user_are_read_as_often_as_there_are_windows():
    skeys, values = ["a"] * 150, [Own(1)] * 150
    assert additions_of(OfField()).sums(skeys, values, SLIDING) is None
    assert additions_of(Count()).sums(skeys, values, SLIDING) is not None


def in_place(_value, accumulator):
    accumulator[0] += 1
    return accumulator


def reads(value, accumulator):
    value[7]
    return accumulator + 1


def zero():
    return 0


OTHERS = {
    "floats": (lambda: 0.0, Count().add),
    "a float": (zero, lambda value, accumulator: accumulator + TWO_HALVES),
    "in place": (lambda: [0], in_place),
    "a product": (zero, lambda value, accumulator: accumulator * 2),
    "a call": (zero, lambda value, accumulator: accumulator + len(value)),
    "a field of a field": (zero, lambda value, accumulator: accumulator + value[0][1]),
    "fields in turn": (lambda: (0, 0), lambda value, acc: (acc[1] + value[1], acc[0] + 1)),
    "another length": (lambda: (0, 0), lambda value, acc: (acc[0] + 1, acc[1] + 1, 1)),
    "no tuple": (lambda: (0, 0), Count().add),
    "the largest": (zero, lambda value, acc: acc if acc > value else value),
    "twice": (zero, lambda value, accumulator: accumulator + accumulator),
    "a field by the sum": (zero, lambda value, accumulator: accumulator + value[accumulator]),
    "a field that it only reads": (zero, reads),
    "no function of Python": (int, Count().add),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_left_alone(name):
    skeys, values = drawn(Sum, NUMBERS)
    additions = Additions(*OTHERS[name])
    assert additions.sums(skeys, values, SLIDING) is None
    assert why_not_added(*OTHERS[name], has_overlaps=True)


def test_a_sum_needs_windows_that_overlap():
    for kind in RECORDS:
        made = kind()
        given = made.create_accumulator, made.add
        assert not why_not_added(*given, has_overlaps=True)
        why = "" if kind in {Count, Twos, Known} else "a sum needs windows that overlap"
        assert why_not_added(*given, has_overlaps=False) == why


@pytest.mark.parametrize("odd", [1.5, Own(1)])
def test_what_cannot_be_summed_is_tried_now_and_then_only(odd, monkeypatch):
    tried = []
    real = additions_module.classes_of
    monkeypatch.setattr(
        additions_module, "classes_of", lambda values: tried.append(values) or real(values)
    )
    additions = additions_of(OfField())
    values = [("a", odd) if isinstance(odd, float) else odd] * 150
    for _ in range(32):
        assert additions.sums(["a"] * 150, values, SLIDING) is None
    assert len(tried) <= 2 * 2


def test_nothing_is_summed_for_no_window():
    assert additions_of(Count()).sums(["a"] * 150, [1] * 150, 0) is None


def test_a_global_that_changes_is_noticed(monkeypatch):
    additions = additions_of(Known())
    skeys, values = drawn(Known, NUMBERS)
    assert additions.sums(skeys, values, SLIDING) is not None
    monkeypatch.setattr(sys.modules[__name__], "ONE", 2)
    assert additions.sums(skeys, values, SLIDING) is None


def test_who_watches_calls_sees_them():
    additions = additions_of(Count())
    skeys, values = drawn(Count, NUMBERS)
    sys.setprofile(lambda *_: None)
    try:
        assert additions.sums(skeys, values, SLIDING) is None
    finally:
        sys.setprofile(None)
    assert additions.sums(skeys, values, SLIDING) is not None


def test_few_records_and_keys_that_do_not_come_again_are_not_summed():
    additions = additions_of(Count())
    few, many = [1] * 127, [1] * 160
    assert additions.sums(few, few, SLIDING) is None
    assert additions.sums(many, many, 1) is not None
    assert additions.sums([key % 40 for key in range(160)], many, SLIDING) is not None
    assert additions.sums([key % 41 for key in range(160)], many, SLIDING) is None
    for _ in range(15):
        assert additions.sums(many, many, SLIDING) is None
    assert additions.sums(many, many, SLIDING) is not None
    assert additions_of(Sum()).sums(many, many, 1) is None


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(ODD)), min_size=128, max_size=200),
    st.sampled_from([Count, Twos, Known, Sum, OfField, OfRow, Average]),
    st.integers(1, 5),
)
def test_any_records_are_added_as_one_by_one(records, kind, windows):
    made = kind()
    skeys = [skey for skey, _ in records]
    values = [RECORDS[kind](number) for _, number in records]
    sums = additions_of(made).sums(skeys, values, windows)
    if sums is not None:
        table = {3: made.create_accumulator(), 9: None}
        expected = one_by_one(made, table.copy(), skeys, values)
        assert sums.are_added_to(table)
        assert are_same(list(table.items()), list(expected.items()))
