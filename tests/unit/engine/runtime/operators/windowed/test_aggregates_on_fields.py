"""Aggregates of windows that only read fields get them from columns, and nothing shows it: what comes out is that of calls with records."""

import random
import traceback

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Time
from penstock.common.typeinfo import Types
from penstock.datastream import AggregateFunction
from penstock.engine.model.row import Row
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, NO_TIMESTAMP, ColumnBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import window_operator
from penstock.engine.runtime.operators.windowed.functions import AggregateContents
from penstock.engine.runtime.windowing import SlidingEventTimeWindows
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.same_values import are_same

KIND = Types.ROW_NAMED(["user", "n", "x"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
WINDOWS = SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(5))
KEYS = {
    "field": lambda row: row.user,
    "computed": lambda row: row.user[:1],
    "called": lambda row: (lambda: row.user)(),
}


class Count(AggregateFunction):
    """Reads nothing."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Sums(Count):
    def create_accumulator(self):
        return [0, 0.0]

    def add(self, value, accumulator):
        accumulator[0] += value.n
        accumulator[1] += value.x or 0.0
        return accumulator

    def get_result(self, accumulator):
        return tuple(accumulator)


class Unpacking(Sums):
    def add(self, value, accumulator):
        user, n, _ = value
        return [accumulator[0] + n, accumulator[1] + len(user)]


class Last(Count):
    """Keeps the record, so it has to be one."""

    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value


class Inverse(Count):
    def add(self, value, accumulator):
        return accumulator + 60 // value.n


def harness_of(made, is_on=True, key="field", **given):
    operator = window_operator(
        keys=KeySelection(KEYS[key], input_type=KIND),
        assigner=WINDOWS,
        contents=AggregateContents(UserFunction(made.add, made)),
        **given,
    )
    operator.functions_as_columns = is_on
    return OperatorHarness(operator)


def columns_of(users, numbers, stamps):
    floats = [number / 4 if number else None for number in numbers]
    arrays = [pa.array(one) for one in (users, numbers)] + [pa.array(floats, pa.float64())]
    data = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(KIND))
    return ColumnBatch(data, np.array(stamps, np.int64))


def feed(harness, batch):
    """Feeds columns as a chain does. Returns: the class of what the operator takes."""
    rows = harness.operator.rows_from(batch, KIND, 0)
    harness.take(harness.operator.process(rows, 0))
    return type(rows).__name__


def drawn(in_order):
    draw = random.Random(f"windows {in_order}")
    for number in range(6):
        stamps = [draw.randrange(number * 20, number * 20 + 40) for _ in range(150)]
        if in_order:
            stamps.sort()
        users = [draw.choice(["anna", "bert", "ad", ""]) for _ in stamps]
        yield columns_of(users, [draw.randrange(5) for _ in stamps], stamps), number * 20 - 5


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("lateness", [0, 12])
@pytest.mark.parametrize("kind", [Count, Sums, Unpacking, Last])
def test_results_are_those_of_calls_with_records(kind, lateness, key, in_order):
    on = harness_of(kind(), True, key, allowed_lateness_ms=lateness)
    off = harness_of(kind(), False, key, allowed_lateness_ms=lateness)
    for batch, watermark in drawn(in_order):
        lends = kind is not Last and key != "called"
        assert feed(on, batch) == ("ColumnRows" if lends else "RowBatch")
        assert feed(off, batch) == "RowBatch"
        for harness in (on, off):
            harness.watermark(watermark)
    for harness in (on, off):
        harness.watermark(MAX_WATERMARK)
    assert on.values
    assert are_same(on.values, off.values)
    assert on.stamped == off.stamped
    assert on.late.get_count() == off.late.get_count()


@pytest.mark.parametrize("stamps", [[1, 2, 3, 4], [4, 21, 1, 30]])
def test_an_error_names_the_record_and_the_line_of_the_function(stamps):
    harness = harness_of(Inverse())
    with pytest.raises(ZeroDivisionError) as raised:
        feed(harness, columns_of(["anna", "bert", "anna", "bert"], [3, 2, 0, 1], stamps))
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.line == "return accumulator + 60 // value.n"
    assert harness.operator.failing_record() == repr(Row(user="anna", n=0, x=None))


def test_an_error_at_a_late_record_names_it():
    harness = harness_of(Inverse(), allowed_lateness_ms=100)
    harness.watermark(40)
    with pytest.raises(ZeroDivisionError):
        feed(harness, columns_of(["anna", "bert"], [3, 0], [30, 31]))
    assert harness.operator.failing_record() == repr(Row(user="bert", n=0, x=None))


def test_records_without_a_time_are_refused_with_the_record():
    harness = harness_of(Count())
    with pytest.raises(Exception, match="bert"):
        feed(harness, columns_of(["anna", "bert"], [3, 1], [1, NO_TIMESTAMP]))


def test_late_records_of_a_side_output_are_whole():
    harness = harness_of(Count(), late_tag="late")
    harness.watermark(99)
    assert feed(harness, columns_of(["anna"], [3], [5])) == "RowBatch"
    assert harness.side("late") == [Row(user="anna", n=3, x=0.75)]


def test_records_behind_columns_are_not_mistaken_for_those_before():
    harness = harness_of(Inverse())
    feed(harness, columns_of(["anna"], [3], [5]))
    with pytest.raises(ZeroDivisionError):
        harness.feed([Row(user="bert", n=0, x=None)], [6])
    assert harness.operator.failing_record() == repr(Row(user="bert", n=0, x=None))
