"""Reduces of BATCH jobs whose function is a sum or the like combine the records of columns, and give what they give record by record."""

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.model.row import Row
from penstock.runtime.codecs.convert import arrow_schema
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.keys import KeySelection
from penstock.runtime.operators import ReduceOperator
from penstock.runtime.operators.combined_rows import LEAST_ROWS, CombiningByKey
from penstock.runtime.row_functions.partials import Combiner
from tests.tools.runtime.operator_harness import OperatorHarness

KIND = Types.ROW_NAMED(["user", "n", "x"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])
ROWS = 200


def add(one, other):
    return Row(user=one.user, n=one.n + other.n, x=other.x)


def of_floats(one, other):
    return Row(user=one.user, n=one.n, x=one.x + other.x)


def by_user(row):
    return row.user


def batches(seed, users, numbers=range(100)):
    draw = random.Random(seed)
    for _ in range(4):
        columns = [
            pa.array([f"user-{draw.randrange(users)}" for _ in range(ROWS)]),
            pa.array([draw.choice(numbers) for _ in range(ROWS)], pa.int64()),
            pa.array([draw.choice((0.5, -0.0, 1e308)) for _ in range(ROWS)]),
        ]
        yield ColumnBatch(pa.RecordBatch.from_arrays(columns, schema=arrow_schema(KIND)))


def operators(function, as_columns):
    """The operator before the exchange, and the one behind it."""
    keys = KeySelection(by_user, None, KIND)
    combining = ReduceOperator(UserFunction(function), keys, combines=True)
    combining = combining.in_batch().before_exchange()
    for one in (combining.partial, combining.final):
        one.functions_as_columns = as_columns
    return combining.partial, combining.final


def run(function, found, as_columns=True):
    partial, final = operators(function, as_columns)
    before = OperatorHarness(partial, input_types=(KIND,), is_batch=True)
    behind = OperatorHarness(final, input_types=(None,), is_batch=True)
    sent = 0
    for batch in found:
        before.feed_batch(partial.rows_from(batch, KIND, 0))
    before.finish()
    for element in before.elements:
        if isinstance(element, RowBatch):
            sent += len(element)
            behind.feed_batch(element)
    behind.finish()
    return sorted(map(repr, behind.values)), sent


@pytest.mark.parametrize("users", [1, 7, 150])
@pytest.mark.parametrize("function", [add, of_floats])
@pytest.mark.parametrize("numbers", [range(100), (1, 2**62), (1, 2, None)], ids=str)
def test_results_are_those_of_single_records(function, users, numbers):
    if function is add and None in numbers:
        pytest.raises(TypeError, run, function, list(batches(1, users, numbers)))
        return
    for seed in range(3):
        found = list(batches(seed, users, numbers))
        got, _ = run(function, found)
        expected, _ = run(function, found, as_columns=False)
        assert got == expected
        assert got


def combining(function=add, key=by_user):
    return CombiningByKey(Combiner(function), KeySelection(key, None, KIND))


def test_there_is_one_record_for_each_key_in_the_order_in_which_keys_come():
    (batch, *_) = batches(3, 7)
    made = combining()
    found = made.rows(batch, KIND)
    users = batch.data.column(0).to_pylist()
    assert found.keys == list(dict.fromkeys(users)) == [row.user for row in found.rows.values]
    assert sum(row.n for row in found.rows.values) == sum(batch.data.column(1).to_pylist())


def test_a_record_has_the_timestamp_of_the_first_one_of_its_key_and_pane():
    (batch, *_) = batches(3, 2)
    batch.timestamps = np.arange(ROWS)
    made = combining()
    found = made.rows(batch, KIND, batch.timestamps // 100)
    assert len(found.rows) == 4
    assert all(stamp < 20 or 100 <= stamp < 120 for stamp in found.rows.timestamps.tolist())


def test_records_with_timestamps_are_not_combined():
    (batch, *_) = batches(3, 7)
    batch.timestamps = np.arange(ROWS)
    partial, _ = operators(add, as_columns=True)
    OperatorHarness(partial, input_types=(KIND,), is_batch=True)
    assert len(partial.rows_from(batch, KIND, 0)) == ROWS


def with_null(batch):
    users = pa.array([None, *batch.data.column(0).to_pylist()[1:]])
    return ColumnBatch(batch.data.set_column(0, "user", users))


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (lambda row: row.user[:2], lambda batch: batch),
        (lambda row: row.x, lambda batch: batch),
        (by_user, lambda batch: batch.slice(0, LEAST_ROWS - 1)),
        (by_user, with_null),
    ],
    ids=["a computed key", "a key of floats", "few records", "None as a key"],
)
def test_what_cannot_be_grouped_exactly_is_not_combined(key, change):
    (batch, *_) = batches(3, 7)
    made = combining(key=key)
    assert made.rows(change(batch), KIND) is None


def test_streams_of_too_many_keys_are_tried_seldom(monkeypatch):
    tried = []
    real = KeySelection.distinct_keys_of
    monkeypatch.setattr(
        KeySelection, "distinct_keys_of", lambda *given: tried.append(1) or real(*given)
    )
    made = combining()
    for seed in range(40):
        for batch in batches(seed, 10_000):
            assert made.rows(batch, KIND) is None
    assert len(tried) == 4


def test_the_option_turns_it_off():
    (batch, *_) = batches(3, 7)
    partial, _ = operators(add, as_columns=False)
    OperatorHarness(partial, input_types=(KIND,), is_batch=True)
    assert len(partial.rows_from(batch, KIND, 0)) == ROWS
