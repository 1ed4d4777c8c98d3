"""Functions of chained operators that run as one give what they give one by one: records, counts, timestamps, errors."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.model.errors import UserCodeError
from penstock.model.row import Row
from penstock.runtime.context import UserFunction
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.operators import FilterOperator, FlatMapOperator, MapOperator
from tests.tools.runtime.task_parts import opened

KIND = Types.ROW_NAMED(["id", "price"], [Types.LONG(), Types.DOUBLE()])
IDS = list(range(-2, 6))
PRICES = [0.5, -0.0, 1.0, 2.0, 3.0, None, 5.0, 6.0]


def batch(stamps=None):
    data = pa.RecordBatch.from_arrays([pa.array(IDS), pa.array(PRICES)], names=["id", "price"])
    return ColumnBatch(data, None if stamps is None else np.array(stamps, np.int64))


def map_of(function):
    return MapOperator(UserFunction(function))


def filter_of(function):
    return FilterOperator(UserFunction(function))


def run(operators, stamps=None, as_columns=True):
    """The records that come out, the counts of each operator, and the chain."""
    for operator in operators:
        operator.functions_as_columns = as_columns
    chain = opened(operators, types=[KIND])
    records = []
    for routed in chain.feed(batch(stamps)):
        if routed is not None:
            _, element = routed
            values = element.values if isinstance(element, RowBatch) else rows_of(element)
            times = (
                [None] * len(values) if element.timestamps is None else element.timestamps.tolist()
            )
            records += zip(map(repr, values), times, strict=True)
    counts = [(node.counts.records_in, node.counts.records_out) for node in chain.nodes]
    return records, counts, chain


def rows_of(element):
    return [Row(**one) for one in element.data.to_pylist()]


CHAINS = {
    "maps": lambda: [map_of(lambda row: (row.id, row.price)), map_of(lambda pair: pair[0] * 2)],
    "map, filter, map": lambda: [
        map_of(lambda row: (row.id, row.price)),
        filter_of(lambda pair: pair[0] > 0 and pair[1] is not None),
        map_of(lambda pair: f"{pair[0]}:{pair[1]}"),
    ],
    "filter, map": lambda: [filter_of(lambda row: row.id % 2), map_of(lambda row: row.price)],
    "rows between": lambda: [
        map_of(lambda row: Row(a=row.id, b=row["price"])),
        filter_of(lambda row: row.a > 1),
        map_of(lambda row: (row["b"], row[0])),
    ],
    "a row at the end": lambda: [
        map_of(lambda row: (row.id, 1)),
        map_of(lambda pair: Row(a=pair[0], b=pair)),
    ],
    "branches": lambda: [
        map_of(lambda row: (row.id, "x") if row.id > 1 else (row.id, "y", 1)),
        map_of(lambda record: len(record) if record[0] else record[1]),
    ],
    "all dropped": lambda: [map_of(lambda row: row.id), filter_of(lambda value: value > 99)],
    "none dropped": lambda: [map_of(lambda row: row.id), filter_of(lambda value: value < 99)],
    "two filters": lambda: [
        filter_of(lambda row: row.id > 0),
        map_of(lambda row: row.id),
        filter_of(lambda value: value > 2),
        map_of(lambda value: -value),
    ],
}
FUSED = [2, 3, 2, 3, 2, 2, 2, 2, 2]
"""How many operators run as one, by chain."""


@pytest.mark.parametrize("stamps", [None, list(range(8))], ids=["plain", "stamped"])
@pytest.mark.parametrize("name", CHAINS)
def test_fused_operators_give_what_they_give_one_by_one(name, stamps):
    records, counts, chain = run(CHAINS[name](), stamps)
    expected, expected_counts, _ = run(CHAINS[name](), stamps, as_columns=False)
    assert records == expected
    assert counts == expected_counts
    stages = chain.nodes[0].operator.fused.stages
    assert len(stages) == FUSED[list(CHAINS).index(name)]


def test_they_really_run_as_one(monkeypatch):
    def never(*_):
        raise AssertionError("an operator behind the first one was fed")

    monkeypatch.setattr(FilterOperator, "process", never)
    records, _, chain = run(CHAINS["map, filter, map"]())
    assert records[0] == ("'1:2.0'", None)
    assert chain.nodes[0].operator.fused is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: [map_of(lambda row: 1 // row.id), map_of(lambda value: 0)],
        lambda: [map_of(lambda row: (row.id, 1 // row.id)), filter_of(lambda pair: pair[0] != 0)],
        lambda: [filter_of(lambda row: row.id != 1), map_of(lambda row: 7 // row.id)],
        lambda: [map_of(lambda row: row.id), map_of(lambda value: 1 // value)],
    ],
)
def test_an_error_is_of_the_operator_that_raises_it_with_its_record(make):
    def told(as_columns):
        with pytest.raises(UserCodeError) as caught:
            run(make(), as_columns=as_columns)
        return str(caught.value)

    assert told(True) == told(False)


def test_operators_are_not_fused_over_a_flat_map_or_other_code():
    chain = opened(
        [
            map_of(lambda row: row.id),
            FlatMapOperator(UserFunction(lambda value: [value])),
            map_of(lambda value: value),
        ],
        types=[KIND],
    )
    assert [node.operator.fused for node in chain.nodes] == [None] * 3
