"""Windows whose reduce is a sum or the like combine the records of columns, and give what they give record by record."""

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Time
from penstock.common.typeinfo import Types
from penstock.model.row import Row
from penstock.runtime.codecs.convert import arrow_schema
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import MAX_WATERMARK, ColumnBatch, RowBatch
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators import ReduceContents, window_operator
from penstock.runtime.operators.combined_rows import CombiningByKey
from penstock.runtime.windowing import SlidingEventTimeWindows, TumblingEventTimeWindows
from tests.tools.runtime.operator_harness import OperatorHarness

KIND = Types.ROW_NAMED(
    ["user", "n", "last", "x"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]
)
GRIDS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(10)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(5)),
}
calls = []


def add(one, other):
    return Row(user=one.user, n=one.n + other.n, last=other.last, x=one.x)


def add_and_note(one, other):
    calls.append(other)
    return add(one, other)


def of_floats(one, other):
    return Row(user=one.user, n=one.n, last=one.last, x=one.x + other.x)


def least_and_most(one, other):
    return Row(user=other.user, n=min(one.n, other.n), last=max(one.last, other.last), x=other.x)


KEYS = {
    "field": lambda row: row.user,
    "two fields": lambda row: (row.user, row.n),
    "computed": lambda row: row.user[:1],
}


def batches(seed, in_order):
    draw = random.Random(seed)
    for number in range(4):
        count = 100
        stamps = [draw.randrange(number * 20, number * 20 + 40) for _ in range(count)]
        if in_order:
            stamps.sort()
        columns = [
            pa.array([draw.choice("abc") for _ in range(count)]),
            pa.array([draw.choice((1, 2, 2)) for _ in range(count)]),
            pa.array([draw.randrange(1000) for _ in range(count)]),
            pa.array([draw.choice((0.5, -0.0, 0.25)) for _ in range(count)]),
        ]
        data = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(KIND))
        yield ColumnBatch(data, np.array(stamps, np.int64)), number * 20 + 30


def run(function, grid, key, seed, in_order, lateness=0, as_columns=True):
    operator = window_operator(
        assigner=GRIDS[grid],
        contents=ReduceContents(UserFunction(function)),
        keys=KeySelection(KEYS[key], None, KIND),
        allowed_lateness_ms=lateness,
    )
    operator.functions_as_columns = as_columns
    harness = OperatorHarness(operator, input_types=(KIND,))
    for batch, watermark in batches(seed, in_order):
        rows = operator.rows_from(batch, KIND, 0)
        harness.feed_batch(rows)
        harness.watermark(watermark)
    harness.watermark(MAX_WATERMARK)
    emitted = [one for one in harness.elements if isinstance(one, RowBatch)]
    found = [
        sorted(zip(map(repr, one.values), one.timestamps.tolist(), strict=True)) for one in emitted
    ]
    return found, harness.late.get_count()


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "disordered"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("function", [add, least_and_most, of_floats])
def test_results_are_those_of_single_records(function, grid, key, in_order):
    for seed in range(3):
        for lateness in (0, 15):
            got = run(function, grid, key, seed, in_order, lateness)
            assert got == run(function, grid, key, seed, in_order, lateness, as_columns=False)
            assert got[0]


def counted(monkeypatch):
    """The number of records that each batch became."""
    found = []
    real = CombiningByKey.rows

    def rows(*given):
        made = real(*given)
        found.append(None if made is None else len(made.rows))
        return made

    monkeypatch.setattr(CombiningByKey, "rows", rows)
    return found


def test_records_of_a_key_and_pane_are_combined(monkeypatch):
    found = counted(monkeypatch)
    run(add, "tumbling", "field", 1, in_order=True)
    assert found[0] <= 15


@pytest.mark.parametrize(
    ("function", "key", "in_order"),
    [(of_floats, "field", True), (add, "computed", True), (add, "field", False)],
)
def test_records_are_not_combined_where_the_result_may_differ(monkeypatch, function, key, in_order):
    found = counted(monkeypatch)
    run(function, "sliding", key, 1, in_order)
    assert set(found) <= {None}


def test_the_option_calls_the_function_for_each_record():
    calls.clear()
    run(add_and_note, "tumbling", "field", 1, in_order=True, as_columns=False)
    assert len(calls) > 100
