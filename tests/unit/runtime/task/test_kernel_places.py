"""Chains whose functions run in kernels give what they give otherwise: records, counts, timestamps, errors. Where Python objects are wanted,
they do not.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.model.errors import UserCodeError
from penstock.model.graph.chain import ChainTarget
from penstock.model.ids import DataSetId
from penstock.model.row import Row
from penstock.runtime.codecs.convert import to_columns, to_rows
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.operators import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.row_functions.kernels import on_batches
from penstock.runtime.task.chain import OperatorChain
from tests.tools.runtime.task_parts import context_for, output, spec_of

COUNT = 1200
KIND = Types.ROW_NAMED(["id", "price"], [Types.LONG(), Types.DOUBLE()])
PAIR = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
NAMED = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.DOUBLE()])
IDS = [*range(-200, 999), 2**63 - 1]
PRICES = [None if one % 40 == 0 else one / 8 - 10 for one in range(COUNT)]


def batch(stamps=None):
    data = pa.RecordBatch.from_arrays([pa.array(IDS), pa.array(PRICES)], names=["id", "price"])
    return ColumnBatch(data, None if stamps is None else np.array(stamps, np.int64))


def map_of(function, kind=None):
    return MapOperator(UserFunction(function)), kind


def filter_of(function):
    return FilterOperator(UserFunction(function)), "filter"


def chain_of(made, leaves=True):
    """`leaves`: the results of the last operator leave the task by an exchange."""
    operators = [operator for operator, _ in made]
    kinds, kind = [], KIND
    for _, declared in made:
        kind = kind if declared == "filter" else declared
        kinds.append(kind)
    last = output(len(made) - 1)
    if leaves:
        last = replace(last, data_set_id=DATA_SET, driver_stream=None, element_type=kind)
    spec = spec_of(operators, types=[KIND], outputs=[last])
    chained = tuple(
        replace(
            one,
            output_type=kind,
            targets=tuple(ChainTarget(None, to.operator_index, kind) for to in one.targets),
        )
        for one, kind in zip(spec.operators, kinds, strict=True)
    )
    chain = OperatorChain(replace(spec, operators=chained), lambda: 0)
    chain.open(context_for)
    return chain, kind


DATA_SET = DataSetId("d" * 32)


def run(made, stamps=None, in_kernels=True, leaves=True):
    """The records that come out, the counts of each operator, the classes of what comes out, and the chain."""
    chain, kind = chain_of(made, leaves)
    if not in_kernels:
        for node in chain.nodes:
            node.operator.kernels = None
            if node.operator.fused is not None:
                node.operator.fused.kernels = None
    records, classes = [], set()
    for routed in chain.feed(batch(stamps)):
        if routed is not None:
            _, element = routed
            classes.add(type(element))
            if isinstance(element, RowBatch) and leaves:
                element = to_columns(element, kind)
            rows = to_rows(element, kind) if isinstance(element, ColumnBatch) else element
            times = [None] * len(rows) if rows.timestamps is None else rows.timestamps.tolist()
            records += zip(map(repr, rows.values), times, strict=True)
    counts = [(node.counts.records_in, node.counts.records_out) for node in chain.nodes]
    return records, counts, classes, chain


def some(value):
    return 0.0 if value is None else value


CHAINS = {
    "a map": lambda: [map_of(lambda row: (row.id, row.price), PAIR)],
    "rows": lambda: [map_of(lambda row: Row(b=row.price, a=row.id % 7), NAMED)],
    "a filter": lambda: [filter_of(lambda row: row.id % 3 == 0)],
    "a value": lambda: [map_of(lambda row: row.id // 2, Types.LONG())],
    "declared": lambda: [
        map_of(lambda row: (row.id % 9, row.price), PAIR),
        filter_of(lambda pair: pair[1] is not None and pair[1] > 0),
        map_of(lambda pair: (pair[0] * 2, pair[1] / 2), PAIR),
    ],
    "fused": lambda: [
        map_of(lambda row: (row.id % 9, row.price)),
        filter_of(lambda pair: pair[1] is not None and pair[1] > 0),
        map_of(lambda pair: (pair[0] * 2, pair[1] / 2), PAIR),
    ],
    "guarded": lambda: [
        map_of(
            lambda row: (
                row.id + 1 if row.id < 1100 else 5 * row.id // 9,
                0.0 if row.price is None else row.price,
            ),
            PAIR,
        )
    ],
    "fused and guarded": lambda: [
        map_of(lambda row: (row.id * 9 % 11, row.price)),
        filter_of(lambda pair: pair[0] > 3),
        map_of(lambda pair: (pair[0], 1.0), PAIR),
    ],
    "all dropped": lambda: [filter_of(lambda row: row.id < -999)],
    "all kept": lambda: [filter_of(lambda row: row.id > -999)],
}


@pytest.mark.parametrize("stamps", [None, list(range(COUNT))], ids=["plain", "stamped"])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_in_kernels_give_what_they_give_otherwise(name, stamps):
    records, counts, classes, _ = run(CHAINS[name](), stamps)
    expected, expected_counts, _, _ = run(CHAINS[name](), stamps, in_kernels=False)
    assert records == expected
    assert counts == expected_counts
    assert classes <= {ColumnBatch}


@pytest.mark.parametrize(
    "make",
    [
        lambda: [map_of(lambda row: (1 // row.id, 0.0), PAIR)],
        lambda: [filter_of(lambda row: row.price > 0)],
        lambda: [map_of(lambda row: (row.id + 1, 0.0), PAIR)],
        lambda: [map_of(lambda row: (row.id, 1 / row.id)), map_of(lambda pair: pair, PAIR)],
        lambda: [map_of(lambda row: row.id, Types.INT())],
    ],
    ids=["divisor", "None", "too large", "fused", "too large for the type"],
)
def test_errors_are_those_of_the_function(make):
    def told(in_kernels):
        with pytest.raises((UserCodeError, OverflowError)) as caught:
            run(make(), in_kernels=in_kernels)
        return type(caught.value), str(caught.value)

    assert told(True) == told(False)


def test_small_batches_run_in_one_loop(monkeypatch):
    monkeypatch.setattr(on_batches, "ROWS_PER_STEP", COUNT + 1)
    _, _, classes, _ = run(CHAINS["a map"]())
    assert classes == {RowBatch}


@pytest.mark.parametrize(
    "make",
    [
        lambda: [map_of(lambda row: (row.id, row.price))],
        lambda: [
            map_of(lambda row: (row.id, row.price), PAIR),
            (FlatMapOperator(UserFunction(lambda pair: [pair])), PAIR),
        ],
        lambda: [map_of(lambda row: (row.id, row.price), PAIR), map_of(lambda pair: pair[0])],
        lambda: [
            map_of(lambda row: (row.id, row.id), PAIR),
            map_of(lambda pair: (round(pair[1], 1), 0.0), PAIR),
        ],
    ],
    ids=["no type", "flat_map behind", "values behind", "no kernel behind"],
)
def test_functions_whose_results_are_wanted_otherwise_do_not_run_in_kernels(make):
    chain, _ = chain_of(make())
    assert chain.nodes[0].operator.kernels is None


def test_a_function_without_a_kernel_runs_otherwise():
    kind = Types.TUPLE([Types.LONG(), Types.STRING()])
    made = [map_of(lambda row: (row.id, str(row.price)), kind)]
    records, _, classes, _ = run(made)
    assert records[0] == (repr((-200, "None")), None)
    assert classes == {RowBatch}


def test_results_that_stay_in_the_task_as_objects_are_not_made_columns():
    chain, _ = chain_of(CHAINS["a map"](), leaves=False)
    assert chain.nodes[0].operator.kernels is None
    assert chain_of(CHAINS["a map"]())[0].nodes[0].operator.kernels is not None


def test_the_option_turns_it_off():
    made = CHAINS["a map"]()
    made[0][0].functions_as_columns = False
    _, _, classes, chain = run(made)
    assert classes == {RowBatch}
    assert chain.nodes[0].operator.kernels is None
