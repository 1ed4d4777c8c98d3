"""JobClient: a program's hold on its running job. Knows only the JobControl port.

Source: pyflink.common.job_client; differs: `get_checkpoints`, `get_task_metrics` and `get_latencies` are additions.
"""

from __future__ import annotations

from typing import Any

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.model import states
from penstock.model.checkpoint_statistics import CheckpointStatistics
from penstock.model.checkpoints import CheckpointType
from penstock.model.errors import JobCancelledError, JobExecutionError, JobSuspendedError
from penstock.model.messages import LatencySummary, TaskIo
from penstock.model.program import JobControl, JobOutcome


class JobClient:
    """Made by `execute_async`."""

    def __init__(self, control: JobControl) -> None:
        self._control = control

    def get_job_id(self) -> JobID:
        return JobID(self._control.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(JobStatus.of(self._control.status()))

    def cancel(self) -> CompletableFuture[None]:
        """Ask for cancellation; the future completes when the job has ended."""
        self._control.cancel()

        def ended(timeout_s: float | None) -> None:
            self._control.wait(timeout_s)

        return CompletableFuture(ended)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed({})

    def get_latencies(self) -> CompletableFuture[list[tuple[str, int, LatencySummary]]]:
        """(vertex name, subtask, histogram in ms) of each source-operator pair; needs `metrics.latency.interval`.
        Not in PyFlink.
        """
        found = [
            (vertex, subtask, summary)
            for vertex, subtask, io in self._control.task_metrics()
            for summary in io.latencies
        ]
        return CompletableFuture.completed(found)

    def get_task_metrics(self) -> CompletableFuture[list[tuple[str, int, TaskIo]]]:
        """(vertex name, subtask, counters and gauges) of each subtask, as of its last heartbeat. Not in PyFlink.

        Among them: records and bytes, busy, idle and back-pressured milliseconds per second, the watermark, frames
        that wait in front of and behind the task, dropped late records, and the metrics of the user's functions; see `TaskIo`.
        """
        return CompletableFuture.completed(self._control.task_metrics())

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        def fetch(timeout_s: float | None) -> JobExecutionResult:
            return result_of(self._control.job_id, self._control.wait(timeout_s))

        return CompletableFuture(fetch)

    def get_checkpoints(self) -> CompletableFuture[CheckpointStatistics]:
        """Checkpoints and savepoints of this job: how many were triggered, completed and failed, the latest ones with id, size,
        duration and place, and what the job was restored from. Not in PyFlink.
        """
        return CompletableFuture.completed(self._control.checkpoints())

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """The job goes on. `savepoint_directory`: where to make the savepoint's folder, in any file system that driver and tasks reach; None:
        `execution.checkpointing.savepoint-dir`. The future gives the folder, for `execution.state-recovery.path`.

        Raises: ExternalError: the job takes no savepoints; the future, when this one fails. ConfigurationError: a file system
        that is not known.
        """
        wait = self._control.start_savepoint(CheckpointType.SAVEPOINT, savepoint_directory)
        return CompletableFuture(wait)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """End the job with a savepoint that has everything up to its end. The future gives the folder once the job is FINISHED.

        `advance_to_end_of_event_time`: windows and event-time timers fire, as at the end of the data: for a job that will not go
        on. Raises: as `trigger_savepoint`.
        """
        kind = CheckpointType.STOP_SUSPEND
        if advance_to_end_of_event_time:
            kind = CheckpointType.STOP_DRAIN
        return CompletableFuture(self._control.start_savepoint(kind, savepoint_directory))


def result_of(job_id: str, outcome: JobOutcome) -> JobExecutionResult:
    """The result of a finished job; raises JobExecutionError with the first failure otherwise."""
    if outcome.status is states.JobStatus.FINISHED:
        return JobExecutionResult(JobID(job_id), outcome.net_runtime_ms)
    if outcome.status is states.JobStatus.CANCELED:
        raise JobCancelledError(f"job {job_id} was cancelled. Start the program again to run it.")
    is_suspended = outcome.status is states.JobStatus.SUSPENDED
    error = JobSuspendedError if is_suspended else JobExecutionError
    raise error(
        f"job {job_id} ended in {outcome.status} after {outcome.net_runtime_ms} ms.\n"
        f"{outcome.failure or 'No cause was reported; see the log of the JobManager.'}"
    )
