"""Barriers that may become late, as sequences of elements: announced, overtaking or not, at both ends of a channel (spec 2.6,
10.2, 10.4).
"""

import pickle
import threading

import pytest

from penstock.model.checkpoints import CheckpointOptions
from penstock.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.runtime.checkpoint.in_flight import replayed
from penstock.runtime.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    RowBatch,
    Watermark,
)
from penstock.runtime.event_codec import decode_event, encode_event
from penstock.runtime.gate.network_input import network_inputs, place_of, take_barriers
from tests.property.unaligned_job import OvertakenRemote
from tests.unit.runtime.gate.tools import (
    THERE,
    Host,
    ScriptedView,
    context_of,
    descriptor,
    gate_of,
    input_of,
    local_gate,
    remote_gate,
    result_id,
)
from tests.unit.runtime.partition.tools import Checkpoints, pipelined
from tests.unit.runtime.tasks import values_of

LIMIT_MS = 100


def barrier(checkpoint_id=1, limit_ms=LIMIT_MS, timestamp_ms=0):
    options = CheckpointOptions(aligned_timeout_ms=limit_ms)
    return CheckpointBarrier(checkpoint_id, timestamp_ms, options)


def rows(*values):
    return RowBatch(list(values))


class Reader:
    """Reads inputs with their barriers, at a time that the test sets. `out`: rows one by one, and barriers as (id, unaligned)."""

    def __init__(self, *inputs) -> None:
        self.inputs = inputs
        self.now_ms = 0
        self.out: list = []
        self.in_flight: dict = {}
        self.timers: list = []
        self.taken = take_barriers(
            inputs,
            lambda channels: SingleBarrierHandler(channels, Alignment.ALTERNATING),
            lambda: self.now_ms,
        )
        self.taken.on_in_flight = self.on_in_flight
        self.taken.on_timer_set = self.timers.append

    def on_in_flight(self, checkpoint_id, channels) -> None:
        self.in_flight[checkpoint_id] = {
            channel: values_of(replayed(data, pickle.loads)) for channel, data in channels.items()
        }

    def announced(self) -> list:
        for one in self.inputs:
            one.read_announcements()
        return self.timers

    def urgent(self) -> list:
        """What comes ahead of its turn. Returns: that."""
        before = len(self.out)
        for one in self.inputs:
            while elements := one.poll_priority():
                self._note(elements)
        return self.out[before:]

    def turn(self, place=0) -> list:
        before = len(self.out)
        self._note(self.inputs[place].poll())
        return self.out[before:]

    def rest(self) -> list:
        before = len(self.out)
        for place in range(len(self.inputs)):
            while self.turn(place):
                pass
        return self.out[before:]

    def _note(self, elements) -> None:
        for element in elements:
            if isinstance(element, CheckpointBarrier):
                self.out.append((element.checkpoint_id, element.is_unaligned))
            elif isinstance(element, RowBatch):
                self.out += element.values
            else:
                self.out.append(element)


def one_input(channels=2):
    gate, senders = remote_gate(channels)
    return Reader(input_of(gate)), senders


# ---------------------------------------------------------------------- at the consumer


def test_a_barrier_that_becomes_late_in_the_queue_overtakes_what_is_before_it():
    reader, (first, second) = one_input()
    first.send(rows(1))
    first.send(rows(2))
    first.send(barrier())
    second.send(rows(10))
    assert reader.announced() == [LIMIT_MS]
    reader.now_ms = LIMIT_MS - 1
    assert reader.urgent() == []
    assert reader.turn() == [1]
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.rest() == [10, 2]
    assert reader.in_flight == {}
    second.send(barrier().as_unaligned(), has_priority=True)
    assert reader.urgent() == []
    assert reader.in_flight == {1: {0: [2], 1: [10]}}


def test_with_one_barrier_there_the_snapshot_is_taken_when_the_time_is_over():
    reader, (first, second) = one_input()
    first.send(barrier())
    second.send(rows(10))
    second.send(rows(11))
    second.send(barrier())
    assert reader.turn() == [10]  # behind the barrier of the first, whose channel waits
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {1: [11]}}
    assert reader.rest() == [11]


def test_in_time_everything_keeps_its_turn():
    reader, (first, second) = one_input()
    for sender in (first, second):
        sender.send(rows(1))
        sender.send(barrier())
    reader.announced()
    assert reader.rest() == [1, 1, (1, False)]
    reader.now_ms = 2 * LIMIT_MS
    assert reader.urgent() == []
    assert reader.in_flight == {}


def test_an_announcement_that_is_read_behind_its_barrier_says_nothing():
    reader, (first, second) = one_input()
    first.send(barrier())
    assert reader.turn() == []
    second.send(rows(10))
    second.send(barrier())
    reader.announced()  # of both; the first has its barrier
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {1: [10]}}


