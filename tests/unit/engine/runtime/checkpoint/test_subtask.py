"""A task's part in checkpoints: what comes between two triggers."""

from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.checkpoint.subtask import SubtaskCheckpoints
from penstock.engine.runtime.elements import CheckpointBarrier


def barrier(number):
    return CheckpointBarrier(number, 0, CheckpointOptions())


def test_splits_that_come_between_two_triggers_are_in_the_second_snapshot_only():
    """The state of the enumerator that was taken for the second one has them no more."""
    done = []
    checkpoints = SubtaskCheckpoints()
    checkpoints.behind(lambda: done.append("at once"))
    checkpoints.trigger(barrier(1))
    checkpoints.behind(lambda: done.append("between"))
    checkpoints.trigger(barrier(2))
    checkpoints.behind(lambda: done.append("behind both"))
    assert done == ["at once"]
    assert checkpoints.next_trigger(has_read_all=True).checkpoint_id == 1
    checkpoints.behind(lambda: done.append("while the first is taken"))
    assert done == ["at once"]
    checkpoints.on_taken()
    assert done == ["at once", "between"]
    assert checkpoints.next_trigger(has_read_all=True).checkpoint_id == 2
    checkpoints.on_taken()
    assert done == ["at once", "between", "behind both", "while the first is taken"]
