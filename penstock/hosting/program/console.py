"""What the driver's console shows of a job: a few lines on stderr, and live progress.

stdout belongs to print sinks and to the user. On a terminal the progress block is redrawn in place;
elsewhere one line is printed per interval.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Final

from penstock.hosting.observer import JobObserver
from penstock.hosting.program.line_writer import LineWriter
from penstock.machines.job.job_master import JobMaster
from penstock.model.bounded_text import cut
from penstock.model.config import Settings
from penstock.model.error_text import traceback_of
from penstock.model.graph.auto_parallelism import UNDECIDED
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import ResourceId
from penstock.model.messages import (
    CheckpointEnded,
    FailureInfo,
    JobStatusChanged,
    RegisterTaskManager,
    ResetSubtasks,
    ResourcesMissing,
    UserOutput,
    VertexProgress,
)
from penstock.model.messages.checkpoints import CheckpointFailureReason as Reason
from penstock.model.options.scheduling import ConsoleOptions
from penstock.model.states import JobStatus

_EXPECTED: Final = frozenset({
    Reason.PERIODIC_SCHEDULER_SHUTDOWN,
    Reason.COORDINATOR_SUSPEND,
    Reason.COORDINATOR_SHUTDOWN,
    Reason.CHECKPOINT_SUBSUMED,
    Reason.TASK_CLOSING,
})
_NAME_WIDTH: Final = 44
_MOST_OF_HEADLINE: Final = 2000
_UP: Final = "\x1b[{}A\x1b[J"


class Console(JobObserver):
    """Calls come from the JobManager's loop and return at once."""

    def __init__(self, settings: Settings) -> None:
        wants = settings.get(ConsoleOptions.PROGRESS)
        is_asked_for = settings.is_set(ConsoleOptions.PROGRESS)
        self._writer = LineWriter()
        self._is_terminal = sys.stderr.isatty()
        self._shows_progress = wants and (self._is_terminal or is_asked_for)
        self._interval_s = settings.get(ConsoleOptions.PROGRESS_INTERVAL) / 1000
        self._started = time.monotonic()
        self._next_progress = self._started + self._interval_s
        self._last_records = 0
        self._last_at = self._started
        self._drawn_lines = 0
        self._taskmanagers: dict[ResourceId, str] = {}

    def submitted(self, job_graph: JobGraph, ignored_keys: list[str]) -> None:
        known = [vertex.parallelism for vertex in job_graph.vertices.values()]
        subtasks = sum(parallelism for parallelism in known if parallelism != UNDECIDED)
        more = ", others decided by the data" if UNDECIDED in known else ""
        self._say(f"job '{job_graph.name}': {len(known)} vertices, {subtasks} subtasks{more}")
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
        if change.status is JobStatus.RUNNING or change.status.is_terminal:
            self._erase()
        if change.status is JobStatus.RESTARTING:
            self._say(f"restarting after: {_headline(change.failure)}")
        elif change.status is JobStatus.FAILED:
            self._say(f"job FAILED: {_headline(change.failure)}")

    def restarting(self, reset: ResetSubtasks) -> None:
        if reset.checkpoint_id is None:
            place = "from the start of their sources, because no checkpoint is complete"
        else:
            place = f"from checkpoint {reset.checkpoint_id}"
        self._say(
            f"restarted subtasks: {len(reset.vertices)}, {place}; what they printed since "
            "then may be printed again"
        )

    def checkpoint_ended(self, ended: CheckpointEnded) -> None:
        """Print a failed checkpoint, unless a restart, a newer checkpoint or the end of the job made it pointless."""
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

    def engine_failed(self, error: BaseException) -> None:
        self._say(traceback_of(error))

    def tick(self, job_master: JobMaster) -> None:
        now = time.monotonic()
        if not self._shows_progress or now < self._next_progress:
            return
        self._next_progress = now + self._interval_s
        self._draw(job_master.progress(), str(job_master.status), now)

    def job_ended(self, status: JobStatus, job_master: JobMaster) -> None:
        self._erase()
        if self._shows_progress:
            self._tell_places(status, job_master)
        self._writer.close()

    def _tell_places(self, status: JobStatus, job_master: JobMaster) -> None:
        self._say(f"job {status} after {time.monotonic() - self._started:.1f} s; it ran on")
        tasks: dict[ResourceId, list[str]] = {}
        for place in job_master.where_tasks_ran():
            if place.location is not None:
                task = f"{place.vertex_name} [{place.subtask + 1}]"
                tasks.setdefault(place.location.resource_id, []).append(task)
        for resource_id, names in tasks.items():
            who = self._taskmanagers.get(resource_id, str(resource_id))
            self._say(f"  {who}: {', '.join(names)}")

    # ------------------------------------------------------------------ drawing

    def _draw(self, vertices: list[VertexProgress], status: str, now: float) -> None:
        records = sum(vertex.records_in for vertex in vertices)
        rate = max(0, records - self._last_records) / max(1e-9, now - self._last_at)
        self._last_records, self._last_at = records, now
        head = f"{now - self._started:6.1f} s  {status}  {rate:,.0f} records/s in all vertices"
        lines = [head, *(_vertex_line(vertex) for vertex in vertices)]
        self._erase()
        if self._is_terminal:
            self._writer.put(sys.stderr, "\n".join(lines) + "\n")
            self._drawn_lines = len(lines)
        else:
            text = " | ".join(line.strip() for line in lines)
            self._writer.put(sys.stderr, f"penstock: {text}\n")

    def _erase(self) -> None:
        if self._drawn_lines:
            self._writer.put(sys.stderr, _UP.format(self._drawn_lines))
            self._drawn_lines = 0

    def _say(self, text: str) -> None:
        self._erase()
        self._writer.put(sys.stderr, f"penstock: {text}\n")


def _vertex_line(vertex: VertexProgress) -> str:
    states = " ".join(
        f"{count} {state}" for state, count in Counter(vertex.states).items() if count
    )
    name = vertex.name if len(vertex.name) <= _NAME_WIDTH else vertex.name[: _NAME_WIDTH - 1] + "…"
    return (
        f"         {name:<{_NAME_WIDTH}} {states:<18} in {vertex.records_in:>13,}  "
        f"out {vertex.records_out:>13,}"
    )


def _headline(failure: FailureInfo | None) -> str:
    """Return the error's own line of a traceback."""
    if failure is None:
        return "unknown cause"
    lines = [line for line in failure.text.splitlines() if line and not line.startswith(" ")]
    errors = [line for line in lines if not line.startswith("Traceback")]
    return cut(errors[-1], _MOST_OF_HEADLINE) if errors else failure.kind


def say(text: str) -> None:
    """Write a line to stderr, where there is no Console yet. Returns when the line is written."""
    print(f"penstock: {text}", file=sys.stderr, flush=True)
