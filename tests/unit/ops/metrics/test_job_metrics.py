"""Times of a job's states."""

import pytest

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.states import JobStatus
from penstock.ops.metrics.job_metrics import (
    JobTimes,
    StateKind,
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
