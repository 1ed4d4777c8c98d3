"""What a driver measures of all its jobs together."""

import pytest

from penstock.engine.model.checkpoints import CheckpointMetrics, CheckpointType, RestoredCheckpoint
from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from penstock.ops.jobs.snapshots import CheckpointSnapshot, CheckpointsSnapshot, SubtaskCheckpoint
from penstock.ops.metrics.entities import JobManagerScope
from penstock.ops.registry.driver_metrics import DriverMetrics, checkpoint_metrics
from tests.tools.observation.job_records import JOB, SOURCE, ToldJob, facts

OTHER = JobId("b" * 32)
SPAN_S = 60


@pytest.fixture
def metrics():
    found = DriverMetrics()
    found.began(facts())
    return found


def value(metrics, name, status="RUNNING"):
    job = ToldJob().status(status).now_it_is()
    metrics.measure([job], job.now_ms)
    return metrics.store.value(JobManagerScope(), name)


def test_taskmanagers_that_are_waited_for_are_counted_while_the_job_runs(metrics):
    assert value(metrics, "numPendingTaskManagers") == 0
    metrics.put_starts(JOB, 3, 0)
    assert value(metrics, "numPendingTaskManagers") == 3
    assert value(metrics, "numPendingTaskManagers", str(JobStatus.FINISHED)) == 0


def test_failed_starts_of_all_jobs_have_a_rate_also_of_those_that_are_forgotten(metrics):
    metrics.put_starts(JOB, 0, 40)
    metrics.put_starts(OTHER, 0, 20)
    metrics.keep_time(1000.0)
    metrics.forget(OTHER)
    metrics.keep_time(1005.0)
    rate = value(metrics, "startWorkFailurePerSecond")
    assert (rate.count, rate.per_s) == (60, 60 / SPAN_S)


def test_a_rate_does_not_depend_on_how_often_somebody_asks(metrics):
    """40 failures, then a whole span without one; nobody asks meanwhile, and 20 times before."""
    metrics.put_starts(JOB, 0, 40)
    metrics.keep_time(1000.0)
    for _ in range(20):
        assert value(metrics, "startWorkFailurePerSecond").per_s == 40 / SPAN_S
    for tick in range(2 * SPAN_S):
        metrics.keep_time(1000.0 + tick / 2)
    assert value(metrics, "startWorkFailurePerSecond").per_s == 40 / SPAN_S
    metrics.keep_time(1000.0 + SPAN_S)
    assert value(metrics, "startWorkFailurePerSecond").per_s == 0


def of_checkpoints(known):
    return {one.name: one.value for one in checkpoint_metrics(known)}


def test_before_the_first_checkpoint_there_is_minus_1():
    assert of_checkpoints(ToldJob().now_it_is().checkpoints) == {
        "totalNumberOfCheckpoints": 0, "numberOfInProgressCheckpoints": 0,
        "numberOfCompletedCheckpoints": 0, "numberOfFailedCheckpoints": 0,
        "lastCompletedCheckpointId": -1, "lastCheckpointDuration": -1, "lastCheckpointSize": -1,
        "lastCheckpointFullSize": -1, "lastCheckpointCompletedTimestamp": -1,
        "lastCheckpointRestoreTimestamp": -1, "lastCheckpointExternalPath": "n/a",
        "lastCheckpointMetadataSize": -1, "lastCheckpointProcessedData": -1,
        "lastCheckpointPersistedData": -1,
    }  # fmt: skip


def test_savepoints_count_as_the_last_checkpoint():
    def one(number, kind):
        metrics = CheckpointMetrics(written_bytes=80, processed_bytes=8, bytes_in_flight=9)
        acks = {SOURCE: (SubtaskCheckpoint(0, 1050, 200, metrics),)}
        return CheckpointSnapshot(
            number, kind, False, 1000, {SOURCE: 1}, acks, 1050, f"/{number}", metadata_bytes=7
        )

    known = CheckpointsSnapshot(
        in_progress=1, completed=2, failed=3,
        latest_completed=one(4, CheckpointType.CHECKPOINT),
        latest_savepoint=one(5, CheckpointType.SAVEPOINT),
        latest_restored=RestoredCheckpoint(3, 900),
    )  # fmt: skip
    found = of_checkpoints(known)
    assert found["totalNumberOfCheckpoints"] == 6
    names = ("MetadataSize", "ProcessedData", "PersistedData")
    assert [found[f"lastCheckpoint{name}"] for name in names] == [7, 8, 9]
    assert found["lastCompletedCheckpointId"] == 5
    assert (found["lastCheckpointSize"], found["lastCheckpointFullSize"]) == (80, 200)
    assert found["lastCheckpointCompletedTimestamp"] == 1050
    assert found["lastCheckpointRestoreTimestamp"] == 900
    assert found["lastCheckpointExternalPath"] == "/5"
