"""Which failures of checkpoints count, and when the job fails for them. Expectations:
docs/spec/checkpoints.md#coordinator.
"""

import pytest

from penstock.engine.machines.checkpoints.failure_counter import FailureCounter
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.messages import CheckpointFailureReason as Reason

CHECKPOINT = CheckpointType.CHECKPOINT
COUNTED = {
    Reason.IO_EXCEPTION,
    Reason.ASYNC_EXCEPTION,
    Reason.CHECKPOINT_DECLINED,
    Reason.CHECKPOINT_EXPIRED,
    Reason.FINALIZE_FAILURE,
}


@pytest.mark.parametrize("reason", Reason)
def test_only_failures_of_the_checkpoint_itself_count(reason: Reason) -> None:
    assert FailureCounter().on_failure(1, CHECKPOINT, reason) is (reason in COUNTED)


def test_more_than_the_tolerable_in_a_row_fail_the_job_and_an_id_counts_once() -> None:
    counter = FailureCounter(tolerable=1)
    assert not counter.on_failure(1, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    assert not counter.on_failure(1, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    counter.reset()
    assert not counter.on_failure(2, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    assert counter.on_failure(3, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    assert "2 checkpoints failed" in counter.failure_of_job(3, Reason.CHECKPOINT_EXPIRED, "").text


@pytest.mark.parametrize("kind", [CheckpointType.STOP_DRAIN, CheckpointType.STOP_SUSPEND])
def test_a_savepoint_to_stop_with_is_not_tolerated(kind: CheckpointType) -> None:
    assert FailureCounter(tolerable=9).on_failure(1, kind, Reason.TASK_NOT_READY)


@pytest.mark.parametrize("reason", sorted(COUNTED))
def test_a_savepoint_that_fails_does_not_count_whoever_could_not_write_it(reason: Reason) -> None:
    counter = FailureCounter()
    assert not counter.on_failure(1, CheckpointType.SAVEPOINT, reason)
    assert counter.continuous == 0
