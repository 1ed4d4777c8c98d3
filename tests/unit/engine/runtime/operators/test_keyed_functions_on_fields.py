"""Keyed functions that only read attributes get the fields of records that come in columns, and cannot tell."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.model.row import Row
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
)
from tests.tools.runtime.operator_harness import OperatorHarness

KIND = Types.ROW_NAMED(["user", "amount", "note"], [Types.STRING(), Types.LONG(), Types.STRING()])
USERS = ["a", "b", "a", "c", "b"]
AMOUNTS = [5, 0, 7, 1, 2]
NOTES = ["x", None, "y", "z", ""]
STAMPS = [1, 2, 3, 4, 5]
kinds = set()


def seen(value):
    return value


class Totals(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        before = self.total.value() or 0
        self.total.update(before + value.amount)
        yield ctx.get_current_key(), before + value.amount, value.note, ctx.timestamp()


class Failing(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return [(ctx.get_current_key(), 10 // seen(value.amount))]


def process_of(function, keys):
    owner = function()
    return KeyedProcessOperator(UserFunction(owner.process_element, owner), keys)


def run(make, as_columns, selector=lambda row: row.user):
    operator = make(KeySelection(selector, input_type=KIND))
    operator.functions_as_columns = as_columns
    harness = OperatorHarness(operator)
    data = pa.RecordBatch.from_arrays(
        [pa.array(USERS), pa.array(AMOUNTS), pa.array(NOTES)], names=KIND.get_field_names()
    )
    rows = operator.rows_from(ColumnBatch(data, np.array(STAMPS, np.int64)), KIND, 0)
    kinds.add(type(rows).__name__)
    harness.take(operator.process(rows, 0))
    return harness


CASES = {
    "process": lambda keys: process_of(Totals, keys),
    "map": lambda keys: KeyedMapOperator(
        UserFunction(lambda row: (seen(row.amount), row.note)), keys
    ),
    "map that reads nothing": lambda keys: KeyedMapOperator(
        UserFunction(lambda row: seen("one more")), keys
    ),
    "flat map": lambda keys: KeyedFlatMapOperator(
        UserFunction(lambda row: [row.note] * seen(row.amount)), keys
    ),
}


@pytest.mark.parametrize("selector", [lambda row: row.user, lambda row: (row["user"], row[1])])
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_calls_with_records(case, selector):
    kinds.clear()
    got = run(CASES[case], True, selector)
    assert kinds == {"ColumnRows"}
    assert got.stamped == run(CASES[case], False, selector).stamped
    assert kinds == {"ColumnRows", "RowBatch"}


@pytest.mark.parametrize("as_columns", [True, False])
def test_the_record_of_an_error_is_a_row(as_columns):
    operators = []

    def make(keys):
        operators.append(process_of(Failing, keys))
        return operators[-1]

    with pytest.raises(ZeroDivisionError):
        run(make, as_columns)
    assert operators[0].failing_record() == repr(Row(user="b", amount=0, note=None))


@pytest.mark.parametrize(
    "function",
    [lambda row: row, lambda row: row["note"]],
    ids=["record", "item"],
)
def test_other_functions_get_records(function):
    kinds.clear()
    run(lambda keys: KeyedMapOperator(UserFunction(function), keys), True)
    assert kinds == {"RowBatch"}


@pytest.mark.parametrize("case", CASES)
def test_a_key_that_is_computed_needs_no_records(case):
    kinds.clear()
    got = run(CASES[case], True, lambda row: row.user.upper())
    assert kinds == {"ColumnRows"}
    assert got.stamped == run(CASES[case], False, lambda row: row.user.upper()).stamped


def test_a_key_selector_that_is_called_needs_records():
    kinds.clear()
    run(CASES["map"], True, lambda row: seen(row.user))
    assert kinds == {"RowBatch"}
