"""Barriers at both ends of a channel, on edges where they keep their turn, and behind what was
recovered (docs/spec/exchange.md#priority-and-barriers-in-a-queue,
docs/spec/checkpoints.md#data-in-flight).
"""

import pytest

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.codecs.events import decode_event, encode_event
from penstock.engine.runtime.elements import CheckpointBarrier, EndOfPartition, Watermark
from tests.tools.programs.unaligned_job import OvertakenRemote
from tests.tools.runtime.barrier_reading import LIMIT_MS, BarrierReader, barrier, row_batch
from tests.tools.runtime.gates import (
    THERE,
    Host,
    context_of,
    descriptor,
    gate_of,
    input_of,
    remote_gate,
    result_id,
)
from tests.tools.runtime.partitions import Checkpoints, pipelined

# ---------------------------------------------------------------------- at both ends


def test_a_barrier_that_becomes_late_on_the_way_overtakes_at_both_ends():
    kept = Checkpoints()
    partition = pipelined(output_state=kept)
    (sending,) = partition.subpartitions
    gate = gate_of(1, context_of(Host(), buffers_per_channel=2, floating_per_gate=1))
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    for value in range(5):
        sending.add_frame(row_batch(value), is_finished=True)
    sending.add(barrier())
    remote = OvertakenRemote(partition, 0, gate, 0)
    reader = BarrierReader(input_of(gate))
    queued = gate.queued_buffers
    assert 0 < queued < 5
    assert reader.announced() == []  # it has not come to the consumer
    sending.time_out_barrier(1)
    assert reader.urgent() == [(1, True)]
    assert kept.completed == [(1, 0, list(range(queued, 5)))]
    assert reader.in_flight == {1: {0: list(range(queued))}}
    assert reader.rest() == list(range(5))
    assert not remote.frames


def test_one_that_has_left_its_producer_is_late_at_its_consumer_only():
    kept = Checkpoints()
    partition = pipelined(output_state=kept)
    (sending,) = partition.subpartitions
    gate = gate_of(1, context_of(Host()))
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    for value in range(3):
        sending.add_frame(row_batch(value), is_finished=True)
    sending.add(barrier())
    remote = OvertakenRemote(partition, 0, gate, 0)
    sending.add_frame(row_batch(9), is_finished=True)
    reader = BarrierReader(input_of(gate))
    sending.time_out_barrier(1)
    assert kept.completed == [(1, 0, [])]
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [0, 1, 2]}}
    assert reader.rest() == [0, 1, 2, 9]  # it goes on behind the barrier
    assert not remote.frames


def test_a_local_reader_takes_it_ahead_of_what_its_producer_holds():
    kept = Checkpoints()
    partition = pipelined(output_state=kept)
    (sending,) = partition.subpartitions
    host = Host()
    host.views[result_id(0)] = partition
    gate = gate_of(1, context_of(host))
    gate.update_channel(0, descriptor(0), 0)
    gate.request_partitions()
    reader = BarrierReader(input_of(gate))
    sending.add_frame(row_batch(1), is_finished=True)
    sending.add_frame(row_batch(2), is_finished=True)
    sending.add(barrier())
    assert reader.turn() == [1]
    sending.time_out_barrier(1)
    assert reader.urgent() == [(1, True)]
    assert kept.completed == [(1, 0, [2])]
    assert reader.in_flight == {1: {}}
    assert reader.rest() == [2]


# ---------------------------------------------------------------------- edges on which nothing is overtaken


