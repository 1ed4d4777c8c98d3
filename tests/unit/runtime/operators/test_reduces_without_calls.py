"""Reduces whose body is in the operator's loop: updates, state, errors and what is put aside are those of calls."""

import sys
import traceback

import pytest

from penstock.model.row import Row
from penstock.model.types import Types
from penstock.runtime.context import UserFunction
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators.reduce import (
    FinalReduceOperator,
    KeyedAggregateOperator,
    ReduceOperator,
)
from penstock.runtime.row_functions.inlining import inlined
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.same_values import are_same

KIND = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
PAIRS = [(f"word{number % 7}", number % 5) for number in range(300)]
ROWS = [Row(word=word, count=count) for word, count in PAIRS]
calls = []


def first(pair):
    return pair[0]


def add(one, other):
    return one[0], one[1] + other[1]


def larger(one, other):
    return one if one[1] > other[1] else other


def divided(one, other):
    return one[0], (one[1] + 60) // other[1]


def listed(one, other):
    return one[0], [one[1], other[1]]


def as_row(one, other):
    return Row(one.word, one.count + other.count)


def row_or_other(one, other):
    return Row(one.word, one.count + other.count) if one.count < 20 else other


def lists_in(one, other):
    return [one[0], one[1] + other[1]]


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
        self.records.append((type(error), str(error), record, stamp))


def harness_of(function, is_on, make=ReduceOperator, poison=None, **context):
    operator = make(UserFunction(function), KeySelection(first))
    operator.functions_as_columns = is_on
    return OperatorHarness(operator, poison=poison, **context)


def fed(harness, records, size=64):
    for start in range(0, len(records), size):
        part = records[start : start + size]
        harness.feed(list(part), range(start, start + len(part)))
    return harness


def state_of(harness):
    return list(harness.operator._table.items())


CASES = {
    "add": (add, PAIRS),
    "larger": (larger, PAIRS),
    "lists": (listed, PAIRS[:30]),
    "lists as records": (lists_in, [list(pair) for pair in PAIRS]),
    "text": (lambda one, other: one + other, [word for word, _ in PAIRS]),
    "method": (Adder().reduce, PAIRS),
    "Rows": (lambda one, other: Row(one[0], one[1] + other[1]), ROWS),
    "named Rows": (lambda one, other: Row(word=one.word, count=other.count), ROWS),
}


@pytest.mark.parametrize("name", CASES)
def test_updates_and_state_are_those_of_calls(name):
    function, records = CASES[name]
    assert inlined(function, 2).expression is not None
    on, off = (fed(harness_of(function, is_on), records) for is_on in (True, False))
    assert are_same(on.values, off.values)
    assert on.stamped == off.stamped
    assert len(on.values) == len(records)
    assert are_same(state_of(on), state_of(off))


class Tally:
    """An object whose operators see that they run."""

    def __init__(self):
        self.added = 0

    def __add__(self, other):
        self.added += 1
        return self


def tallied(one, other):
    return one[0], one[1] + other[1], 1 // other[2]


@pytest.mark.parametrize("is_on", [True, False])
def test_operators_of_own_classes_run_once_also_where_the_function_raises(is_on):
    letters = Letters()
    harness = harness_of(tallied, is_on, poison=letters)
    harness.feed([("a", Tally(), 1), ("a", Tally(), 0), ("a", Tally(), 1)])
    ((_, (_, tally, _)),) = state_of(harness)
    assert tally.added == 2
    assert [error for error, *_ in letters.records] == [ZeroDivisionError]


@pytest.mark.parametrize("is_on", [True, False])
def test_an_error_names_the_record_and_the_line_of_the_function(is_on):
    harness = harness_of(divided, is_on)
    with pytest.raises(ZeroDivisionError) as raised:
        harness.feed([("a", 3), ("a", 1), ("b", 2), ("a", 0), ("a", 5)])
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.line == "return one[0], (one[1] + 60) // other[1]"
    assert raised.value.__context__ is None
    assert harness.operator.failing_record() == "('a', 0)"
    assert state_of(harness) == [("a", ("a", 63)), ("b", ("b", 2))]


@pytest.mark.parametrize("make", [ReduceOperator, FinalReduceOperator])
def test_records_at_which_it_raises_are_put_aside_in_both_ways(make):
    told = []
    for is_on in (True, False):
        letters = Letters()
        harness = fed(harness_of(divided, is_on, make, letters), PAIRS)
        told.append((letters.records, harness.stamped, [*harness.finish()]))
    (on, off) = told
    assert on[0] == off[0]
    assert len(on[0]) > 50
    assert {error for error, *_ in on[0]} == {ZeroDivisionError}
    assert on[1] == off[1]
    values = [[one.values for one in side[2]] for side in told]
    assert values[0] == values[1]


@pytest.mark.parametrize("name", CASES)
def test_in_a_batch_job_the_results_are_those_of_calls(name):
    function, records = CASES[name]
    results = []
    for is_on in (True, False):
        harness = fed(harness_of(function, is_on, FinalReduceOperator), records)
        harness.finish()
        results.append(harness.values)
    assert are_same(*results)


@pytest.mark.parametrize("function", [as_row, row_or_other])
def test_rows_have_the_names_of_the_declared_type(function):
    results = []
    for is_on in (True, False):
        harness = fed(harness_of(function, is_on, output_type=KIND, input_types=(KIND,)), ROWS)
        results.append(harness.values)
        assert {one._fields for one in harness.values} == {("word", "count")}
    assert are_same(*results)


def test_what_is_emitted_is_not_what_the_state_has():
    """A list that was emitted may be changed by who gets it."""
    for is_on in (True, False):
        harness = fed(harness_of(lists_in, is_on), [["a", 1], ["a", 2], ["a", 3]])
        emitted = {id(one) for one in harness.values}
        assert emitted.isdisjoint(id(value) for _, value in state_of(harness))
        assert harness.values == [["a", 1], ["a", 3], ["a", 6]]


def changing(one, other):
    one[1] += other[1]
    return one


def calling(one, other):
    calls.append(other)
    return other


def test_what_changes_an_object_or_calls_unknown_code_is_called():
    assert "in place" in inlined(changing, 2).why_not or "changes" in inlined(changing, 2).why_not
    assert inlined(calling, 2).expression is None
    calls.clear()
    harness = fed(harness_of(calling, True), PAIRS)
    assert len(calls) == len(PAIRS) - 7
    assert harness.values == PAIRS
    made = fed(harness_of(changing, True), [["a", 1], ["a", 2], ["a", 3]])
    assert made.values == [["a", 1], ["a", 3], ["a", 6]]


def test_built_in_aggregates_are_not_read():
    operator = KeyedAggregateOperator("SUM", 1, KeySelection(first))
    harness = OperatorHarness(operator)
    assert fed(harness, [("a", 1), ("a", 2)]).values == [("a", 1), ("a", 3)]


def test_a_profiler_sees_each_call():
    harness = fed(harness_of(add, True), PAIRS)
    seen = []

    def watch(frame, event, _):
        if event == "call" and frame.f_code is add.__code__:
            seen.append(event)

    sys.setprofile(watch)
    try:
        fed(harness, PAIRS[:100], 100)
    finally:
        sys.setprofile(None)
    assert len(seen) == 100
