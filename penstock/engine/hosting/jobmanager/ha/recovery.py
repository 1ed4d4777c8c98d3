"""Completes the jobs of other drivers: removes leftovers, carries out recorded results, and reports ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.engine.hosting.jobmanager.checkpoint_writer import SavepointFailed
from penstock.engine.hosting.jobmanager.coordinators.coordinators import (
    commit_all,
    committers_of,
    job_prefix_of,
)
from penstock.engine.hosting.jobmanager.ha.election import Claim
from penstock.engine.hosting.jobmanager.ha.guard import RecordedResult
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.jobmanager.ha.store import Ended
from penstock.engine.model.checkpoints import CheckpointStatistics, CheckpointType
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.program import JobControl, JobOutcome, NotRescalable
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.error_text import traceback_of


class EndedJob(NotRescalable):
    """`engine.model.program.JobControl` of a job that has ended at another driver."""

    why_not = "the job has ended at another driver, so it cannot be rescaled."

    def __init__(self, job_id: JobId, outcome: JobOutcome) -> None:
        self._job_id = job_id
        self._outcome = outcome

    @property
    def job_id(self) -> JobId:
        return self._job_id

    def status(self) -> JobStatus:
        return self._outcome.status

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        return self._outcome

    def cancel(self) -> None:
        return

    def interrupted(self) -> bool:
        return False  # The job has ended.

    def start_savepoint(
        self, kind: CheckpointType, directory: str | None
    ) -> Callable[[float | None], str]:
        what = "savepoint" if kind.is_savepoint else "checkpoint"
        raise SavepointFailed(f"no {what} was taken: job {self._job_id} has ended")

    def checkpoints(self) -> CheckpointStatistics:
        return CheckpointStatistics()  # The other driver has them.

    def task_metrics(self) -> list[tuple[str, int, TaskIo]]:
        return []  # Its tasks are gone.

    def collect(self, stream: str, *, shows_error: bool = True) -> Iterator[list[Any]]:
        raise JobExecutionError(
            f"job {self._job_id} was run by another driver, which got its rows. Run it again, "
            "or write the rows to a file sink."
        )


def recovery_text(claim: Claim) -> str:
    graph = claim.job.graph
    what = f"job '{graph.name}' ({graph.job_id}) of driver {claim.former} is taken over"
    if claim.result is not None:
        return f"{what}: its end was recorded as {claim.result.status} and is carried out again"
    found = claim.keeper.former_checkpoints
    if not found:
        return f"{what}: it has no completed checkpoint, so it begins at the start of its sources"
    return f"{what}: it continues from checkpoint {found[-1][0]} ({found[-1][1]})"


def ended_elsewhere(ended: Ended) -> JobControl:
    """Return the job that ended at the driver that we waited for."""
    outcome = JobOutcome(JobStatus(ended.status), ended.net_runtime_ms, ended.failure)
    return EndedJob(JobId(ended.job_id), outcome)


def drop_leftovers(job: SubmittedJob) -> None:
    """Remove what the former driver's tasks wrote and nobody has committed."""
    for committer in committers_of(job.coordinated).values():
        committer.abort(job_prefix_of(job.graph.job_id))


def finish_recorded(claim: Claim, result: RecordedResult) -> JobControl:
    """Carry out the recorded end of a job whose former driver died while doing so. The job is not run again."""
    job, failure = claim.job, result.failure
    status = result.status
    try:
        if status is JobStatus.FINISHED:
            prefix = job_prefix_of(job.graph.job_id)
            commit_all(committers_of(job.coordinated), result.committables, prefix)
        else:
            drop_leftovers(job)
    except Exception as error:
        status, failure = JobStatus.FAILED, traceback_of(error)
    outcome = JobOutcome(status, result.net_runtime_ms, failure)
    claim.keeper.close(RecordedResult(status, result.net_runtime_ms, failure))
    return EndedJob(job.graph.job_id, outcome)