@pytest.mark.parametrize(
    ("options", "goes_on"),
    [
        (CheckpointOptions(is_unaligned=True), (1, True)),
        (CheckpointOptions(aligned_timeout_ms=LIMIT_MS), (1, False)),
    ],
)
def test_on_an_edge_that_keeps_its_turns_a_barrier_aligns_and_goes_on_as_it_was(options, goes_on):
    kept = Checkpoints()
    partition = pipelined(output_state=kept, may_be_overtaken=False)
    (sending,) = partition.subpartitions
    gate = gate_of(2, context_of(Host()))
    for place in range(2):
        gate.update_channel(place, descriptor(place, THERE), 0)
    gate.request_partitions()
    sending.add_frame(row_batch(1), is_finished=True)
    partition.broadcast_event(CheckpointBarrier(1, 0, options))
    sending.add_frame(row_batch(2), is_finished=True)
    OvertakenRemote(partition, 0, gate, 0)
    other = pipelined(index=1, may_be_overtaken=False)
    remote = OvertakenRemote(other, 0, gate, 1)
    reader = BarrierReader(input_of(gate))
    sending.time_out_barrier(1)
    reader.now_ms = 10 * LIMIT_MS
    assert reader.announced() == []
    assert reader.urgent() == []
    assert reader.rest() == [1]
    other.broadcast_event(CheckpointBarrier(1, 0, options))
    assert reader.rest() == [goes_on, 2]
    assert kept.completed == []
    assert reader.in_flight == {}
    assert not remote.frames


def test_a_savepoint_on_such_an_edge_is_what_it_is_anywhere():
    plain = CheckpointBarrier(1, 0, CheckpointOptions())
    assert plain.as_forced_aligned() == plain == plain.after_forced_aligned()


@pytest.mark.parametrize("limit_ms", [None, 7])
def test_a_forced_barrier_comes_over_the_wire_as_it_was(limit_ms):
    options = CheckpointOptions(is_unaligned=limit_ms is None, aligned_timeout_ms=limit_ms)
    forced = CheckpointBarrier(1, 5, options).as_forced_aligned()
    assert (forced.has_priority, forced.is_timeoutable, forced.blocks_upstream) == (
        False,
        False,
        True,
    )
    kind, parts = encode_event(forced)
    assert decode_event(kind, b"".join(map(bytes, parts))) == forced
    assert forced.after_forced_aligned() == CheckpointBarrier(1, 5, options)


# ---------------------------------------------------------------------- ahead of what was recovered


def recovering():
    """One channel, with something recovered before it."""
    gate, (sender,) = remote_gate(1)
    reader = BarrierReader(input_of(gate))
    reader.inputs[0].recover(0, 0, [row_batch(1), row_batch(2)])
    return reader, sender


def test_a_barrier_overtakes_what_was_recovered_and_it_is_in_flight_again():
    reader, sender = recovering()
    sender.send(row_batch(3))
    assert reader.turn() == [1]
    sender.send(barrier().as_unaligned(), has_priority=True)
    sender.send(row_batch(4))
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [2, 3]}}
    assert reader.rest() == [2, 3, 4]


def test_an_aligned_barrier_waits_for_what_was_recovered_until_it_is_late():
    reader, sender = recovering()
    sender.send(row_batch(3))
    sender.send(barrier())
    assert reader.urgent() == []
    assert reader.turn() == [1]
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [2, 3]}}
    assert reader.rest() == [2, 3]


@pytest.mark.parametrize("is_recording", [False, True])
def test_what_comes_where_something_was_told_to_overtake_waits_its_turn(is_recording):
    """Another thread may tell of what has been read already: what is found in its place goes behind what was recovered."""
    gates, senders = zip(
        *(remote_gate(1, context_of(Host()), index) for index in range(2)), strict=True
    )
    reader = BarrierReader(input_of(*gates))
    (first,), (second,) = senders
    reader.inputs[0].recover(1, 0, [row_batch(1)])
    if is_recording:
        first.send(barrier().as_unaligned(), has_priority=True)
        assert reader.urgent() == [(1, True)]
    second.send(row_batch(2))
    second.channel.notify_priority(7)
    assert reader.urgent() == []
    second.send(Watermark(5))
    second.channel.notify_priority(8)
    assert reader.urgent() == []
    second.send(EndOfPartition())
    second.channel.notify_priority(9)
    assert reader.urgent() == []
    assert not reader.inputs[0].is_finished
    if not is_recording:
        first.send(barrier().as_unaligned(), has_priority=True)
        assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {}  # the end of the second has not been read
    assert [one for one in reader.rest() if isinstance(one, int)] == [1, 2]
    assert reader.in_flight == {1: {1: [1, 2]}}
