"""Windows whose `AggregateFunction.add` is in the operator's loop: results, errors and what is put aside are those of calls."""

import traceback

import pytest

from penstock.datastream import AggregateFunction
from penstock.model.row import Row
from penstock.model.time import Time
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import MAX_WATERMARK
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators import AggregateContents, window_operator
from penstock.runtime.row_functions import reducing
from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.row_functions.runner import are_same
from penstock.runtime.windowing import SlidingEventTimeWindows
from tests.tools.runtime.operator_harness import OperatorHarness

KEYS = KeySelection(lambda value: value[0])
RECORDS = [(f"key{number % 7}", number % 5) for number in range(3000)]


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Mean(Count):
    def create_accumulator(self):
        return 0, 0.0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]


class AsRow(Count):
    def create_accumulator(self):
        return Row(n=0, last=None)

    def add(self, value, accumulator):
        return Row(n=accumulator.n + 1, last=value[1])


class Longer(Count):
    """A list that is made anew."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        last = [value[1]]
        return accumulator[-3:] + last if value[1] else accumulator


class Inverse(Count):
    def add(self, value, accumulator):
        return accumulator + 60 // value[1]


class InPlace(Longer):
    def add(self, value, accumulator):
        accumulator.append(value)
        return accumulator


class OfSelf(Count):
    step = 2

    def add(self, value, accumulator):
        return accumulator + self.step


class PutAside:
    """Takes records that are put aside."""

    def __init__(self):
        self.records = []

    def takes(self, error):
        return True

    def add(self, error, record, stamp):
        self.records.append(record)


INLINE = [Count, Mean, AsRow, Longer]


def harness_of(made, is_on, poison=None):
    contents = AggregateContents(UserFunction(made.add, made))
    windows = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2))
    operator = window_operator(keys=KEYS, assigner=windows, contents=contents)
    operator.functions_as_columns = is_on
    if poison is not None:
        operator.poison = poison
    return OperatorHarness(operator)


def fed(harness, records=RECORDS, size=700):
    for start in range(0, len(records), size):
        part = records[start : start + size]
        harness.feed(list(part), range(10 * start, 10 * (start + len(part)), 10))
        harness.watermark(10 * start)
    harness.watermark(MAX_WATERMARK)
    return harness


@pytest.mark.parametrize("kind", [*INLINE, InPlace, OfSelf])
def test_results_are_those_of_calls(kind):
    on, off = (fed(harness_of(kind(), is_on)) for is_on in (True, False))
    assert on.values
    assert are_same(on.values, off.values)
    assert on.stamped == off.stamped


@pytest.mark.parametrize("kind", [*INLINE, Inverse])
def test_what_only_computes_is_in_the_loop(kind):
    assert inlined(kind().add, 2).expression is not None


@pytest.mark.parametrize("kind", [InPlace, OfSelf])
def test_what_changes_its_accumulator_or_reads_its_object_is_called(kind):
    assert inlined(kind().add, 2).expression is None


RATE = 1


class Rated(Count):
    """The thirtieth accumulator changes the variable that `add` reads."""

    made = 0

    def create_accumulator(self):
        Rated.made += 1
        if Rated.made == 30:
            globals()["RATE"] = 2
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1] * RATE


def test_a_variable_that_create_accumulator_changes_counts_from_there_on(monkeypatch):
    found = []
    for is_on in (True, False):
        monkeypatch.setattr(Rated, "made", 0)
        monkeypatch.setitem(globals(), "RATE", 1)
        found.append(fed(harness_of(Rated(), is_on)).values)
    assert inlined(Rated().add, 2).expression is not None
    assert found[0] == found[1]


def test_add_is_called_for_samples_only(monkeypatch):
    compared = []
    real = reducing.Reducing._compared

    def noted(self, feed, skey, value):
        compared.append(value)
        real(self, feed, skey, value)

    monkeypatch.setattr(reducing.Reducing, "_compared", noted)
    monkeypatch.setattr(reducing, "_call_and_keep", lambda _fed: pytest.fail("all are called"))
    harness = fed(harness_of(Count(), True))
    assert sum(harness.values) >= len(RECORDS)
    assert 0 < len(compared) < len(RECORDS) // 10


def test_a_result_that_differs_is_told_and_the_function_called(monkeypatch):
    lines = []
    monkeypatch.setattr(reducing, "are_same", lambda *_: False)
    harness = harness_of(Count(), True)
    harness.operator.complain = lines.append
    fold = harness.operator.contents.fold_in_loop("Windows", lines.append)
    table = {}
    fold(table, ["a"] * 200, [("a", 1000 + number) for number in range(200)])
    assert table == {"a": 200}
    assert lines == []  # small numbers are one object each: nothing to compare
    table = {"a": 10**6}
    fold(table, ["a"] * 200, [("a", 1)] * 200)
    assert table == {"a": 10**6 + 200}
    fold(table, ["a"] * 5000, [("a", 1)] * 5000)
    assert table == {"a": 10**6 + 5200}
    (line,) = lines
    assert line.startswith("Windows: for 100")
    assert "The function is called from now on" in line


@pytest.mark.parametrize("is_on", [True, False])
def test_an_error_names_the_record_and_the_line_of_the_function(is_on):
    harness = harness_of(Inverse(), is_on)
    with pytest.raises(ZeroDivisionError) as raised:
        harness.feed([("a", 3), ("a", 0), ("b", 2)], [1, 2, 3])
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.line == "return accumulator + 60 // value[1]"
    assert harness.operator.failing_record() == "('a', 0)"


@pytest.mark.parametrize("is_on", [True, False])
def test_an_error_of_create_accumulator_names_the_record(is_on):
    class NoBegin(Count):
        def create_accumulator(self):
            raise KeyError("no begin")

    harness = harness_of(NoBegin(), is_on)
    with pytest.raises(KeyError, match="no begin"):
        harness.feed([("a", 3)], [1])
    assert harness.operator.failing_record() == "('a', 3)"


@pytest.mark.parametrize("is_on", [True, False])
def test_records_at_which_it_raises_are_put_aside(is_on):
    aside = PutAside()
    harness = harness_of(Inverse(), is_on, aside)
    some = [("a", 3), ("a", 0), ("b", 2), ("a", 5), ("b", 0)]
    harness.feed(some, [1, 2, 3, 4, 5])
    harness.watermark(1999)
    assert aside.records == [("a", 0), ("b", 0)] * 5
    assert harness.values == [20 + 12, 30]
