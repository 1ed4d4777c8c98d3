"""NetworkInput: one valve per logical input, ends told once."""

import pytest

from penstock.model.checkpoints import CheckpointOptions
from penstock.model.errors import EngineBug
from penstock.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.runtime.elements import (
    IDLE,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.runtime.gate.network_input import NetworkInput, take_barriers
from penstock.runtime.input_processor import StreamMultipleInputProcessor
from tests.unit.runtime.gate.tools import input_of, local_gate, rows, shown
from tests.unit.runtime.tasks import Clock, Logging, Remembering, task_of, values_of


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
        local_gate([ends[0], EndOfPartition()], [*rows(1, 2, 3), ends[1], EndOfPartition()])
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


def test_what_was_recovered_of_one_input_is_in_a_snapshot_that_another_one_brings_about():
    """Read in turns: the barrier of the second input is there before all of the first one was."""
    unaligned = CheckpointBarrier(1, 0, CheckpointOptions(is_unaligned=True))
    first = NetworkInput(0, local_gate([], index=0))
    first.recover(rows(1, 2, 3))
    second = NetworkInput(1, local_gate([unaligned], index=1))
    take_barriers([first, second], alternating, lambda: 0)
    processor = StreamMultipleInputProcessor([first, second])
    out = Remembering()
    task = task_of([Logging()], processor, [out], Clock(), types=[None, None])
    taken = []
    task.on_snapshot = taken.append
    for _ in range(10):
        task.process_input()
    (snapshot,) = taken
    done = values_of(out.written[: out.written.index(unaligned)])
    assert done != [1, 2, 3]
    assert done + values_of(batch for _, batch in snapshot.in_hand) == [1, 2, 3]


def alternating(channels):
    return SingleBarrierHandler(channels, Alignment.ALTERNATING)
