"""Retention of completed checkpoints. Expectations: docs/spec/checkpoints.md#coordinator,
#savepoints-and-stopping.
"""

import pytest

from penstock.engine.machines.checkpoints.coordinator_state import CompletedCheckpointStore
from penstock.engine.model.checkpoints import CheckpointType, CompletedCheckpoint
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.checkpoints import Retention
from penstock.engine.model.states import JobStatus


def checkpoint(number: int, kind: CheckpointType = CheckpointType.CHECKPOINT):
    return CompletedCheckpoint(number, JobId("job"), kind, 0, ())


ONE, TWO, THREE = map(checkpoint, (1, 2, 3))
STOPPED = checkpoint(2, CheckpointType.STOP_DRAIN)


def test_as_many_as_are_retained_stay() -> None:
    store = CompletedCheckpointStore(num_retained=2)
    assert [store.add(one) for one in (ONE, TWO, THREE)] == [[], [], [ONE]]
    assert store.latest is THREE
    assert store.latest_id == 3


def test_ids_rise() -> None:
    store = CompletedCheckpointStore(found=(TWO,))
    with pytest.raises(BrokenInvariant, match="1 was completed after 2"):
        store.add(ONE)


def test_a_savepoint_is_let_go_but_never_discarded() -> None:
    store = CompletedCheckpointStore(found=(checkpoint(1, CheckpointType.SAVEPOINT),))
    assert store.add(TWO) == []
    assert len(store) == 1
    assert store.shut_down(JobStatus.FINISHED) == [TWO]


def test_what_later_ones_may_be_made_on_top_of_stays() -> None:
    store = CompletedCheckpointStore(found=(ONE,))
    assert store.add(STOPPED) == []
    assert store.add(THREE) == [ONE]


@pytest.mark.parametrize(
    ("retention", "status", "is_kept"),
    [
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FINISHED, False),
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.CANCELED, False),
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FAILED, False),
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.SUSPENDED, True),
        (Retention.DELETE_ON_CANCELLATION, JobStatus.FINISHED, False),
        (Retention.DELETE_ON_CANCELLATION, JobStatus.CANCELED, False),
        (Retention.DELETE_ON_CANCELLATION, JobStatus.FAILED, True),
        (Retention.RETAIN_ON_CANCELLATION, JobStatus.FINISHED, False),
        (Retention.RETAIN_ON_CANCELLATION, JobStatus.CANCELED, True),
        (Retention.RETAIN_ON_CANCELLATION, JobStatus.FAILED, True),
        (Retention.RETAIN_ON_CANCELLATION, JobStatus.SUSPENDED, True),
    ],
)
def test_the_end_of_the_job_and_the_retention_decide(retention, status, is_kept) -> None:
    store = CompletedCheckpointStore(retention=retention, found=(ONE,))
    assert store.shut_down(status) == ([] if is_kept else [ONE])
    assert CompletedCheckpointStore(found=(STOPPED,)).shut_down(status) == []
