"""Maps and filters on Python objects whose functions run without calls: the same records, timestamps, errors and dead letters."""

import sys
import traceback

import numpy as np
import pytest

from penstock.runtime.context import UserFunction
from penstock.runtime.operators import FilterOperator, MapOperator
from penstock.runtime.operators.stateless import LEAST_OBJECTS
from penstock.runtime.row_functions import objects
from tests.tools.runtime.operator_harness import OperatorHarness

COUNT = 5000
KEPT = []
calls = []


class Number(int):
    """It could have operators of its own."""


def noted(pair):
    calls.append(pair)
    return pair[0] + 1


def plus(pair):
    return pair[0] + 1


def harness_of(make, function, on=True):
    operator = make(UserFunction(function))
    operator.functions_as_columns = on
    told = []
    return OperatorHarness(operator, complain=told.append), told


def pairs(count=COUNT):
    return [(at, str(at)) for at in range(count)]


def fed(make, function, on=True, stamps=None):
    """What comes out of the second of two equal batches; only it may run without calls."""
    harness, told = harness_of(make, function, on)
    harness.feed(pairs(), stamps)
    harness.elements.clear()
    harness.feed(pairs(), stamps)
    assert told == []
    return [
        (one.values, None if one.timestamps is None else one.timestamps.tolist())
        for one in harness.elements
    ]


@pytest.mark.parametrize("stamps", [None, list(range(COUNT))], ids=["plain", "stamped"])
@pytest.mark.parametrize(
    ("make", "function"),
    [
        (MapOperator, plus),
        (MapOperator, lambda pair: (pair[1], pair[0] * 0.5)),
        (MapOperator, lambda pair: [pair[0]]),
        (MapOperator, lambda pair: pair),
        (FilterOperator, lambda pair: pair[0] % 3),
        (FilterOperator, lambda pair: pair[1].startswith("7")),
        (FilterOperator, lambda pair: None),
        (FilterOperator, lambda pair: True),
    ],
)
def test_results_are_those_of_calls(make, function, stamps):
    assert fed(make, function, stamps=stamps) == fed(make, function, on=False, stamps=stamps)


@pytest.fixture
def without_calls(monkeypatch):
    """How many batches ran without calls."""
    found = []
    real = objects.ObjectFunction.results

    def results(self, values):
        made = real(self, values)
        found.append(made is not None)
        return made

    monkeypatch.setattr(objects.ObjectFunction, "results", results)
    return found


def test_the_function_is_not_called(without_calls):
    fed(MapOperator, plus)
    fed(FilterOperator, plus)
    assert without_calls == [True] * 4


@pytest.mark.parametrize(
    "records",
    [
        [(np.float64(1), 2)],
        [[1, 2]],
        [{0: 1}],
        [(1, [2])],
        [(Number(1), 2)],
        [Number(1)],
        [(1, (2, Number(3)))],
    ],
    ids=repr,
)
def test_a_batch_with_an_object_of_another_class_is_called(records):
    """Its operators may be code of the user, of which nothing is known."""
    runner = objects.ObjectFunction(lambda pair: pair, is_filter=False)
    assert runner.results([(1, "a"), 5, None, (1, (2.5, b"x")), *records]) is None
    assert runner.results([(1, "a"), 5, None, (1, (2.5, b"x"))]) is not None


def test_a_list_that_a_function_does_not_make_is_copied_for_each_record(without_calls):
    harness, _ = harness_of(MapOperator, lambda pair: KEPT)
    harness.feed(pairs())
    KEPT.append(1)
    assert harness.elements[-1].values == [[]] * COUNT and without_calls == [True]


def test_a_function_that_changes_something_is_called_once_for_each_record():
    calls.clear()
    fed(MapOperator, noted)
    assert calls == pairs() * 2


def test_small_batches_are_called(without_calls):
    harness, _ = harness_of(FilterOperator, plus)
    harness.feed(pairs(LEAST_OBJECTS - 1))
    assert without_calls == []


def fails(pair):
    return 1 // (pair[0] - 4500)


@pytest.mark.parametrize("make", [MapOperator, FilterOperator])
def test_an_error_is_that_of_the_function_and_names_its_record(make):
    harness, _ = harness_of(make, fails)
    harness.feed(pairs(4400))
    with pytest.raises(ZeroDivisionError) as caught:
        harness.feed(pairs())
    (frame,) = [
        one for one in traceback.extract_tb(caught.value.__traceback__) if one.name == "fails"
    ]
    assert frame.line == "return 1 // (pair[0] - 4500)"
    assert harness.operator.failing_record() == repr((4500, "4500"))


def test_a_function_that_raises_in_most_batches_is_called_at_once(without_calls):
    class Letters:
        def takes(self, error):
            return True

        def add(self, error, record, timestamp):
            """The record is lost."""

    harness, _ = harness_of(FilterOperator, fails)
    harness.operator.poison = Letters()
    for _ in range(10):
        harness.feed(pairs())
    assert without_calls == [False] * 10
    assert harness.operator.row_function.on_objects._run is None


def test_a_changed_global_is_seen_at_the_next_batch(monkeypatch):
    monkeypatch.setitem(globals(), "factor", 2)
    harness, _ = harness_of(MapOperator, lambda pair: pair[0] * factor)  # noqa: F821
    harness.feed(pairs())
    harness.feed(pairs())
    monkeypatch.setitem(globals(), "factor", 3)
    harness.feed(pairs())
    assert harness.elements[-1].values == [3 * at for at in range(COUNT)]


def test_a_tracer_sees_the_calls():
    harness, _ = harness_of(FilterOperator, plus)
    seen = []
    former = sys.gettrace()
    sys.settrace(lambda frame, event, argument: seen.append(frame.f_code))
    try:
        harness.feed(pairs())
    finally:
        sys.settrace(former)
    assert seen.count(plus.__code__) == COUNT


def test_the_option_turns_it_off():
    harness, _ = harness_of(MapOperator, plus, on=False)
    assert harness.operator.row_function.on_objects is None
