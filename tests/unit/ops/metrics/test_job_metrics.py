"""Times of a job's states, and its checkpoints."""

import pytest

from penstock.engine.model.checkpoints import (
    CheckpointStatistics,
    CheckpointSummary,
    CheckpointType,
    RestoredCheckpoint,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.states import JobStatus
from penstock.ops.metrics.job_metrics import (
    JobTimes,
    LastCheckpointData,
    StateKind,
    checkpoint_metrics,
    state_kinds,
)

ALL = frozenset(StateKind)
USUAL = frozenset({StateKind.CURRENT_TIME})


def times(*changes) -> JobTimes:
    found = JobTimes()
    for status, at_ms in changes:
        found.changed(status, at_ms)
    return found


def values(job: JobTimes, now_ms: int, kinds=USUAL) -> dict:
    return {one.name: one.value for one in job.measured(now_ms, kinds)}


FAILED_ONCE = (
    (JobStatus.INITIALIZING, 0), (JobStatus.CREATED, 10), (JobStatus.RUNNING, 30),
    (JobStatus.RESTARTING, 100), (JobStatus.RUNNING, 150),
)  # fmt: skip


def test_by_default_each_state_has_the_time_since_the_job_entered_it():
    assert values(times(*FAILED_ONCE), 200) == {
        "initializingTime": 0, "createdTime": 0, "runningTime": 50, "restartingTime": 0,
        "cancellingTime": 0, "failingTime": 0, "uptime": 50, "downtime": 0, "numRestarts": 1,
        "numRescales": 0,
    }  # fmt: skip


def test_a_rescale_is_a_restart_too():
    job = times(*FAILED_ONCE)
    job.rescales += 2
    found = values(job, 200)
    assert (found["numRestarts"], found["numRescales"]) == (3, 2)


def test_totals_add_up_and_the_state_is_1():
    found = values(times(*FAILED_ONCE), 200, ALL)
    assert found["runningTimeTotal"] == 70 + 50
    assert found["restartingTimeTotal"] == 50
    assert {name for name, value in found.items() if name.endswith("State") and value} == {
        "runningState"
    }


def test_a_job_that_restarts_is_down_and_one_that_has_ended_is_neither_up_nor_down():
    down = values(times(*FAILED_ONCE[:4]), 120)
    assert (down["uptime"], down["downtime"]) == (0, 20)
    over = values(times(*FAILED_ONCE, (JobStatus.FINISHED, 160)), 200)
    assert (over["uptime"], over["downtime"]) == (-1, -1)


def test_a_job_that_has_no_state_yet_has_times_of_0():
    assert set(values(times(), 5, ALL).values()) == {0}


def test_kinds_of_states_are_read_by_name():
    assert state_kinds(["state", " TOTAL_TIME"]) == {StateKind.STATE, StateKind.TOTAL_TIME}
    with pytest.raises(
        ConfigurationError, match=r"metrics.job.status.enable: expected some of STATE"
    ):
        state_kinds(["TIME"])


def test_before_the_first_checkpoint_there_is_minus_1():
    found = {one.name: one.value for one in checkpoint_metrics(CheckpointStatistics())}
    assert found == {
        "totalNumberOfCheckpoints": 0, "numberOfInProgressCheckpoints": 0,
        "numberOfCompletedCheckpoints": 0, "numberOfFailedCheckpoints": 0,
        "lastCompletedCheckpointId": -1, "lastCheckpointDuration": -1, "lastCheckpointSize": -1,
        "lastCheckpointFullSize": -1, "lastCheckpointCompletedTimestamp": -1,
        "lastCheckpointRestoreTimestamp": -1, "lastCheckpointExternalPath": "n/a",
        "lastCheckpointMetadataSize": -1, "lastCheckpointProcessedData": -1,
        "lastCheckpointPersistedData": -1,
    }  # fmt: skip


def test_savepoints_count_as_the_last_checkpoint():
    def summary(checkpoint_id: int, kind: CheckpointType) -> CheckpointSummary:
        return CheckpointSummary(
            checkpoint_id, kind, 1000, 50, 200, 0, 0, 0, f"/{checkpoint_id}", None, 80
        )

    statistics = CheckpointStatistics(
        in_progress=1, completed=2, failed=3,
        latest_completed=summary(4, CheckpointType.CHECKPOINT),
        latest_savepoint=summary(5, CheckpointType.SAVEPOINT),
        latest_restored=RestoredCheckpoint(3, 900),
    )  # fmt: skip
    data = LastCheckpointData(metadata_bytes=7, processed_bytes=8, persisted_bytes=9)
    found = {one.name: one.value for one in checkpoint_metrics(statistics, data)}
    assert found["totalNumberOfCheckpoints"] == 6
    names = ("MetadataSize", "ProcessedData", "PersistedData")
    assert [found[f"lastCheckpoint{name}"] for name in names] == [7, 8, 9]
    assert found["lastCompletedCheckpointId"] == 5
    assert (found["lastCheckpointSize"], found["lastCheckpointFullSize"]) == (80, 200)
    assert found["lastCheckpointCompletedTimestamp"] == 1050
    assert found["lastCheckpointRestoreTimestamp"] == 900
    assert found["lastCheckpointExternalPath"] == "/5"
