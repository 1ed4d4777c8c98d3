"""Spans and events of a job's life. Source: Flink Span, Event, JobManagerJobMetricGroup."""

from dataclasses import replace

import pytest

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import ExecutionStateChanged, FailureInfo
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.job_traces import RECOVERY_SCOPE, Event, JobTraces, Span
from tests.tools.observation.job_records import BEGAN, JOB, SINK, SOURCE, ToldJob, attempt

VARIABLES = {"host": "here", "job_id": JOB, "job_name": "job", "jobId": JOB}
ATTEMPTS = [attempt(vertex, subtask) for vertex in (SOURCE, SINK) for subtask in (0, 1)]


class TracedJob(ToldJob):
    """`told`: what was reported."""

    def __init__(self, job_type=JobType.STREAMING, **more) -> None:
        super().__init__(**more)
        object.__setattr__(self.record.facts, "job_type", job_type)
        self.traces = JobTraces(self.record, "here")
        self.told = []

    def tell(self, event, after_ms=0):
        super().tell(event, after_ms)
        self.told += self.traces.take(event, self.now)
        return self

    def named(self, name):
        return [one for one in self.told if one.name == name]

    def starts(self, number=0):
        """Deployed at once, they initialize for 10 ms, one after the other. Nobody has reported."""
        ones = [attempt(one.vertex_id, one.subtask, number) for one in ATTEMPTS]
        for one in ones:
            self.moves(one, "SCHEDULED", "DEPLOYING")
        for one in ones:
            self.moves(one, "INITIALIZING", "RUNNING", after_ms=10)
        return self

    def reports(self, number=0, **counters):
        for one in ATTEMPTS:
            self.has(attempt(one.vertex_id, one.subtask, number), **counters)
        return self


def test_a_start_is_told_when_all_tasks_run_and_have_reported():
    job = TracedJob().starts()
    assert job.named("JobInitialization") == []
    (span,) = job.reports().named("JobInitialization")
    assert isinstance(span, Span)
    assert span.scope == "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
    assert (span.start_ms, span.end_ms) == (BEGAN, job.now)
    assert span.attributes.items() >= VARIABLES.items()
    assert span.attributes["initializationStatus"] == "COMPLETED"
    assert span.attributes["maxInitializeStateDurationMs"] == 10
    assert span.attributes["sumInitializeStateDurationMs"] == 40
    assert "checkpointId" not in span.attributes
    assert len(job.reports().named("JobInitialization")) == 1


def test_a_start_from_a_checkpoint_tells_it_and_what_was_restored():
    job = TracedJob().tell(CheckpointRestored(7, "/chk-7")).starts()
    (span,) = job.reports(restored_local_bytes=5, restored_remote_bytes=100).named(
        "JobInitialization"
    )
    found = span.attributes
    assert found["checkpointId"] == 7
    assert found["sumRestoredStateSizeBytes.LOCAL_DISK"] == 20
    assert found["maxRestoredStateSizeBytes.REMOTE"] == 100


def test_a_short_job_tells_its_start_with_its_end():
    job = TracedJob().starts().status("FINISHED")
    assert len(job.named("JobInitialization")) == 1


def test_a_batch_job_has_no_start_of_all_tasks():
    job = TracedJob(JobType.BATCH).starts().reports().status("FINISHED")
    assert job.named("JobInitialization") == job.named("AllSubtasksStatusChangeEvent") == []


def test_a_recovery_is_from_the_failure_until_all_run_again():
    job = TracedJob().starts().reports()
    failed_ms = job.now
    job.moves(ATTEMPTS[0], "FAILED")
    for one in ATTEMPTS[1:]:
        job.moves(one, "CANCELING", "CANCELED", after_ms=1)
    job.tell(CheckpointRestored(3, "/chk-3")).starts(number=1)
    (span,) = job.named("JobRecovery")
    assert (span.scope, span.start_ms, span.end_ms) == (RECOVERY_SCOPE, failed_ms, job.now)
    assert span.attributes["recoveryStatus"] == "RECOVERED"
    assert span.attributes["restartedSubtasks"] == 4
    assert span.attributes["checkpointId"] == 3
    assert len(job.reports(number=1).named("JobInitialization")) == 2


def test_a_recovery_tells_why_the_producer_failed_also_if_its_consumer_failed_first():
    job = TracedJob().starts()
    for one, cause in zip(ATTEMPTS, ("ProducerFailed", "UserCodeError", "Other"), strict=False):
        running, failed = ExecutionState.RUNNING, ExecutionState.FAILED
        job.tell(ExecutionStateChanged(one, running, failed, job.now, cause))
    (span,) = job.status("FAILED").named("JobRecovery")
    assert span.attributes["cause"] == "UserCodeError"


