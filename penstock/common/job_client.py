"""JobClient: a program's access to its running job. Knows only the JobControl port, and reports
its reading to `engine.hosting.os.waiting`.

Source: pyflink.common.job_client; differs: `get_checkpoints`, `get_task_metrics` and `get_latencies` are additions, and notebooks show
the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.uncaught import end_well_if_cancelled
from penstock.engine.hosting.os.waiting import Reader
from penstock.engine.model import states
from penstock.engine.model.checkpoints import CheckpointStatistics, CheckpointType
from penstock.engine.model.errors import JobCancelledError, JobExecutionError, JobSuspendedError
from penstock.engine.model.messages import LatencySummary, TaskIo
from penstock.engine.model.program import JobControl, JobOutcome

if TYPE_CHECKING:
    from penstock.ops.console.notebook import JobDisplay

import linecache
import re
from typing import Final

# ---------------------------------------------------------------------- source lines
# Lines of source in tracebacks that come as text from TaskManagers. Knows nothing of jobs.
#
# A TaskManager shows them only for files that its machine has. Cells of a notebook, and a program
# that was shipped, are only with the driver, whose `linecache` knows both.


_FRAME: Final = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+)(, in .*)?')
_SOURCE: Final = "    "


def with_source_lines(text: str) -> str:
    """Add the line of source below each frame that has none, if this process can find it."""
    lines = text.split("\n")
    completed: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        completed.append(line)
        frame = _FRAME.fullmatch(line)
        if frame is not None and not following.startswith(_SOURCE):
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            completed += [f"{_SOURCE}{source}"] if source else []
    return "\n".join(completed)


# ---------------------------------------------------------------------- job client


class JobClient:
    """Observes and controls a job, as `env.execute_async` returns it."""

    def __init__(self, control: JobControl) -> None:
        self._control = control
        self._reader: Reader | None = None
        self._display: JobDisplay | None = None

    def __repr__(self) -> str:
        return f"JobClient(job_id={self._control.job_id!r}, status={self._control.status()})"

    def _repr_html_(self) -> str | None:
        """Return the job as HTML: its state, its vertices with their rates, and what limits it."""
        return self._shown().bundle().get("text/html")

    def _ipython_display_(self) -> None:
        """Show the job in a notebook, where it is drawn again in its place until it has ended."""
        self._shown().show()

    def _shown(self) -> JobDisplay:
        if self._display is None:
            from penstock.ops.console.notebook import JobDisplay

            self._display = JobDisplay(self._control)
        return self._display

    def _refresh(self) -> None:
        """Draw the job's end before the cell that has waited for it ends."""
        if self._display is not None:
            self._display.refresh()

    @property
    def is_attached(self) -> bool:
        """Whether `execute` waits for the job's end: not for one in a session with `execution.attached` false. Not in PyFlink."""
        return getattr(self._control, "is_attached", True)

    def get_job_id(self) -> JobID:
        """Return the job's id, which the command line and the REST API take."""
        return JobID(self._control.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the job's status now."""
        return CompletableFuture.completed(JobStatus.of(self._control.status()))

    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job. The future completes when the job has ended."""
        self._control.cancel()

        def ended(timeout_s: float | None) -> None:
            self._control.wait(timeout_s)
            self._refresh()

        return CompletableFuture(ended)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return an empty dict: there are no accumulators here."""
        return CompletableFuture.completed({})

    def get_latencies(self) -> CompletableFuture[list[tuple[str, int, LatencySummary]]]:
        """Return (vertex name, subtask, histogram in ms) of each pair of source and operator.

        Needs `metrics.latency.interval`. Not in PyFlink.
        """
        found = [
            (vertex, subtask, summary)
            for vertex, subtask, io in self._control.task_metrics()
            for summary in io.latencies
        ]
        return CompletableFuture.completed(found)

    def get_task_metrics(self) -> CompletableFuture[list[tuple[str, int, TaskIo]]]:
        """Return (vertex name, subtask, metrics) of each subtask, as of its last heartbeat.

        The metrics are records and bytes; busy, idle and back-pressured ms per second; the
        watermark; frames that wait before and after the task; dropped late records; and those of
        the user's functions. See `TaskIo`. Not in PyFlink.
        """
        return CompletableFuture.completed(self._control.task_metrics())

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result once it has finished.

        The future raises JobExecutionError if it failed. Who has asked once is expected to ask again, so the console leaves the error
        of the job to the future.
        """
        if self._reader is None:
            self._reader = Reader(self._control.job_id)

        def fetch(timeout_s: float | None) -> JobExecutionResult:
            outcome = self._control.wait(timeout_s)
            self._refresh()
            return result_of(self._control.job_id, outcome)

        return CompletableFuture(fetch)

    def get_checkpoints(self) -> CompletableFuture[CheckpointStatistics]:
        """Return the statistics of the job's checkpoints and savepoints. Not in PyFlink.

        They have the numbers triggered, completed and failed; the latest with id, size, duration
        and place; and what the job was restored from.
        """
        return CompletableFuture.completed(self._control.checkpoints())

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint while the job runs on.

        Args:
            savepoint_directory: where to create the savepoint's folder, in a file system that
                driver and tasks reach; None: `execution.checkpointing.savepoint-dir`.

        Returns:
            A future of the folder, for `execution.state-recovery.path`.

        Raises:
            ExternalError: the job takes no savepoints. The future raises it if this savepoint
                fails.
            ConfigurationError: the file system is not known.
        """
        wait = self._control.start_savepoint(CheckpointType.SAVEPOINT, savepoint_directory)
        return CompletableFuture(wait)

    def rescale(self, parallelism: Mapping[str, int | tuple[int, int]]) -> CompletableFuture[None]:
        """Change the parallelism of the job while it runs. Not in PyFlink.

        The job continues until the slots for it are there. Then it takes a checkpoint, after which its tasks end, and the
        new subtasks begin with it: no record is processed twice.

        Args:
            parallelism: by the name or the id of a vertex, or the uid of one of its operators: a number, or a pair of lower
                and upper bound. A vertex that is not named keeps what it has.

        Raises:
            ConfigurationError: the job cannot have this parallelism.
        """
        self._control.rescale(parallelism)
        return CompletableFuture.completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stop the job with a savepoint, which holds everything up to its end.

        Args:
            advance_to_end_of_event_time: fire windows and event-time timers, as at the end of the
                data, for a job that will not be resumed.
            savepoint_directory: as in `trigger_savepoint`.

        Returns:
            A future of the folder, which completes when the job is FINISHED.

        Raises:
            ExternalError, ConfigurationError: as in `trigger_savepoint`.
        """
        kind = CheckpointType.STOP_SUSPEND
        if advance_to_end_of_event_time:
            kind = CheckpointType.STOP_DRAIN
        return CompletableFuture(self._control.start_savepoint(kind, savepoint_directory))


def result_of(job_id: str, outcome: JobOutcome) -> JobExecutionResult:
    """Return the result of a finished job, or raise JobExecutionError with the first failure."""
    if outcome.status is states.JobStatus.FINISHED:
        return JobExecutionResult(JobID(job_id), outcome.net_runtime_ms)
    if outcome.status is states.JobStatus.CANCELED:
        end_well_if_cancelled()
        raise JobCancelledError(f"job {job_id} was cancelled. Start the program again to run it.")
    is_suspended = outcome.status is states.JobStatus.SUSPENDED
    error = JobSuspendedError if is_suspended else JobExecutionError
    cause = outcome.failure or "No cause was reported; see the log of the JobManager."
    raise error(
        f"{with_source_lines(cause)}\n"
        f"  in job:      {job_id}, which ended in {outcome.status} "
        f"after {outcome.net_runtime_ms} ms"
    )
