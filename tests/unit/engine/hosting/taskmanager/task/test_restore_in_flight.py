"""Data in flight on its way back into a task: each subtask keeps what is its own
(docs/spec/exchange.md#choosing-a-channel, docs/spec/checkpoints.md#data-in-flight).
"""

import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock.engine.hosting.taskmanager.task.restore import recover_in_flight
from penstock.engine.model.checkpoints import InFlightShare, InlineHandle, TaskRestore
from penstock.engine.model.graph.chain import ChainInput
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.ids import AttemptId, DataSetId, ExecutionVertexId, VertexId
from penstock.engine.runtime.checkpoint.input_checkpoints import recorded
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.network.gate.network_input import NetworkInput
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.records.frozen import plain_dumps
from tests.tools.runtime.gates import gate_of, input_of
from tests.tools.runtime.task_parts import values_of

GROUPS = 128


def same(value):
    return value


def modulo(key, channels):
    return key % channels


HASH = Partitioning(ShipStrategy.HASH, KeySelection(same))
COLUMNS = Partitioning(ShipStrategy.HASH, KeySelection(("key",)))
CUSTOM = Partitioning(ShipStrategy.CUSTOM, KeySelection(same), modulo)
REBALANCE = Partitioning(ShipStrategy.REBALANCE)


def share(edge, batch, producer=0, **more) -> InFlightShare:
    """`edge` None: it was in hand of input 0."""
    data = recorded([batch], plain_dumps) if edge else plain_dumps((0, batch))
    where = DataSetId(edge) if edge else None
    return InFlightShare(where, producer, InlineHandle(data, 0), is_filtered=True, **more)


class Restored:
    """A subtask that reads two edges as one input. `in_hand`, `recovered`: the values of each, in order."""

    def __init__(self, subtask, parallelism, partitionings, *shares) -> None:
        gates = [gate_of(2, index=index) for index in range(len(partitionings))]
        names = ["a", "b"][: len(gates)]
        one: NetworkInput = input_of(*gates)
        deployment = SimpleNamespace(
            attempt_id=AttemptId(ExecutionVertexId(VertexId("v"), subtask), 0),
            parallelism=parallelism,
            max_parallelism=GROUPS,
            gates=[SimpleNamespace(data_set_id=name, input_index=0) for name in names],
            restore=TaskRestore(7, in_flight=shares),
        )
        inputs = [ChainInput(0, None, partitioning) for partitioning in partitionings]
        self.elements: list = []
        task = SimpleNamespace(
            chain=SimpleNamespace(spec=SimpleNamespace(inputs=inputs)),
            restore_in_hand=self.elements.extend,
        )
        recover_in_flight(deployment, lambda handle: handle.data, task, [one])
        self.in_hand = values_of(batch for _, batch in self.elements)
        self.recovered = [(channel, values_of([batch])) for channel, batch in one.recovered]


def owned(subtask, parallelism, values) -> list:
    """Of these, by key group."""
    found = make_partitioner(HASH, parallelism, 0, GROUPS, 0).channels_of(RowBatch(values))
    return [value for value, owner in zip(values, found, strict=True) if owner == subtask]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_records_go_by_key_group_in_order_from_hand_and_edge(parallelism):
    first, second = list(range(40)), list(range(20, 60))
    for subtask in range(parallelism):
        found = Restored(
            subtask, parallelism, [HASH],
            share(None, RowBatch(first), is_owner=False), share("a", RowBatch(second), producer=1),
        )  # fmt: skip
        assert found.in_hand == owned(subtask, parallelism, first)
        assert found.recovered == [(1, owned(subtask, parallelism, second))]


def test_columns_are_split_by_their_key():
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"key": list(range(50))}))
    parts = []
    for subtask in range(3):
        found = Restored(subtask, 3, [COLUMNS], share("a", batch))
        parts += [row["key"] for _, values in found.recovered for row in values]
    assert sorted(parts) == list(range(50))


def test_a_function_of_the_user_decides_again():
    parts = [
        Restored(subtask, 3, [CUSTOM], share("a", RowBatch(list(range(9))))).recovered
        for subtask in range(3)
    ]
    assert parts == [[(0, [0, 3, 6])], [(0, [1, 4, 7])], [(0, [2, 5, 8])]]


@pytest.mark.parametrize("is_owner", [True, False])
def test_what_does_not_go_by_its_content_goes_to_its_owner(is_owner):
    given = [share(None, RowBatch([1, 2]), is_owner=is_owner)]
    given.append(share("a", RowBatch([3, 4]), is_owner=is_owner))
    found = Restored(0, 2, [REBALANCE], *given)
    assert found.in_hand == ([1, 2] if is_owner else [])
    assert found.recovered == ([(0, [3, 4])] if is_owner else [])


def test_of_a_keyed_union_what_was_in_hand_goes_by_key_too():
    values = list(range(30))
    found = Restored(1, 2, [HASH, HASH], share(None, RowBatch(values), is_owner=False))
    assert found.in_hand == owned(1, 2, values)


def test_of_a_mixed_union_what_was_in_hand_goes_to_its_owner():
    values = list(range(30))
    kept = Restored(1, 2, [HASH, REBALANCE], share(None, RowBatch(values), is_owner=True))
    assert kept.in_hand == values
    left = Restored(1, 2, [HASH, REBALANCE], share(None, RowBatch(values), is_owner=False))
    assert left.in_hand == []


def test_each_edge_of_a_union_has_channels_of_its_own_however_many_producers_there_were():
    given = [share("b", RowBatch([n]), producer=n, is_owner=True) for n in range(5)]
    found = Restored(0, 2, [REBALANCE, REBALANCE], *given)
    assert found.recovered == [(2 + n % 2, [n]) for n in range(5)]


def test_selectors_that_are_one_in_the_program_are_one_behind_the_wire():
    one, other = pickle.loads(pickle.dumps([HASH, HASH]))
    values = list(range(30))
    found = Restored(0, 2, [one, other], share(None, RowBatch(values), is_owner=False))
    assert found.in_hand == owned(0, 2, values)
