"""`/jobs/:jobid/rescales/*`. Expectations: docs/spec/elasticity.md#rescale-history."""

import pytest

from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.elastic import (
    Change,
    Rescale,
    RescaleCause,
    RescaleEnd,
    RescaleOutcome,
    Rescales,
    StateSpan,
)
from penstock.engine.model.graph.job_graph import JobType
from penstock.ops.jobs.snapshots import ElasticFacts
from penstock.ops.jobs.views import jobs, rescales
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob

STATES = (StateSpan("Executing", 100, 130), StateSpan("Restarting", 130, 150, "a slot is gone"))
DONE = Rescale(
    "r1",
    "q1",
    1,
    RescaleCause.UPDATE_REQUIREMENT,
    100,
    {SOURCE: Change(4, 1, 2, 4), SINK: Change(2, 2, 2, 2)},
    {"default": Change(4, 2, 2, 4)},
    {SOURCE: "default", SINK: "default"},
    STATES,
    RescaleEnd.SUCCEEDED,
    150,
)
NOW = Rescale(
    "r2", "q2", 1, RescaleCause.NEW_RESOURCE_AVAILABLE, 200, {SOURCE: Change(4, 1, 4)}, {}
)
IGNORED = Rescale(
    "r0", "q0", 1, RescaleCause.INITIAL_SCHEDULE, 0, {}, {}, {}, (), RescaleEnd.JOB_CANCELED, 10
)


GROUP = b"default".hex().ljust(32, "0")
UNKNOWN = {
    "cpuCores": -1.0,
    "taskHeapMemory": -1,
    "taskOffHeapMemory": -1,
    "managedMemory": -1,
    "networkMemory": -1,
    "extendedResources": {},
}
"""Flink's ResourceProfile.UNKNOWN in REST."""


def told(*kept, under_way=False, **facts):
    counts = {RescaleOutcome.COMPLETED: 3}
    latest = {RescaleOutcome.COMPLETED: DONE}
    known = Rescales(kept, counts, latest, under_way)
    return ToldJob(**facts).tell(known).now_it_is(), known


def test_nobody_has_asked_to_rescale_a_job():
    assert ToldJob().now_it_is().rescales is None


ADAPTIVE = ElasticFacts(AdaptiveSettings(is_adaptive=True))


@pytest.mark.parametrize(
    ("job", "scheduler"),
    [
        (ToldJob(), "Default"),
        (ToldJob(elastic=ADAPTIVE), "Adaptive"),
        (ToldJob().tell(Rescales()), "Adaptive"),
        (ToldJob(elastic=ADAPTIVE, job_type=JobType.BATCH), "AdaptiveBatch"),
    ],
    ids=["of a fixed size", "of the Adaptive scheduler", "rescaled", "BATCH"],
)
def test_the_type_of_the_scheduler_is_that_which_runs_the_job(job, scheduler):
    """By it, Flink's dashboard decides whether a job has a page of rescales."""
    now = job.now_it_is()
    assert jobs.details(now)["schedulerType"] == scheduler
    assert jobs.job_in_list(now)["schedulerType"] == scheduler
    assert (now.rescales is not None) == (scheduler == "Adaptive")


def test_a_rescale_says_what_it_wanted_and_got():
    job, _ = told(DONE)
    found = rescales.details(job, DONE)
    assert found["vertices"][SOURCE] == {
        "jobVertexId": SOURCE,
        "jobVertexName": "Source: Numbers -> Map",
        "slotSharingGroupId": GROUP,
        "slotSharingGroupName": "default",
        "desiredParallelism": 4,
        "sufficientParallelism": 1,
        "preRescaleParallelism": 2,
        "postRescaleParallelism": 4,
    }
    assert found["slots"] == {
        GROUP: {
            "slotSharingGroupId": GROUP,
            "slotSharingGroupName": "default",
            "requestResourceProfile": UNKNOWN,
            "desiredSlots": 4,
            "minimalRequiredSlots": 2,
            "preRescaleSlots": 2,
            "postRescaleSlots": 4,
            "acquiredResourceProfile": UNKNOWN,
        }
    }
    assert jobs.details(job)["vertices"][0]["slotSharingGroupId"] == GROUP
    assert found["schedulerStates"][1] == {
        "state": "Restarting",
        "enterTimestampInMillis": 130,
        "leaveTimestampInMillis": 150,
        "durationInMillis": 20,
        "stringifiedException": "a slot is gone",
    }
    assert (found["terminalState"], found["terminatedReason"]) == ("COMPLETED", "SUCCEEDED")
    assert (found["startTimestampInMillis"], found["endTimestampInMillis"]) == (100, 150)


def test_one_that_is_under_way_has_no_end():
    job, known = told(DONE, NOW, under_way=True)
    first, second = rescales.history(job, known)
    assert (first["rescaleUuid"], second["rescaleUuid"]) == ("r2", "r1")
    assert (first["terminalState"], first["endTimestampInMillis"]) == (None, None)
    assert first["vertices"][SOURCE]["postRescaleParallelism"] is None


def test_counts_have_also_those_that_are_not_kept():
    job, known = told(under_way=True)
    found = rescales.overview(job, known)
    assert found["rescalesCounts"] == {"ignored": 0, "inProgress": 1, "completed": 3, "failed": 0}
    assert found["latest"]["completed"]["rescaleUuid"] == "r1"
    assert found["latest"]["failed"] is None


def test_durations_are_of_those_that_have_ended():
    job, known = told(IGNORED, DONE, NOW, under_way=True)
    found = rescales.summary(job, known)
    every = found["rescalesDurationStatsInMillis"]
    assert (every["min"], every["max"], every["avg"]) == (10, 50, 30)
    assert found["completedRescalesDurationStatsInMillis"]["min"] == 50
    assert found["ignoredRescalesDurationStatsInMillis"]["max"] == 10
    assert found["failedRescalesDurationStatsInMillis"]["p99"] == "NaN"


def test_the_options_that_decide():
    job, _ = told(
        elastic=ElasticFacts(
            AdaptiveSettings(wait_timeout_ms=None, is_reactive=True, history_size=7)
        )
    )
    found = rescales.config(job)
    assert found["rescaleHistoryMax"] == 7
    assert found["schedulerExecutionMode"] == "REACTIVE"
    assert found["submissionResourceWaitTimeoutInMillis"] == -1
    job, _ = told()
    assert rescales.config(job)["submissionResourceWaitTimeoutInMillis"] == 300_000
