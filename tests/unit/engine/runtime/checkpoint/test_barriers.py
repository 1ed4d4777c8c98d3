"""Barrier handlers by docs/spec/checkpoints.md#barriers: when a snapshot is taken, what is blocked
meanwhile, what ends a checkpoint early.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.messages import CheckpointFailureReason
from penstock.engine.runtime.checkpoint.barrier_handler import (
    MAX_TRACKED,
    Abort,
    Alignment,
    BarrierTracker,
    Block,
    InitInputSnapshot,
    PersistStart,
    PersistStop,
    Prioritize,
    Resume,
    SingleBarrierHandler,
    Trigger,
)
from penstock.engine.runtime.elements import CheckpointBarrier

SUBSUMED, CANCELLED = (
    CheckpointFailureReason.SUBSUMED,
    CheckpointFailureReason.ON_CANCELLATION_BARRIER,
)


def barrier(checkpoint_id, timeout_ms=None, *, is_unaligned=False):
    options = CheckpointOptions(is_unaligned=is_unaligned, aligned_timeout_ms=timeout_ms)
    return CheckpointBarrier(checkpoint_id, 0, options)


def aligned(channels, **settings):
    return SingleBarrierHandler(channels, Alignment.ALIGNED, **settings)


def started(checkpoint_id):
    return [
        InitInputSnapshot(checkpoint_id),
        PersistStart(checkpoint_id),
        Trigger(checkpoint_id, is_unaligned=True),
    ]


# ---------------------------------------------------------------------- aligned


def test_the_last_barrier_triggers_and_then_everybody_goes_on():
    handler = aligned(2)
    assert handler.on_barrier(barrier(1), 0, 0) == [Block(0)]
    trigger = Trigger(1, is_unaligned=False)
    assert handler.on_barrier(barrier(1), 1, 0) == [Block(1), trigger, Resume((0, 1))]


def test_a_trigger_from_outside_blocks_nothing():
    handler = aligned(1)
    actions = handler.on_barrier(barrier(1), 0, 0, is_blocking=False)
    assert actions == [Trigger(1, is_unaligned=False)]


def test_a_newer_checkpoint_ends_the_one_that_is_pending():
    handler = aligned(2)
    handler.on_barrier(barrier(1), 0, 0)
    assert handler.on_barrier(barrier(2), 1, 0) == [Resume((0,)), Abort(1, SUBSUMED), Block(1)]
    assert handler.on_barrier(barrier(1), 0, 0) == [Resume((0,))]  # late: only goes on


def test_a_marker_ends_the_checkpoint_and_later_barriers_of_it_only_go_on():
    handler = aligned(3)
    handler.on_barrier(barrier(1), 0, 0)
    assert handler.on_cancel(1) == [Resume((0,)), Abort(1, CANCELLED)]
    assert handler.on_cancel(1) == []
    assert handler.on_barrier(barrier(1), 2, 0) == [Resume((2,))]


def test_a_marker_of_a_checkpoint_that_nobody_has_heard_of_is_passed_on():
    assert aligned(2).on_cancel(5) == [Abort(5, CANCELLED)]


def test_a_channel_that_ends_counts_as_aligned_and_not_at_all_for_later_checkpoints():
    handler = aligned(2)
    handler.on_barrier(barrier(1), 0, 0)
    assert handler.on_end_of_partition(1, 0) == [Trigger(1, is_unaligned=False), Resume((0,))]
    trigger = Trigger(2, is_unaligned=False)
    assert handler.on_barrier(barrier(2), 0, 0) == [Block(0), trigger, Resume((0,))]


def test_without_checkpoints_after_finish_an_end_declines_what_is_pending():
    handler = aligned(2, checkpoints_after_finish=False)
    handler.on_barrier(barrier(1), 0, 0)
    ended = Abort(1, CheckpointFailureReason.INPUT_END_OF_STREAM)
    assert handler.on_end_of_partition(1, 0) == [Resume((0,)), ended]


def test_an_unaligned_barrier_is_no_business_of_a_task_that_aligns():
    with pytest.raises(EngineBug, match="only aligns"):
        aligned(2).on_barrier(barrier(1, is_unaligned=True), 0, 0)


@given(st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)))))
def test_every_order_of_barriers_triggers_once_and_resumes_all(given_order):
    channels, order = given_order
    handler = aligned(channels)
    actions = [action for c in order for action in handler.on_barrier(barrier(1), c, 0)]
    assert [a for a in actions if isinstance(a, Trigger)] == [Trigger(1, is_unaligned=False)]
    assert actions[-1] == Resume(tuple(order))
    assert isinstance(actions[-2], Trigger)


# ---------------------------------------------------------------------- unaligned


def test_unaligned_the_first_barrier_triggers_and_the_last_ends_the_persisting():
    handler = SingleBarrierHandler(2, Alignment.UNALIGNED)
    assert handler.on_barrier(barrier(1, is_unaligned=True), 1, 0) == started(1)
    assert handler.on_barrier(barrier(1, is_unaligned=True), 0, 0) == [PersistStop(1)]


def test_unaligned_a_channel_that_ends_is_one_less_to_wait_for():
    handler = SingleBarrierHandler(2, Alignment.UNALIGNED)
    handler.on_barrier(barrier(1, is_unaligned=True), 1, 0)
    assert handler.on_end_of_partition(0, 0) == [PersistStop(1)]


# ---------------------------------------------------------------------- aligned with a time limit


def alternating(channels=2):
    return SingleBarrierHandler(channels, Alignment.ALTERNATING)


def test_in_time_it_is_an_aligned_checkpoint():
    handler = alternating()
    handler.on_announcement(barrier(1, 100), 0, 5)
    assert handler.timer_ms == 100
    handler.on_barrier(barrier(1, 100), 0, 10)
    trigger = Trigger(1, is_unaligned=False)
    assert handler.on_barrier(barrier(1, 100), 1, 100) == [
        Block(1), InitInputSnapshot(1), trigger, Resume((0, 1)),
    ]  # fmt: skip
    assert handler.timer_ms is None


def test_when_the_time_is_over_announced_barriers_overtake_and_the_snapshot_is_taken_at_once():
    handler = alternating()
    handler.on_barrier(barrier(1, 100), 0, 0)
    handler.on_announcement(barrier(1, 100), 1, 9)
    assert handler.on_timer(99) == []
    assert handler.on_timer(100) == [Prioritize(((1, 9),)), *started(1)]
    late = handler.on_barrier(barrier(1, is_unaligned=True), 1, 120)
    assert late == [PersistStop(1), Resume((0,))]


def test_when_no_barrier_is_there_yet_the_first_one_triggers():
    handler = alternating()
    handler.on_announcement(barrier(1, 100), 0, 5)
    assert handler.on_timer(100) == [Prioritize(((0, 5),))]
    assert handler.on_announcement(barrier(1, 100), 1, 7) == [Prioritize(((1, 7),))]
    assert handler.on_barrier(barrier(1, is_unaligned=True), 0, 101) == started(1)


def test_a_barrier_that_comes_too_late_switches_by_itself():
    handler = alternating(3)
    handler.on_barrier(barrier(1, 100), 0, 100)
    assert handler.on_barrier(barrier(1, 100), 1, 101) == [Block(1), *started(1)]


def test_a_marker_ends_a_checkpoint_that_is_only_announced_so_that_its_barriers_block_nothing():
    handler = alternating()
    handler.on_announcement(barrier(1, 100), 0, 5)
    assert handler.on_cancel(1, 1) == [Abort(1, CANCELLED)]
    assert handler.on_barrier(barrier(1, 100), 0, 10) == [Resume((0,))]


def test_after_a_checkpoint_it_begins_aligned_again():
    handler = alternating(1)
    handler.on_barrier(barrier(1, is_unaligned=True), 0, 0)
    trigger = Trigger(2, is_unaligned=False)
    assert handler.on_barrier(barrier(2, 100), 0, 0) == [
        Block(0), InitInputSnapshot(2), trigger, Resume((0,)),
    ]  # fmt: skip


# ---------------------------------------------------------------------- at least once


def test_the_tracker_blocks_nothing_and_a_complete_checkpoint_ends_older_ones():
    tracker = BarrierTracker(2)
    for checkpoint_id in (1, 2):
        assert tracker.on_barrier(barrier(checkpoint_id), 0, 0) == []
    assert tracker.on_barrier(barrier(2), 1, 0) == [Trigger(2, is_unaligned=False)]
    assert tracker.on_barrier(barrier(1), 1, 0) == []


def test_a_channel_that_says_it_twice_counts_once():
    tracker = BarrierTracker(2)
    assert tracker.on_barrier(barrier(1), 0, 0) == tracker.on_barrier(barrier(1), 0, 0) == []


def test_a_marker_aborts_once_with_those_before_it():
    tracker = BarrierTracker(3)
    tracker.on_barrier(barrier(1), 0, 0)
    tracker.on_barrier(barrier(2), 0, 0)
    assert tracker.on_cancel(2, 1) == [Abort(1, CANCELLED), Abort(2, CANCELLED)]
    assert tracker.on_cancel(2, 2) == []


def test_no_more_than_fifty_are_tracked():
    tracker = BarrierTracker(2)
    for checkpoint_id in range(1, MAX_TRACKED + 2):
        tracker.on_barrier(barrier(checkpoint_id), 0, 0)
    assert tracker.on_barrier(barrier(1), 1, 0) == []
    assert tracker.on_barrier(barrier(2), 1, 0) == [Trigger(2, is_unaligned=False)]


def test_the_end_of_a_channel_completes_what_waited_for_it_only():
    tracker = BarrierTracker(2)
    tracker.on_barrier(barrier(1), 0, 0)
    assert tracker.on_end_of_partition(1, 0) == [Trigger(1, is_unaligned=False)]
    assert tracker.on_barrier(barrier(2), 0, 0) == [Trigger(2, is_unaligned=False)]
