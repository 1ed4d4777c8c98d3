"""A task's part in checkpoints: what comes between two triggers."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.subtask import (
    MAX_REMEMBERED,
    Aborted,
    CheckpointNotifications,
    Completed,
    FinalCheckpoint,
    SubtaskCheckpoints,
)
from penstock.engine.runtime.elements import CheckpointBarrier


def barrier(number):
    return CheckpointBarrier(number, 0, CheckpointOptions())


def test_splits_that_come_between_two_triggers_are_in_the_second_snapshot_only():
    """The state of the enumerator that was taken for the second one has them no more."""
    done = []
    checkpoints = SubtaskCheckpoints()
    checkpoints.run_after(lambda: done.append("at once"))
    checkpoints.trigger(barrier(1))
    checkpoints.run_after(lambda: done.append("between"))
    checkpoints.trigger(barrier(2))
    checkpoints.run_after(lambda: done.append("behind both"))
    assert done == ["at once"]
    assert checkpoints.next_trigger(has_read_all=True).checkpoint_id == 1
    checkpoints.run_after(lambda: done.append("while the first is taken"))
    assert done == ["at once"]
    checkpoints.on_taken()
    assert done == ["at once", "between"]
    assert checkpoints.next_trigger(has_read_all=True).checkpoint_id == 2
    checkpoints.on_taken()
    assert done == ["at once", "between", "behind both", "while the first is taken"]


def test_a_completion_is_delivered_once_and_never_after_a_newer_one() -> None:
    task = CheckpointNotifications(7)
    assert [task.on_complete(i) for i in (5, 7, 8, 8, 6)] == [[], [], [Completed(8)], [], []]


def test_an_abort_completes_the_latest_first() -> None:
    task = CheckpointNotifications()
    assert task.on_abort(9, 8) == [Completed(8), Aborted(9)]
    assert task.on_abort(10, 8) == [Aborted(10)]
    assert task.on_abort(11) == [Aborted(11)]


def test_what_was_aborted_before_it_came_is_not_taken() -> None:
    task = CheckpointNotifications()
    task.on_abort(3)
    assert [task.on_trigger(i) for i in (2, 3, 4)] == [True, False, True]
    task.on_abort(4)
    assert task.on_trigger(5)


def test_aborts_are_remembered_up_to_a_bound_and_the_forgotten_are_not_taken() -> None:
    task = CheckpointNotifications()
    for checkpoint_id in range(1, MAX_REMEMBERED + 3):
        task.on_abort(checkpoint_id)
    assert not task.on_trigger(1)
    assert not task.on_trigger(MAX_REMEMBERED)
    assert task.on_trigger(MAX_REMEMBERED + 3)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(-1, 20))))
def test_completions_rise_whatever_comes(heard) -> None:
    task = CheckpointNotifications()
    told = []
    for is_abort, one, other in heard:
        told += task.on_abort(one, other) if is_abort else task.on_complete(one)
    ids = [n.checkpoint_id for n in told if isinstance(n, Completed)]
    assert ids == sorted(set(ids))


def test_a_task_at_its_end_waits_for_a_checkpoint_that_began_after_it() -> None:
    task = FinalCheckpoint(is_needed=True)
    task.on_trigger(4)
    task.on_end_of_data()
    task.on_trigger(5)
    task.on_trigger(6)
    task.on_complete(4)
    assert not task.may_finish
    task.on_complete(5)
    assert task.may_finish


def test_without_checkpoints_a_task_need_not_wait() -> None:
    task = FinalCheckpoint(is_needed=False)
    assert not task.may_finish
    task.on_end_of_data()
    assert task.may_finish
