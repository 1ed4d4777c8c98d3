"""The queue of requests. Expectations: docs/spec/checkpoints.md#coordinator."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.checkpoints.requests import (
    CheckpointRequest,
    Refusal,
    RequestQueue,
    Situation,
)
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.messages import CheckpointFailureReason as Reason

SAVEPOINT = CheckpointType.SAVEPOINT
PERIODIC = CheckpointRequest(1, is_periodic=True)
WANTED = CheckpointRequest(2)
requests = st.builds(
    CheckpointRequest,
    st.integers(0, 99),
    st.sampled_from(CheckpointType),
    st.booleans(),
    st.booleans(),
)


def queue_of(*waiting: CheckpointRequest, **limits) -> RequestQueue:
    queue = RequestQueue(**limits)
    for request in waiting:
        queue.add(request)
    return queue


def test_savepoints_come_first_then_forced_ones_then_wishes_then_the_earlier() -> None:
    forced = CheckpointRequest(5, SAVEPOINT, is_forced=True)
    plain = CheckpointRequest(4, SAVEPOINT)
    later = CheckpointRequest(9, is_periodic=True)
    assert list(queue_of(later, PERIODIC, WANTED, plain, forced)) == [
        forced,
        plain,
        WANTED,
        PERIODIC,
        later,
    ]


def test_at_the_limit_only_a_forced_one_is_taken() -> None:
    full = Situation(0, pending=1)
    assert queue_of(WANTED).choose(full) is None
    forced = CheckpointRequest(9, SAVEPOINT, is_forced=True)
    assert queue_of(WANTED, forced).choose(full) is forced


def test_while_one_is_being_triggered_none_is_taken() -> None:
    forced = CheckpointRequest(9, SAVEPOINT, is_forced=True)
    assert queue_of(forced).choose(Situation(0, is_triggering=True)) is None


def test_a_full_queue_drops_the_last_periodic_one_else_refuses_the_new_one() -> None:
    queue = queue_of(WANTED, PERIODIC, max_queued=2)
    assert queue.add(CheckpointRequest(3)) == Refusal(PERIODIC, Reason.TOO_MANY_CHECKPOINT_REQUESTS)
    late = CheckpointRequest(0, SAVEPOINT)
    assert queue.add(late) == Refusal(late, Reason.TOO_MANY_CHECKPOINT_REQUESTS)


def test_the_least_pause_is_for_periodic_ones_only() -> None:
    soon = Situation(1040, last_completion_ms=1000)
    refusal = queue_of(PERIODIC, min_pause_ms=100).choose(soon)
    assert refusal == Refusal(PERIODIC, Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, 60)
    assert queue_of(WANTED, min_pause_ms=100).choose(soon) is WANTED
    assert queue_of(PERIODIC, min_pause_ms=100).choose(Situation(0)) is PERIODIC


@given(st.lists(requests, max_size=30))
def test_nothing_is_lost_and_the_bound_holds(waiting: list[CheckpointRequest]) -> None:
    queue = RequestQueue(max_queued=7)
    refused = [r for r in map(queue.add, waiting) if r is not None]
    assert len(queue) == min(len(waiting), 7)
    assert len(refused) + len(queue) == len(waiting)
    ranks = [request.rank for request in queue]
    assert ranks == sorted(ranks)
