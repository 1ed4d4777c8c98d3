"""The packed list of producers: a sequence of descriptors, of a size that nobody notices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.deployment import Producers, ShuffleDescriptor, pack_producers, unpack
from penstock.engine.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
    VertexId,
)

DATA_SET, VERTEX = DataSetId("d" * 32), VertexId("v" * 32)
PLACES = st.one_of(
    st.none(),
    st.integers(0, 400).map(
        lambda n: TaskManagerLocation(ResourceId(f"tm-{n}"), f'host\n"{n % 7}"\té', 1024 + n)
    ),
)
ATTEMPTS = st.one_of(st.integers(0, 3), st.integers(0, 2**40))


def packed(producers: list, first: int = 0) -> Producers:
    return pack_producers(DATA_SET, VERTEX, first, producers)


def described(producers: list, first: int) -> list[ShuffleDescriptor]:
    found = []
    for index, (attempt, place) in enumerate(producers, start=first):
        partition = PartitionId(DATA_SET, index)
        made = ResultPartitionId(partition, AttemptId(ExecutionVertexId(VERTEX, index), attempt))
        known = ShuffleDescriptor(partition, made, place)
        found.append(known if place else ShuffleDescriptor(partition, None, None))
    return found


@given(st.lists(st.tuples(ATTEMPTS, PLACES), max_size=300), st.integers(0, 9))
def test_what_is_packed_comes_out_as_descriptors_in_channel_order(producers, first) -> None:
    gate, expected = packed(producers, first), described(producers, first)
    assert len(gate) == len(expected)
    assert list(gate) == expected
    assert [gate[at] for at in range(len(gate))] == expected
    assert [gate[-at] for at in range(1, len(gate) + 1)] == expected[::-1]


def test_no_channel_beyond_the_last() -> None:
    gate = packed([(0, None)])
    for place in (1, -2):
        with pytest.raises(IndexError, match="of 1"):
            gate[place]


def test_ten_thousand_producers_take_a_byte_each_and_a_table_of_task_managers() -> None:
    places = [TaskManagerLocation(ResourceId(f"tm-{n}"), f"10.0.0.{n}", 40_000) for n in range(100)]
    gate = packed([(0, places[n // 100]) for n in range(10_000)])
    assert len(gate.packed) < 2000
    columns = unpack(gate.packed, gate.count)
    assert (len(columns.attempts), len(columns.resource_ids)) == (10_000, 100)


def test_attempts_that_are_alike_take_nothing() -> None:
    place = TaskManagerLocation(ResourceId("tm-1"), "host", 1)
    few, many = packed([(7, place)]), packed([(7, place)] * 50)
    assert len(many.packed) - len(few.packed) == 49  # one byte for each place
