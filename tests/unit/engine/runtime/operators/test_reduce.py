"""Reduces: updates, state, errors, and what is put aside."""

import traceback

import pytest

from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators.reduce import (
    FinalReduceOperator,
    KeyedAggregateOperator,
    ReduceOperator,
)
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.same_values import are_same

KIND = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
PAIRS = [(f"word{number % 7}", number % 5) for number in range(300)]
ROWS = [Row(word=word, count=count) for word, count in PAIRS]


def first(pair):
    return pair[0]


def add(one, other):
    return one[0], one[1] + other[1]


def larger(one, other):
    return one if one[1] > other[1] else other


def divided(one, other):
    return one[0], (one[1] + 60) // other[1]


def as_row(one, other):
    return Row(one.word, one.count + other.count)


def row_or_other(one, other):
    return Row(one.word, one.count + other.count) if one.count < 20 else other


def lists_in(one, other):
    return [one[0], one[1] + other[1]]


def changing(one, other):
    one[1] += other[1]
    return one


class Adder:
    def reduce(self, one, other):
        return one[0], one[1] + other[1]


class Letters:
    """Takes records that are put aside."""

    def __init__(self):
        self.records = []

    def takes(self, error):
        return True

    def add(self, error, record, stamp):
        self.records.append((type(error), record, stamp))


def harness_of(function, make=ReduceOperator, poison=None, **context):
    operator = make(UserFunction(function), KeySelection(first))
    return OperatorHarness(operator, poison=poison, **context)


def fed(harness, records, size=64):
    for start in range(0, len(records), size):
        part = records[start : start + size]
        harness.feed(list(part), range(start, start + len(part)))
    return harness


def state_of(harness):
    return list(harness.operator.table.items())


def updates_of(function, records):
    """By the meaning of a reduce: the value of the record's key after each record, and the last ones."""
    table, updates = {}, []
    for record in records:
        key = record[0]
        table[key] = function(table[key], record) if key in table else record
        updates.append(table[key])
    return updates, list(table.values())


CASES = {
    "add": (add, PAIRS),
    "larger": (larger, PAIRS),
    "lists as records": (lists_in, [list(pair) for pair in PAIRS]),
    "text": (lambda one, other: one + other, [word for word, _ in PAIRS]),
    "method": (Adder().reduce, PAIRS),
    "named Rows": (lambda one, other: Row(word=one.word, count=other.count), ROWS),
}


@pytest.mark.parametrize("name", CASES)
def test_each_record_gives_the_value_of_its_key(name):
    function, records = CASES[name]
    harness = fed(harness_of(function), records)
    updates, last = updates_of(function, records)
    assert are_same(harness.values, updates)
    assert [stamp for _, stamp in harness.stamped] == list(range(len(records)))
    assert are_same([value for _, value in state_of(harness)], last)


@pytest.mark.parametrize("name", CASES)
def test_in_a_batch_job_each_key_gives_its_last_value(name):
    function, records = CASES[name]
    harness = fed(harness_of(function, FinalReduceOperator), records)
    harness.take(harness.operator.finish())
    assert are_same(harness.values, updates_of(function, records)[1])


def test_an_error_names_the_record_and_the_line_of_the_function():
    harness = harness_of(divided)
    with pytest.raises(ZeroDivisionError) as raised:
        harness.feed([("a", 3), ("a", 1), ("b", 2), ("a", 0), ("a", 5)])
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.line == "return one[0], (one[1] + 60) // other[1]"
    assert raised.value.__context__ is None
    assert harness.operator.failing_record() == "('a', 0)"
    assert state_of(harness) == [("a", ("a", 63)), ("b", ("b", 2))]


@pytest.mark.parametrize("make", [ReduceOperator, FinalReduceOperator])
def test_records_at_which_it_raises_are_put_aside(make):
    letters = Letters()
    harness = harness_of(divided, make, letters)
    harness.feed([("a", 3), ("a", 1), ("a", 0), ("a", 2), ("b", 0)], [1, 2, 3, 4, 5])
    harness.take(harness.operator.finish())
    stamp = 3 if make is ReduceOperator else None
    assert letters.records == [(ZeroDivisionError, ("a", 0), stamp)]
    updates = [("a", 3), ("a", 63), ("a", 61), ("b", 0)]
    assert harness.values == (updates if make is ReduceOperator else updates[2:])


@pytest.mark.parametrize("function", [as_row, row_or_other])
def test_rows_have_the_names_of_the_declared_type(function):
    harness = fed(harness_of(function, output_type=KIND, input_types=(KIND,)), ROWS)
    assert {one._fields for one in harness.values} == {("word", "count")}


@pytest.mark.parametrize("function", [lists_in, changing])
def test_what_is_emitted_is_not_what_the_state_has(function):
    """A list that was emitted may be changed by who gets it, and one that is kept by the function."""
    harness = fed(harness_of(function), [["a", 1], ["a", 2], ["a", 3]])
    emitted = {id(one) for one in harness.values}
    assert emitted.isdisjoint(id(value) for _, value in state_of(harness))
    assert harness.values == [["a", 1], ["a", 3], ["a", 6]]


def test_a_built_in_aggregate_is_a_reduce():
    harness = OperatorHarness(KeyedAggregateOperator("SUM", 1, KeySelection(first)))
    assert fed(harness, [("a", 1), ("a", 2)]).values == [("a", 1), ("a", 3)]
