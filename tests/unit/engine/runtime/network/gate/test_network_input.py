"""NetworkInput: one valve per logical input, ends told once."""

import pickle

import pytest

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.checkpoint.in_flight import replayed
from penstock.engine.runtime.checkpoint.input_checkpoints import InputHooks
from penstock.engine.runtime.elements import (
    IDLE,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.network.gate.network_input import take_barriers
from tests.tools.runtime.gates import input_of, local_gate, row_batches, shown


def polled(task_input) -> list:
    found = []
    while elements := task_input.poll():
        found += map(shown, elements)
    return found


def test_watermarks_are_combined_over_all_channels():
    one = input_of(local_gate([Watermark(10)], [Watermark(4), Watermark(20)]))
    assert polled(one) == [Watermark(4), Watermark(10)]


def test_gates_of_a_union_share_one_valve():
    one = input_of(
        local_gate([Watermark(10)], index=0), local_gate([Watermark(4), Watermark(20)], index=1)
    )
    assert polled(one) == [Watermark(4), Watermark(10)]


def test_an_element_of_which_several_come_gives_them_in_order():
    one = input_of(local_gate([Watermark(5), IDLE], [IDLE]))
    assert polled(one) == [Watermark(5), IDLE]


@pytest.mark.parametrize("drains", [(True, True), (True, False)])
def test_the_end_of_data_comes_once_after_the_last_channel(drains):
    ends = [EndOfData(drain=drain) for drain in drains]
    one = input_of(
        local_gate([ends[0], EndOfPartition()], [*row_batches(1, 2, 3), ends[1], EndOfPartition()])
    )
    assert polled(one) == [1, 2, 3, EndOfData(drain=all(drains))]
    assert one.is_finished
    assert one.is_available


def test_records_are_counted_and_markers_pass():
    marker = LatencyMarker(1, "s", 0)
    one = input_of(local_gate([RowBatch([1, 2, 3]), marker]))
    assert polled(one) == [1, marker]
    assert one.records_in == 3
    assert not one.is_finished


def test_what_cannot_come_is_a_bug():
    with pytest.raises(EngineBug, match="nonsense"):
        input_of(local_gate(["nonsense"])).poll()


def test_what_was_restored_is_in_flight_still_when_another_input_has_its_barrier():
    barrier = CheckpointBarrier(7, 0, CheckpointOptions(is_unaligned=True))
    first, second = input_of(local_gate([barrier])), input_of(local_gate([barrier]))
    kept = []
    take_barriers(
        [first, second],
        lambda channels: SingleBarrierHandler(channels, Alignment.UNALIGNED),
        int,
        hooks=InputHooks(on_in_flight=lambda *told: kept.append(told)),
    )
    first.recover(0, 0, [RowBatch([1, 2]), RowBatch([3]), RowBatch([4])])
    assert polled_once(first) == [1, 2]
    assert polled_once(second) == [barrier]  # the snapshot is taken here
    assert polled_once(first) == [3]
    assert polled_once(first) == [4]
    assert polled_once(first) == []
    ((checkpoint_id, channels),) = kept
    assert checkpoint_id == 7
    assert list(channels) == [0]
    found = replayed(channels[0], pickle.loads)
    assert [batch.values for batch in found] == [[3], [4]]


def polled_once(one) -> list:
    return [
        value
        for element in one.poll()
        for value in (element.values if isinstance(element, RowBatch) else [element])
    ]