def test_what_comes_late_already_overtakes_as_soon_as_it_is_announced():
    reader, (first, _) = one_input()
    reader.now_ms = 5 * LIMIT_MS
    first.send(rows(1))
    first.send(barrier())
    assert reader.urgent() == [(1, True)]


def test_watermarks_that_are_overtaken_come_in_their_turn():
    reader, (only,) = one_input(1)
    only.send(rows(1))
    only.send(Watermark(7))
    only.send(barrier())
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [1]}}
    assert reader.rest() == [1, Watermark(7)]


def test_a_savepoint_is_never_late():
    reader, (first, _) = one_input()
    first.send(rows(1))
    first.send(CheckpointBarrier(1, 0, CheckpointOptions()))
    assert reader.announced() == []
    reader.now_ms = 10**9
    assert reader.urgent() == []


# ---------------------------------------------------------------------- unions, several inputs, inputs that have ended


def test_in_a_union_and_with_two_inputs_the_barriers_of_all_channels_overtake():
    gates, senders = zip(
        *(remote_gate(1, context_of(Host()), index) for index in range(3)), strict=True
    )
    union = network_inputs({0: gates[:2]}, threading.Lock, lambda: None)
    alone = network_inputs({1: gates[2:]}, threading.Lock, lambda: None)
    reader = Reader(*union, *alone)
    for number, (sender,) in enumerate(senders):
        sender.send(rows(number))
        sender.send(barrier())
    assert reader.announced() == [LIMIT_MS]
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [0], 1: [1], 2: [2]}}
    assert [place_of(reader.inputs, channel) for channel in range(3)] == [(0, 0), (1, 0), (2, 0)]
    assert sorted(reader.rest()) == [0, 1, 2]


def test_a_channel_that_ends_when_it_is_late_ends_the_waiting():
    reader, (first, second) = one_input()
    first.send(rows(1))
    first.send(barrier())
    reader.announced()
    second.send(EndOfPartition())
    reader.now_ms = LIMIT_MS + 1
    assert reader.urgent() == [(1, True)]
    assert reader.turn() == [1]
    assert reader.rest() == []
    assert reader.in_flight == {1: {0: [1]}}


def test_a_channel_that_ended_before_is_not_waited_for():
    reader, (first, second) = one_input()
    second.send(EndOfPartition())
    reader.rest()
    first.send(rows(1))
    first.send(barrier())
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [1]}}


def test_a_local_channel_keeps_nothing_that_could_be_overtaken():
    local = local_gate(ScriptedView([rows(1), barrier()]), index=0)
    remote, (sender,) = remote_gate(1, context_of(Host()), index=1)
    union = network_inputs({0: [local, remote]}, threading.Lock, lambda: None)
    reader = Reader(*union)
    sender.send(rows(10))
    sender.send(barrier())
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.rest() == [1, 10]
    assert reader.in_flight == {1: {0: [1], 1: [10]}}


# ---------------------------------------------------------------------- given up


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("moment", range(4))
def test_a_newer_checkpoint_ends_it_at_any_moment(moment, is_late):
    """Whatever was read until then: the marker comes once, then the newer one is taken as it would be alone."""
    reader, (first, second) = one_input()
    first.send(rows(1))
    first.send(barrier())
    if moment >= 1:
        reader.announced()
    if moment >= 2:
        reader.turn()
    if moment == 3:
        reader.rest()
    if is_late:
        reader.now_ms = LIMIT_MS
        reader.urgent()
    second.send(rows(10))
    second.send(barrier(2, timestamp_ms=reader.now_ms))
    reader.announced()
    reader.rest()
    assert reader.out.count(CancelCheckpointMarker(1)) == 1
    assert 1 not in reader.in_flight
    first.send(rows(3))
    first.send(barrier(2, timestamp_ms=reader.now_ms))
    reader.urgent()
    reader.rest()
    assert reader.out[-1] == (2, False)
    assert [one for one in reader.out if isinstance(one, int)].count(1) == 1
    assert sorted(one for one in reader.out if isinstance(one, int)) == [1, 3, 10]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_marker_ends_what_was_announced(is_late):
    reader, (first, second) = one_input()
    first.send(rows(1))
    first.send(barrier())
    reader.announced()
    reader.now_ms = LIMIT_MS if is_late else 0
    taken = reader.urgent()
    assert taken == ([(1, True)] if is_late else [])
    second.send(CancelCheckpointMarker(1))
    reader.rest()
    assert reader.out.count(CancelCheckpointMarker(1)) == 1
    assert reader.in_flight == {}
    for sender in (first, second):
        sender.send(rows(5))
        sender.send(barrier(2, timestamp_ms=LIMIT_MS))
    reader.rest()
    assert reader.out[-1] == (2, False)


