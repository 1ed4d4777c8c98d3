"""Aggregates that only count add the number of a key's records at once, and leave what they leave record by record."""

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.row_functions.known_code import Refused
from penstock.engine.runtime.row_functions.reduces import Counting, steps_of_count
from tests.tools.runtime.same_values import are_same

ONE = 1
TWO_HALVES = 1.0


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


class InPlace(Count):
    def add(self, _value, accumulator):
        accumulator += 3
        return accumulator


KINDS = [Count, Twos, Known, InPlace]


def one_by_one(made, table, skeys):
    for skey in skeys:
        kept = table[skey] if skey in table else made.create_accumulator()
        table[skey] = made.add(object(), kept)
    return table


def counting_of(made):
    return Counting(made.create_accumulator, made.add)


def drawn(seed=1, count=200):
    draw = random.Random(seed)
    return [draw.choice(("b", "a", 3, None)) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_a_key_are_counted_as_one_by_one(kind):
    made = kind()
    counting = counting_of(made)
    table, expected = {}, {}
    for seed in range(8):
        skeys = drawn(seed)
        counts = counting.counts(skeys)
        assert len(counts.added) == 4
        assert counts.are_added_to(table)
        one_by_one(made, expected, skeys)
        assert are_same(list(table.items()), list(expected.items()))


@pytest.mark.parametrize("odd", [True, 1.5, None, "text", (1,), [1, 2]])
def test_an_accumulator_of_another_class_is_left_to_the_function(odd):
    """As a checkpoint of another function may have."""
    table = {"a": odd}
    assert not counting_of(Count()).counts(drawn()).are_added_to(table)
    assert table == {"a": odd}


def zero():
    return 0


def reads(value, accumulator):
    value[7]
    return accumulator + 1


def compares(value, accumulator):
    accumulator < 5  # ruff: ignore[useless-comparison]
    return accumulator + 1


def divides(value, accumulator):
    1 // accumulator  # ruff: ignore[useless-expression]
    return accumulator + 1


OTHERS = {
    "floats": (lambda: 0.0, Count().add),
    "a truth value": (lambda: False, Count().add),
    "a float": (zero, lambda value, accumulator: accumulator + TWO_HALVES),
    "true": (zero, lambda value, accumulator: accumulator + True),
    "a product": (zero, lambda value, accumulator: accumulator * 2),
    "a sum": (zero, lambda value, accumulator: accumulator + value),
    "a field": (zero, lambda value, accumulator: accumulator + value.n),
    "an item": (zero, lambda value, accumulator: accumulator + value[1]),
    "an unpacked record": (zero, lambda value, accumulator: [*value][0] + accumulator),
    "a call": (zero, lambda value, accumulator: accumulator + len(value)),
    "a condition": (zero, lambda value, accumulator: accumulator + (1 if value else 0)),
    "one of two": (zero, lambda value, accumulator: accumulator + 1 if accumulator else 1),
    "two sums": (zero, lambda value, accumulator: accumulator + 1 + 1),
    "twice": (zero, lambda value, accumulator: accumulator + accumulator),
    "the record alone": (zero, lambda value, accumulator: value),
    "a tuple": (lambda: (0, 0), lambda value, acc: (acc[0] + 1, acc[1] + 1)),
    "a field that it only reads": (zero, reads),
    "a test without a use": (zero, compares),
    "an operation that may fail": (zero, divides),
    "no function of Python": (int, Count().add),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_left_alone(name):
    assert Counting(*OTHERS[name]).counts(drawn()) is None
    with pytest.raises(Refused):
        steps_of_count(*OTHERS[name])


def test_a_global_that_changes_is_noticed(monkeypatch):
    counting = counting_of(Known())
    assert counting.counts(drawn()) is not None
    monkeypatch.setattr(sys.modules[__name__], "ONE", 2)
    assert counting.counts(drawn()) is None


def test_who_watches_calls_sees_them():
    counting = counting_of(Count())
    sys.setprofile(lambda *_: None)
    try:
        assert counting.counts(drawn()) is None
    finally:
        sys.setprofile(None)
    assert counting.counts(drawn()) is not None


def test_few_records_and_keys_that_do_not_come_again_are_not_counted():
    counting = counting_of(Count())
    few, many = [1] * 127, [1] * 160
    assert counting.counts(few) is None
    assert counting.counts([key % 40 for key in range(160)]) is not None
    assert counting.counts([key % 41 for key in range(160)]) is None
    for _ in range(15):
        assert counting.counts(many) is None
    assert counting.counts(many) is not None


@given(st.lists(st.integers(0, 5), min_size=128, max_size=200), st.sampled_from(KINDS))
def test_any_records_are_counted_as_one_by_one(skeys, kind):
    made = kind()
    counts = counting_of(made).counts(skeys)
    if counts is not None:
        table = {3: made.create_accumulator(), 9: None}
        expected = one_by_one(made, table.copy(), skeys)
        assert counts.are_added_to(table)
        assert are_same(list(table.items()), list(expected.items()))
