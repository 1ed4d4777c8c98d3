"""What the driver's console shows of a job: a few lines on stderr, and its progress.

stdout belongs to print sinks and to the user. The progress is a live table below all output where stderr is a terminal;
elsewhere it is one line in 10 s.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from penstock.hosting.clock import monotonic_ms, wall_ms
from penstock.hosting.file_systems import parted
from penstock.hosting.observer import JobObserver, JobView
from penstock.hosting.program.line_writer import LineWriter
from penstock.hosting.program.live_terminal import is_live, live_terminal
from penstock.hosting.program.progress import (
    CheckpointNews,
    Moment,
    Rates,
    Snapshot,
    line_of,
    snapshot_of,
)
from penstock.hosting.waiting import Given, owe
from penstock.model.config import Settings
from penstock.model.graph.auto_parallelism import UNDECIDED
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import parallelism_of
from penstock.model.ids import JobId, ResourceId
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointEnded,
    FailureInfo,
    GraphReplaced,
    JobStatusChanged,
    LogEvents,
    RegisterTaskManager,
    ResetSubtasks,
    ResourcesMissing,
    UserOutput,
)
from penstock.model.messages.checkpoints import CheckpointFailureReason as Reason
from penstock.model.options.scheduling import ConsoleOptions
from penstock.model.states import JobStatus
from penstock.model.texts.bounded_text import cut
from penstock.model.texts.error_text import headline_of, traceback_of
from penstock.observation.logs.console import first_line, repeated_line
from penstock.observation.logs.folding import Folding

if TYPE_CHECKING:
    from penstock.hosting.program.progress_table import TableWriter

_EXPECTED: Final = frozenset({
    Reason.PERIODIC_SCHEDULER_SHUTDOWN,
    Reason.COORDINATOR_SUSPEND,
    Reason.COORDINATOR_SHUTDOWN,
    Reason.CHECKPOINT_SUBSUMED,
    Reason.TASK_CLOSING,
})
_MOST_OF_HEADLINE: Final = 2000
_FOLDED_MS: Final = 10_000


class Console(JobObserver):
    """Calls come from the JobManager's loop and return at once."""

    def __init__(self, settings: Settings, address: str | None = None) -> None:
        """`address`: of the REST server; None: there is none."""
        self._address = address
        self._shows_progress = settings.get(ConsoleOptions.PROGRESS)
        self._writer = LineWriter()
        self._stream = sys.stderr
        self._is_live = self._shows_progress and is_live(self._stream)
        self._tells_places = self._shows_progress and (
            self._is_live or settings.is_set(ConsoleOptions.PROGRESS)
        )
        interval = (
            ConsoleOptions.PROGRESS_INTERVAL if self._is_live else ConsoleOptions.LINE_INTERVAL
        )
        self._interval_s = settings.get(interval) / 1000
        self._started = time.monotonic()
        self._next_progress_s = self._interval_s
        self._job = ("", JobId(""))
        self._rates = Rates(self._interval_s)
        self._checkpoints = CheckpointNews()
        self._table_writer: TableWriter | None = None
        self._taskmanagers: dict[ResourceId, str] = {}
        self._folding = Folding(_FOLDED_MS, grows=True)

    def submitted(self, job_graph: JobGraph, ignored_keys: list[str]) -> None:
        self._job = job_graph.name, job_graph.job_id
        known = [vertex.parallelism for vertex in job_graph.vertices.values()]
        subtasks = sum(parallelism for parallelism in known if parallelism != UNDECIDED)
        more = ", others decided by the data" if UNDECIDED in known else ""
        seen = "" if self._address is None else f"; see {self._address}"
        text = f"job '{job_graph.name}': {len(known)} vertices, {subtasks} subtasks{more}{seen}"
        self._say(text)
        if ignored_keys:
            self._say(f"accepted but without effect here: {', '.join(ignored_keys)}")

    def taskmanager_registered(self, message: RegisterTaskManager) -> None:
        place = f"{message.resource_id} (process {message.pid} on {message.host})"
        self._taskmanagers[message.resource_id] = place

    def taskmanager_starved(self, resource_id: ResourceId, cause: str) -> None:
        self._say(f"TaskManager {resource_id} is silent: {cause}")

    def taskmanager_lost(self, resource_id: ResourceId, cause: str) -> None:
        self._say(f"lost TaskManager {resource_id}: {cause}")

    def resources_missing(self, missing: ResourcesMissing, host: str) -> None:
        """Print missing slots. The ResourceManager reports them after 3 s, then every 30 s."""
        self._say(
            f"waiting for slots: {missing.wanted} wanted, {missing.available} available: "
            f"{missing.reason}; {host}"
        )

    def status_changed(self, change: JobStatusChanged) -> None:
        if change.status is JobStatus.RESTARTING:
            self._say(f"restarting after: {_headline(change.failure)}")
        elif change.status is JobStatus.FAILED:
            self._say_that_it_failed(_headline(change.failure))

    def _say_that_it_failed(self, cause: str) -> None:
        """Say it without the cause to a program that is given the error, for it shows the cause itself."""
        name = self._job[0]
        match owe(self._job[1], lambda: say(f"job '{name}' FAILED: {cause}")):
            case Given.NEVER:
                self._say(f"job FAILED: {cause}")
            case Given.NOW:
                self._say("job FAILED")
            case Given.LATER:
                self._say("job FAILED; the error comes where the program reads its results")

    def restarting(self, reset: ResetSubtasks) -> None:
        self._say_that_it_restarts(len(reset.vertices), reset.checkpoint_id)

    def graph_replaced(self, replaced: GraphReplaced) -> None:
        subtasks = sum(parallelism_of(replaced.job_graph).values())
        if replaced.is_planned:
            kept = sum(one.vertex_id in replaced.kept for one in replaced.former)
            beside = f"; {kept} of them did not stop" if kept else ""
            self._say(f"rescaled from {len(replaced.former)} to {subtasks} subtasks{beside}")
        else:
            self._say_that_it_restarts(subtasks, replaced.checkpoint_id)

    def _say_that_it_restarts(self, subtasks: int, checkpoint_id: int | None) -> None:
        if checkpoint_id is None:
            place = "from the start of their sources, because no checkpoint is complete"
        else:
            place = f"from checkpoint {checkpoint_id}"
        self._say(
            f"restarted subtasks: {subtasks}, {place}; what they printed since then may be "
            "printed again"
        )

    def checkpoint_acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        self._checkpoints.acknowledged(message.checkpoint_id, monotonic_ms())

    def checkpoint_ended(self, ended: CheckpointEnded) -> None:
        """Print a failed checkpoint, unless a restart, a newer checkpoint or the end of the job made it pointless."""
        self._checkpoints.ended(ended, self._moment(), monotonic_ms())
        if ended.reason is None or ended.reason in _EXPECTED:
            return
        what = "savepoint" if ended.checkpoint_type.is_savepoint else "checkpoint"
        text = ended.text.splitlines()[-1] if ended.text else ""
        self._say(f"{what} {ended.checkpoint_id} failed ({ended.reason}): {text}")

    def user_output(self, output: UserOutput, job_graph: JobGraph) -> None:
        who = ""
        if output.attempt_id is not None:
            who = f"[{output.operator} {output.attempt_id.subtask + 1}] "
        stream = sys.stderr if output.is_error else sys.stdout
        text = "\n".join(who + line for line in output.text.split("\n"))
        self._writer.put(stream, text + "\n")

    def user_logged(self, told: LogEvents, job_graph: JobGraph) -> None:
        """Show warnings and errors of functions. What repeats is counted, and shown less and less often."""
        now_ms = monotonic_ms()
        for event in told.events:
            if self._folding.take(event, now_ms):
                self._writer.put(sys.stderr, f"{first_line(event)}\n")
        self._folding.left_out += told.left_out

    def _show_repeats(self, *, is_all: bool = False) -> None:
        for repeats in self._folding.due(monotonic_ms(), is_all=is_all):
            self._writer.put(sys.stderr, f"{repeated_line(repeats)}\n")
        left_out, self._folding.left_out = self._folding.left_out, 0
        if left_out:
            self._say(f"{left_out:,} further warnings and errors are in the TaskManagers' logs")

    def engine_failed(self, error: BaseException) -> None:
        self._say(traceback_of(error))

    def tick(self, job: JobView) -> None:
        moment = self._moment()
        self._show_repeats()
        if not self._shows_progress or moment.since_start_s < self._next_progress_s:
            return
        self._next_progress_s = moment.since_start_s + self._interval_s
        snapshot = snapshot_of(
            (self._job[0], job.status),
            job.progress(),
            self._rates,
            moment,
            self._checkpoints.told(moment, job.checkpoints_under_way),
        )
        if self._is_live:
            self._writer.call(lambda: self._draw(snapshot), is_optional=True)
        else:
            self._say(line_of(snapshot))

    def job_ended(self, status: JobStatus, job: JobView) -> None:
        self._show_repeats(is_all=True)
        if self._is_live:
            self._writer.call(lambda: live_terminal(self._stream).remove(self))
        if self._tells_places:
            self._tell_places(status, job)
        if status is not JobStatus.FINISHED and job.kept_checkpoint is not None:
            folder, _ = parted(job.kept_checkpoint)
            self._say(
                f"job {status}; its newest checkpoint is kept: {folder}. Begin with it by "
                "penstock run --from-savepoint, or execution.state-recovery.path."
            )
        self._writer.close()

    def _tell_places(self, status: JobStatus, job: JobView) -> None:
        tasks: dict[ResourceId, list[str]] = {}
        for place in job.where_tasks_ran():
            if place.location is not None:
                task = f"{place.vertex_name} [{place.subtask + 1}]"
                tasks.setdefault(place.location.resource_id, []).append(task)
        places = "; it ran on" if tasks else ""
        self._say(f"job {status} after {time.monotonic() - self._started:.1f} s{places}")
        for resource_id, names in tasks.items():
            who = self._taskmanagers.get(resource_id, str(resource_id))
            self._say(f"  {who}: {', '.join(names)}")

    def _draw(self, snapshot: Snapshot) -> None:
        """Draw the table. On the writer's thread."""
        from penstock.hosting.program.progress_table import JobTable, TableWriter

        if self._table_writer is None:
            self._table_writer = TableWriter(self._stream)
        live_terminal(self._stream).show(self, JobTable(self._table_writer, snapshot).lines)

    def _moment(self) -> Moment:
        return Moment(time.monotonic() - self._started, wall_ms())

    def _say(self, text: str) -> None:
        self._writer.put(sys.stderr, f"penstock: {text}\n")


def _headline(failure: FailureInfo | None) -> str:
    """Return the error's own line of a traceback."""
    if failure is None:
        return "unknown cause"
    return cut(headline_of(failure.text, failure.kind), _MOST_OF_HEADLINE)


def say(text: str) -> None:
    """Write a line to stderr, where there is no Console yet. Returns when the line is written.

    In one piece: `print` writes a line's end apart, and another thread's line may come between.
    """
    print(f"penstock: {text}\n", end="", file=sys.stderr, flush=True)
