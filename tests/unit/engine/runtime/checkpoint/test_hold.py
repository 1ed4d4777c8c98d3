"""A task that stops behind a snapshot."""

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.subtask import Hold
from penstock.engine.runtime.elements import CheckpointBarrier


def barrier(number, *, is_held=True):
    return CheckpointBarrier(number, 0, CheckpointOptions(is_held=is_held))


def state(hold):
    return hold.is_held, hold.is_replaced


def test_an_ordinary_checkpoint_holds_nobody():
    hold = Hold()
    hold.on_taken(barrier(1, is_held=False))
    hold.on_complete(1)
    assert state(hold) == (False, False)


def test_a_complete_one_ends_the_task():
    hold = Hold()
    hold.on_taken(barrier(3))
    assert state(hold) == (True, False)
    hold.on_complete(2)
    assert state(hold) == (True, False), "an older one was told late"
    hold.on_complete(3)
    assert state(hold) == (False, True)


def test_after_an_abort_the_task_goes_on():
    hold = Hold()
    hold.on_taken(barrier(3))
    hold.on_abort(2)
    assert state(hold) == (True, False)
    hold.on_abort(3)
    assert state(hold) == (False, False)
    hold.on_complete(3)
    assert state(hold) == (False, False)


def test_an_abort_that_is_told_before_the_snapshot_counts():
    """The task waited for room in its outputs in front of the barrier."""
    hold = Hold()
    hold.on_abort(3)
    hold.on_taken(barrier(3))
    assert state(hold) == (False, False)
    hold.on_taken(barrier(4))
    assert state(hold) == (True, False)