def test_what_comes_behind_an_abort_is_not_kept():
    reader, (first, second) = one_input()
    first.send(barrier().as_unaligned(), has_priority=True)
    second.send(rows(10))
    assert reader.urgent() == [(1, True)]
    assert reader.taken.is_recording(1)
    reader.taken.forget(1)
    second.send(rows(11))
    assert reader.rest() == [10, 11]
    second.send(barrier().as_unaligned(), has_priority=True)
    assert reader.urgent() == []
    assert reader.in_flight == {}
    for sender in (first, second):
        sender.send(rows(5))
        sender.send(barrier(2).as_unaligned(), has_priority=True)
    assert reader.urgent() == [(2, True)]
    assert reader.in_flight == {2: {0: [5], 1: [5]}}


# ---------------------------------------------------------------------- at both ends


def test_a_barrier_that_becomes_late_on_the_way_overtakes_at_both_ends():
    partition = pipelined()
    (sending,) = partition.subpartitions
    sending.output_state = kept = Checkpoints()
    gate = gate_of(1, context_of(Host(), buffers_per_channel=2, floating_per_gate=1))
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    for value in range(5):
        sending.add_frame(rows(value), is_finished=True)
    sending.add(barrier())
    remote = OvertakenRemote(partition, 0, gate, 0)
    reader = Reader(input_of(gate))
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
    partition = pipelined()
    (sending,) = partition.subpartitions
    sending.output_state = kept = Checkpoints()
    gate = gate_of(1, context_of(Host()))
    gate.update_channel(0, descriptor(0, THERE), 0)
    gate.request_partitions()
    for value in range(3):
        sending.add_frame(rows(value), is_finished=True)
    sending.add(barrier())
    remote = OvertakenRemote(partition, 0, gate, 0)
    sending.add_frame(rows(9), is_finished=True)
    reader = Reader(input_of(gate))
    sending.time_out_barrier(1)
    assert kept.completed == [(1, 0, [])]
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [0, 1, 2]}}
    assert reader.rest() == [0, 1, 2, 9]  # it goes on behind the barrier
    assert not remote.frames


def test_a_local_reader_takes_it_ahead_of_what_its_producer_holds():
    partition = pipelined()
    (sending,) = partition.subpartitions
    sending.output_state = kept = Checkpoints()
    host = Host()
    host.views[result_id(0)] = partition
    gate = gate_of(1, context_of(host))
    gate.update_channel(0, descriptor(0), 0)
    gate.request_partitions()
    reader = Reader(input_of(gate))
    sending.add_frame(rows(1), is_finished=True)
    sending.add_frame(rows(2), is_finished=True)
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
    partition = pipelined()
    partition.may_be_overtaken = False
    (sending,) = partition.subpartitions
    sending.output_state = kept = Checkpoints()
    gate = gate_of(2, context_of(Host()))
    for place in range(2):
        gate.update_channel(place, descriptor(place, THERE), 0)
    gate.request_partitions()
    sending.add_frame(rows(1), is_finished=True)
    partition.broadcast_event(CheckpointBarrier(1, 0, options))
    sending.add_frame(rows(2), is_finished=True)
    OvertakenRemote(partition, 0, gate, 0)
    other = pipelined(index=1)
    other.may_be_overtaken = False
    remote = OvertakenRemote(other, 0, gate, 1)
    reader = Reader(input_of(gate))
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
    assert plain.as_forced_aligned() == plain == plain.behind_forced_aligned()


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
    assert forced.behind_forced_aligned() == CheckpointBarrier(1, 5, options)


# ---------------------------------------------------------------------- ahead of what was recovered


def recovering():
    """One channel, with something recovered before it."""
    gate, (sender,) = remote_gate(1)
    reader = Reader(input_of(gate))
    reader.inputs[0].recover(0, 0, [rows(1), rows(2)])
    return reader, sender


def test_a_barrier_overtakes_what_was_recovered_and_it_is_in_flight_again():
    reader, sender = recovering()
    sender.send(rows(3))
    assert reader.turn() == [1]
    sender.send(barrier().as_unaligned(), has_priority=True)
    sender.send(rows(4))
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [2, 3]}}
    assert reader.rest() == [2, 3, 4]


def test_an_aligned_barrier_waits_for_what_was_recovered_until_it_is_late():
    reader, sender = recovering()
    sender.send(rows(3))
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
    reader = Reader(*network_inputs({0: gates}, threading.Lock, lambda: None))
    (first,), (second,) = senders
    reader.inputs[0].recover(1, 0, [rows(1)])
    if is_recording:
        first.send(barrier().as_unaligned(), has_priority=True)
        assert reader.urgent() == [(1, True)]
    second.send(rows(2))
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