def test_a_recovery_of_one_region_tells_how_many_subtasks_began_again():
    job = TracedJob().starts().reports().moves(ATTEMPTS[0], "FAILED")
    again = attempt(ATTEMPTS[0].vertex_id, ATTEMPTS[0].subtask, 1)
    job.moves(again, "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
    (span,) = job.named("JobRecovery")
    assert span.attributes["restartedSubtasks"] == 1


def test_a_recovery_that_is_given_up_ends_with_the_job():
    job = TracedJob().starts().reports().moves(ATTEMPTS[0], "FAILED")
    (span,) = job.status("FAILED", after_ms=30).named("JobRecovery")
    assert (span.end_ms, span.attributes["recoveryStatus"]) == (job.now, "FAILED")


def test_a_failure_during_a_start_begins_it_anew():
    job = TracedJob()
    for one in ATTEMPTS:
        job.moves(one, "SCHEDULED", "DEPLOYING")
    job.moves(ATTEMPTS[0], "FAILED", after_ms=500)
    again_ms = job.now
    (span,) = job.starts(number=1).reports(number=1).named("JobInitialization")
    assert span.start_ms == again_ms


def test_checkpoints_are_spans_and_events():
    job = TracedJob().runs().triggers(1).ends(1)
    (span,), (event,) = job.named("Checkpoint"), job.named("CheckpointEvent")
    assert span.attributes.items() >= VARIABLES.items()
    assert isinstance(event, Event)
    assert event.attributes.items() >= {"checkpointId": 1, "checkpointStatus": "COMPLETED"}.items()
    assert "maxStateSizeBytes" not in event.attributes


def test_nobody_adds_up_checkpoints_that_nobody_takes():
    job = TracedJob().runs()
    job.traces.is_wanted = False
    assert job.triggers(1).ends(1).named("Checkpoint") == []


def test_each_change_of_the_status_is_an_event_once():
    job = TracedJob().status("RUNNING").status("FINISHED").status("FINISHED")
    found = [one.attributes["newJobStatus"] for one in job.named("JobStatusChangeEvent")]
    assert found == ["RUNNING", "FINISHED"]


def test_all_subtasks_run_or_not_is_an_event():
    job = TracedJob().starts().moves(ATTEMPTS[0], "FAILED")
    found = [one.attributes["status"] for one in job.named("AllSubtasksStatusChangeEvent")]
    assert found == ["ALL_RUNNING_OR_FINISHED", "NOT_ALL_RUNNING_OR_FINISHED"]


@pytest.mark.parametrize(("status", "can"), [("RESTARTING", "true"), ("FAILING", "false")])
def test_each_failure_is_an_event_once(status, can):
    first = FailureSeen(FailureInfo("ValueError", "x"), BEGAN, "map (1/2)", ATTEMPTS[0])
    second = FailureSeen(FailureInfo("OSError", "y"), BEGAN + 5)
    job = TracedJob().status(status).tell(FailuresSeen(((first, ()),)))
    job.tell(FailuresSeen(((second, ()), (first, ()))))
    later = [replace(one, at_ms=one.at_ms + 1) for one in (second, first)]
    job.tell(FailuresSeen(tuple((one, ()) for one in later)))
    found = [
        (one.attributes["canRestart"], one.attributes["isGlobalFailure"])
        for one in job.named("JobFailureEvent")
    ]
    assert found == [(can, "false"), (can, "true")]


def test_a_failure_that_is_explained_better_later_is_told_once():
    first = FailureSeen(FailureInfo("ConnectionError", "x"), BEGAN, "sum (1/2)", ATTEMPTS[2])
    cause = FailureSeen(FailureInfo("ValueError", "y"), BEGAN, "map (1/2)", ATTEMPTS[0])
    job = TracedJob().tell(FailuresSeen(((first, ()),))).tell(FailuresSeen(((cause, (first,)),)))
    assert len(job.named("JobFailureEvent")) == 1


def test_each_failure_of_the_whole_job_is_told():
    first, second = (FailureSeen(FailureInfo("OSError", "y"), BEGAN + ms) for ms in (0, 5_000))
    job = TracedJob().tell(FailuresSeen(((first, ()),)))
    job.tell(FailuresSeen(((second, ()), (first, ()))))
    assert len(job.named("JobFailureEvent")) == 2
