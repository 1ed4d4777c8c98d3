"""Barriers that may become late, as sequences of elements: announced, overtaking or not, given up
(docs/spec/exchange.md#priority-and-barriers-in-a-queue, docs/spec/checkpoints.md#barriers,
#data-in-flight).
"""

import pytest

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    Watermark,
)
from penstock.engine.runtime.network.gate.network_input import place_of
from tests.tools.runtime.barrier_reading import (
    LIMIT_MS,
    BarrierReader,
    barrier,
    one_input,
    row_batch,
)
from tests.tools.runtime.gates import (
    Host,
    ScriptedView,
    context_of,
    inputs_of,
    local_gate,
    remote_gate,
)

# ---------------------------------------------------------------------- at the consumer


def test_a_barrier_that_becomes_late_in_the_queue_overtakes_what_is_before_it():
    reader, (first, second) = one_input()
    first.send(row_batch(1))
    first.send(row_batch(2))
    first.send(barrier())
    second.send(row_batch(10))
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
    second.send(row_batch(10))
    second.send(row_batch(11))
    second.send(barrier())
    assert reader.turn() == [10]  # behind the barrier of the first, whose channel waits
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {1: [11]}}
    assert reader.rest() == [11]


def test_in_time_everything_keeps_its_turn():
    reader, (first, second) = one_input()
    for sender in (first, second):
        sender.send(row_batch(1))
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
    second.send(row_batch(10))
    second.send(barrier())
    reader.announced()  # of both; the first has its barrier
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {1: [10]}}


def test_what_comes_late_already_overtakes_as_soon_as_it_is_announced():
    reader, (first, _) = one_input()
    reader.now_ms = 5 * LIMIT_MS
    first.send(row_batch(1))
    first.send(barrier())
    assert reader.urgent() == [(1, True)]


def test_watermarks_that_are_overtaken_come_in_their_turn():
    reader, (only,) = one_input(1)
    only.send(row_batch(1))
    only.send(Watermark(7))
    only.send(barrier())
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [1]}}
    assert reader.rest() == [1, Watermark(7)]


def test_a_savepoint_is_never_late():
    reader, (first, _) = one_input()
    first.send(row_batch(1))
    first.send(CheckpointBarrier(1, 0, CheckpointOptions()))
    assert reader.announced() == []
    reader.now_ms = 10**9
    assert reader.urgent() == []


# ---------------------------------------------------------------------- unions, several inputs, inputs that have ended


def test_in_a_union_and_with_two_inputs_the_barriers_of_all_channels_overtake():
    gates, senders = zip(
        *(remote_gate(1, context_of(Host()), index) for index in range(3)), strict=True
    )
    union = inputs_of({0: gates[:2]})
    alone = inputs_of({1: gates[2:]})
    reader = BarrierReader(*union, *alone)
    for number, (sender,) in enumerate(senders):
        sender.send(row_batch(number))
        sender.send(barrier())
    assert reader.announced() == [LIMIT_MS]
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [0], 1: [1], 2: [2]}}
    assert [place_of(reader.inputs, channel) for channel in range(3)] == [(0, 0), (1, 0), (2, 0)]
    assert sorted(reader.rest()) == [0, 1, 2]


def test_a_channel_that_ends_when_it_is_late_ends_the_waiting():
    reader, (first, second) = one_input()
    first.send(row_batch(1))
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
    first.send(row_batch(1))
    first.send(barrier())
    reader.now_ms = LIMIT_MS
    assert reader.urgent() == [(1, True)]
    assert reader.in_flight == {1: {0: [1]}}


def test_a_local_channel_keeps_nothing_that_could_be_overtaken():
    local = local_gate(ScriptedView([row_batch(1), barrier()]), index=0)
    remote, (sender,) = remote_gate(1, context_of(Host()), index=1)
    union = inputs_of({0: [local, remote]})
    reader = BarrierReader(*union)
    sender.send(row_batch(10))
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
    first.send(row_batch(1))
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
    second.send(row_batch(10))
    second.send(barrier(2, timestamp_ms=reader.now_ms))
    reader.announced()
    reader.rest()
    assert reader.out.count(CancelCheckpointMarker(1)) == 1
    assert 1 not in reader.in_flight
    first.send(row_batch(3))
    first.send(barrier(2, timestamp_ms=reader.now_ms))
    reader.urgent()
    reader.rest()
    assert reader.out[-1] == (2, False)
    assert [one for one in reader.out if isinstance(one, int)].count(1) == 1
    assert sorted(one for one in reader.out if isinstance(one, int)) == [1, 3, 10]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_marker_ends_what_was_announced(is_late):
    reader, (first, second) = one_input()
    first.send(row_batch(1))
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
        sender.send(row_batch(5))
        sender.send(barrier(2, timestamp_ms=LIMIT_MS))
    reader.rest()
    assert reader.out[-1] == (2, False)


def test_what_comes_behind_an_abort_is_not_kept():
    reader, (first, second) = one_input()
    first.send(barrier().as_unaligned(), has_priority=True)
    second.send(row_batch(10))
    assert reader.urgent() == [(1, True)]
    assert reader.taken.is_recording(1)
    reader.taken.forget(1)
    second.send(row_batch(11))
    assert reader.rest() == [10, 11]
    second.send(barrier().as_unaligned(), has_priority=True)
    assert reader.urgent() == []
    assert reader.in_flight == {}
    for sender in (first, second):
        sender.send(row_batch(5))
        sender.send(barrier(2).as_unaligned(), has_priority=True)
    assert reader.urgent() == [(2, True)]
    assert reader.in_flight == {2: {0: [5], 1: [5]}}
