"""Row operators on columns: their functions give the same records, timestamps, errors and dead letters as when they are called."""

import sys
import traceback

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.engine.model.row import Row
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.operator import MAX_EMIT
from penstock.engine.runtime.operators import FilterOperator, FlatMapOperator, MapOperator
from penstock.engine.runtime.row_functions.plans import Strategy
from tests.tools.runtime.operator_harness import OperatorHarness

KIND = Types.ROW_NAMED(["id", "price", "name"], [Types.LONG(), Types.DOUBLE(), Types.STRING()])
IDS = [3, 0, 5, 2]
PRICES = [1.5, -0.0, None, 2.0]
NAMES = ["a b", "", "İ", "x"]
STAMPS = [10, 20, 30, 40]
calls = []


def batch(stamps=STAMPS):
    data = pa.RecordBatch.from_arrays(
        [pa.array(IDS), pa.array(PRICES), pa.array(NAMES)], names=KIND.get_field_names()
    )
    return ColumnBatch(data, None if stamps is None else np.array(stamps, np.int64))


def rows():
    return [Row(id=a, price=b, name=c) for a, b, c in zip(IDS, PRICES, NAMES, strict=True)]


def fed(make, function, stamps=STAMPS, on=True):
    """A harness that was fed the batch, and the lines that it logged."""
    logged = []
    operator = make(UserFunction(function))
    operator.functions_as_columns = on
    harness = OperatorHarness(operator, complain=logged.append)
    feed(harness, stamps)
    return harness, logged


def feed(harness, stamps=STAMPS):
    operator = harness.operator
    harness.take(operator.process(operator.rows_from(batch(stamps), KIND, 0), 0))


def as_rows(harness):
    """(value, timestamp) of all results, which may be columns."""
    found = []
    for element in harness.elements:
        values = element.values if isinstance(element, RowBatch) else None
        if values is None:
            names = tuple(element.data.schema.names)
            columns = [column.to_pylist() for column in element.data.columns]
            values = [
                Row(**dict(zip(names, one, strict=True))) for one in zip(*columns, strict=True)
            ]
        stamps = [None] * len(values) if element.timestamps is None else element.timestamps.tolist()
        found += zip(values, stamps, strict=True)
    return found


def helper(value):
    calls.append(value)
    return value


def counted(row):
    total = 0
    for letter in row.name:
        total += ord(letter)
    return row.id, total


MAPS = [
    lambda row: (row.id, row.name.upper()),
    lambda row: row["id"] // 2,
    lambda row: Row(id=row.id, twice=row[0] * 2),
    lambda row: [row.id, row.name],
    lambda row: (helper(row.id), row.price),
    lambda row: row,
    lambda row: None if row.price is None else row.price + 1,
    counted,
]


@pytest.mark.parametrize("stamps", [STAMPS, None], ids=["stamped", "plain"])
@pytest.mark.parametrize("function", MAPS)
def test_a_map_gives_what_its_function_returns(function, stamps):
    harness, logged = fed(MapOperator, function, stamps)
    assert as_rows(harness) == list(zip(map(function, rows()), stamps or [None] * 4, strict=True))
    assert logged == []


@pytest.mark.parametrize("stamps", [STAMPS, None], ids=["stamped", "plain"])
@pytest.mark.parametrize(
    "function",
    [
        lambda row: row.id > 2,
        lambda row: row.name,
        lambda row: helper(row.id) == 3,
        lambda row: True,
        lambda row: row.id < 0,
        lambda row: row == Row(id=2, price=2.0, name="x"),
    ],
)
def test_a_filter_keeps_the_records_for_which_its_function_is_true(function, stamps):
    harness, _ = fed(FilterOperator, function, stamps)
    kept = [pair for pair in zip(rows(), stamps or [None] * 4, strict=True) if function(pair[0])]
    assert as_rows(harness) == kept


def several(row):
    yield row.id
    if row.price is not None:
        yield row.price


@pytest.mark.parametrize("stamps", [STAMPS, None], ids=["stamped", "plain"])
@pytest.mark.parametrize(
    "function",
    [
        lambda row: [row.id, row.name],
        lambda row: (row.id,) if row.id else (),
        lambda row: row.name.split(),
        lambda row: row.name,
        lambda row: [[row.id], (row.name, 1)],
        several,
    ],
)
def test_a_flat_map_gives_all_results_with_the_timestamp_of_their_record(function, stamps):
    harness, _ = fed(FlatMapOperator, function, stamps)
    expected = [
        (one, stamp)
        for row, stamp in zip(rows(), stamps or [None] * 4, strict=True)
        for one in function(row)
    ]
    assert as_rows(harness) == expected


