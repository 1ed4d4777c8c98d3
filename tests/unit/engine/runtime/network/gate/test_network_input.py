"""NetworkInput: one valve per logical input, ends told once."""

import pickle
import threading

import pytest

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.checkpoint.input_checkpoints import InputHooks, replayed
from penstock.engine.runtime.elements import (
    IDLE,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.network.gate.network_input import UnionInputGate, take_barriers
from penstock.engine.runtime.network.gate.single import EndOfDataStatus
from tests.tools.runtime.gates import (
    GateListener,
    ScriptedView,
    as_made,
    context_of,
    drained_gate,
    gate_of,
    input_of,
    local_gate,
    remote_gate,
    row_batches,
    shown,
)


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


def union_of(*gates) -> UnionInputGate:
    return UnionInputGate(list(map(as_made, gates)), threading.Lock(), GateListener())


def listener_of(union: UnionInputGate) -> GateListener:
    return union.ready.listener


def test_channels_are_flattened_in_the_given_order():
    context = context_of()
    union = union_of(gate_of(3, context, 0), gate_of(5, context, 2))
    assert union.channels == 8
    assert [union.offset(0) + 2, union.offset(2), union.offset(2) + 4] == [2, 3, 7]
    with pytest.raises(EngineBug, match="gate 1 is not in this union"):
        union.offset(1)


def test_a_union_takes_two_gates_with_different_indexes():
    context = context_of()
    one = gate_of(1, context, 1)
    for gates in ([one], [], [one, gate_of(1, context, 1)]):
        with pytest.raises(EngineBug, match="two or more gates"):
            union_of(*gates)


def test_gates_take_turns_whatever_their_number_of_channels():
    many = local_gate(row_batches("a1", "a2"), row_batches("b1", "b2"), index=0)
    one = local_gate(row_batches("c1", "c2", "c3"), index=1)
    assert drained_gate(union_of(many, one)) == ["a1", "c1", "b1", "c2", "a2", "c3", "b2"]


def test_the_polled_channel_is_the_flattened_one():
    union = union_of(
        local_gate([], row_batches("a"), index=0), local_gate(row_batches("b"), index=1)
    )
    seen = []
    while union.poll() is not None:
        seen.append(union.last_channel)
    assert seen == [1, 2]


def test_a_gate_that_becomes_available_later_is_read():
    views = [ScriptedView(), ScriptedView()]
    union = union_of(*(local_gate(view, index=index) for index, view in enumerate(views)))
    assert drained_gate(union) == []
    assert not union.is_available
    told = listener_of(union).available
    views[1].add(*row_batches("b1", "b2"))
    views[0].add(*row_batches("a1"))
    assert listener_of(union).available == told + 1
    assert union.is_available
    assert drained_gate(union) == ["b1", "a1", "b2"]


def test_priority_of_a_gate_is_priority_of_the_union():
    context = context_of()
    first, (a,) = remote_gate(1, context, 0)
    second, (b,) = remote_gate(1, context, 1)
    union = union_of(first, second)
    a.send(*row_batches("a1"))
    a.send(*row_batches("a2"))
    b.send(*row_batches("b1"))
    b.send(Watermark(1), has_priority=True)
    assert listener_of(union).priority == 1
    assert drained_gate(union) == [Watermark(1), "a1", "b1", "a2"]


@pytest.mark.parametrize(
    ("drains", "expected"),
    [((True, True), EndOfDataStatus.DRAINED), ((True, False), EndOfDataStatus.STOPPED)],
)
def test_a_union_ends_with_all_its_gates(drains, expected):
    scripts = [[EndOfData(drain=drain), EndOfPartition()] for drain in drains]
    union = union_of(*(local_gate(script, index=i) for i, script in enumerate(scripts)))
    union.poll()
    assert union.end_of_data is EndOfDataStatus.NOT_END_OF_DATA
    union.poll()
    assert union.end_of_data is expected
    assert not union.is_finished
    drained_gate(union)
    assert union.is_finished
    assert union.is_available
    assert union.poll() is None