def test_the_results_of_a_flat_map_come_in_batches_of_a_limited_size():
    operator = FlatMapOperator(UserFunction(lambda row: [row.id, row.id, row.name]))
    harness = OperatorHarness(operator)
    many = pa.Table.from_batches([batch(None).data] * 300).combine_chunks().to_batches()[0]
    harness.take(operator.process(operator.rows_from(ColumnBatch(many), KIND, 0), 0))
    sizes = [len(element) for element in harness.elements]
    assert len(sizes) == 4 and max(sizes) < MAX_EMIT + 3
    assert harness.values == [one for row in rows() for one in (row.id, row.id, row.name)] * 300


def fails(row):
    return (row.name, 7 // row.id)


def fails_later(row):
    for letter in row.name:
        helper(letter)
    return 7 // row.id


@pytest.mark.parametrize("function", [fails, fails_later, lambda row: row.price.real])
def test_an_error_is_the_functions_own_with_its_record_and_its_lines(function):
    harness = OperatorHarness(MapOperator(UserFunction(function)))
    bad = next(row for row in rows() if outcome(function, row) is not None)
    with pytest.raises(Exception) as caught:  # noqa: B017
        feed(harness)
    expected = outcome(function, bad)
    assert (type(caught.value), str(caught.value)) == (type(expected), str(expected))
    lines = traceback.format_tb(caught.value.__traceback__)
    assert lines[-1] == traceback.format_tb(expected.__traceback__)[-1]
    assert harness.operator.failing_record() == repr(bad)
    assert harness.elements == []


def outcome(function, row):
    try:
        function(row)
    except Exception as error:
        return error
    return None


class Letters:
    """Takes records that are put aside."""

    def __init__(self):
        self.records = []

    def takes(self, error):
        return True

    def add(self, error, record, timestamp):
        self.records.append((type(error), record, timestamp))


@pytest.mark.parametrize("function", [fails, fails_later])
@pytest.mark.parametrize("make", [MapOperator, FilterOperator])
def test_a_record_at_which_the_function_raises_is_put_aside_as_a_row(make, function):
    operator = make(UserFunction(function))
    harness = OperatorHarness(operator, poison=Letters())
    feed(harness)
    assert operator.poison.records == [(ZeroDivisionError, rows()[1], 20)]
    assert [stamp for _, stamp in as_rows(harness)] == [10, 30, 40]


def test_a_function_that_changes_something_is_called_once_for_each_record():
    calls.clear()
    fed(MapOperator, lambda row: helper(row.id))
    assert calls == IDS


def test_the_records_that_a_filter_keeps_stay_columns():
    harness, _ = fed(FilterOperator, lambda row: row.id > 2)
    assert [type(element) for element in harness.elements] == [ColumnBatch]


def test_lists_that_are_emitted_are_not_shared():
    shared = [1, 2]
    harness, _ = fed(MapOperator, lambda row: (row.id, shared))
    values = [value for value, _ in as_rows(harness)]
    assert values[0][1] == shared
    assert len({id(value[1]) for value in values} | {id(shared)}) == 5


def test_a_changed_global_is_seen_at_the_next_batch(monkeypatch):
    monkeypatch.setitem(globals(), "factor", 2)
    harness, _ = fed(MapOperator, lambda row: row.id * factor)  # noqa: F821
    monkeypatch.setitem(globals(), "factor", 3)
    feed(harness)
    assert [value for value, _ in as_rows(harness)] == [
        *(2 * one for one in IDS),
        *(3 * one for one in IDS),
    ]


def test_a_tracer_sees_the_calls():
    seen = []
    former = sys.gettrace()
    function = MAPS[0]

    def trace(frame, event, argument):
        seen.append(frame.f_code)

    sys.settrace(trace)
    try:
        fed(MapOperator, function)
    finally:
        sys.settrace(former)
    assert seen.count(function.__code__) == len(IDS)


def test_the_option_turns_all_of_it_off():
    harness, _ = fed(MapOperator, lambda row: type(row).__name__, on=False)
    assert [value for value, _ in as_rows(harness)] == ["Row"] * 4
    harness, _ = fed(MapOperator, MAPS[0], on=False)
    assert harness.operator.row_function.plan(batch(), KIND).strategy is Strategy.RECORDS


def test_a_function_that_raises_in_most_batches_is_called_at_once():
    operator = MapOperator(UserFunction(fails))
    harness = OperatorHarness(operator, poison=Letters())
    for _ in range(10):
        feed(harness)
    latest = operator.row_function.plan(batch(), KIND)
    assert (latest.strategy, latest.why_not) == (
        Strategy.RECORDS,
        "it raised errors in more than a quarter of its batches",
    )
    assert len(operator.poison.records) == 10
