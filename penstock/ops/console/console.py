"""What the driver's console shows of a job: a few lines on stderr, and its progress.

stdout belongs to print sinks and to the user. The progress is one line in 10 s, or a live view for who asks for it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from penstock.engine.hosting.jobmanager.driver_streams import write_text
from penstock.engine.hosting.observer import EngineFailed, JobEnded, JobObserver, JobTick, JobView
from penstock.engine.hosting.os.clock import monotonic_ms
from penstock.engine.hosting.os.file_systems import parted
from penstock.engine.hosting.os.waiting import Given, owe
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.reporting.logs.lines import Folding, Repeats
from penstock.engine.hosting.reporting.say import say
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.auto_parallelism import UNDECIDED
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.job_events import (
    JobSubmitted,
    SlotsMissing,
    TaskManagerLost,
    TaskManagerStarved,
)
from penstock.engine.model.messages import (
    CheckpointEnded,
    FailureInfo,
    GraphReplaced,
    JobStatusChanged,
    LogEvent,
    LogEvents,
    RegisterTaskManager,
    ResetSubtasks,
    StartTaskManager,
    TaskManagersLeaving,
    UserOutput,
)
from penstock.engine.model.options.scheduling import ConsoleOptions
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.amounts import counted
from penstock.engine.model.texts.bounded_text import cut, printable
from penstock.engine.model.texts.error_text import headline_of, traceback_of
from penstock.ops.console.live_view import LIVE_VIEW, is_live
from penstock.ops.console.progress import line_of, snapshot_of
from penstock.ops.registry.job_registry import Look

# ---------------------------------------------------------------------- line writer
# LineWriter: writes to the console on a thread of its own, so that a slow console never delays
# the JobManager.
#
# It is bounded. What does not fit is dropped, and the number of dropped messages is printed at
# the end.


_WAITING_MAX: Final = 10_000
_CLOSE_TIMEOUT_S: Final = 5.0


class LineWriter:
    """Writes lines on a thread of its own. `put` returns at once; `close` waits a bounded time for the console."""

    def __init__(self) -> None:
        self._worker = WorkerThreads("penstock-console", capacity=_WAITING_MAX)
        self._dropped = 0

    def put(self, stream: TextIO, text: str) -> None:
        if not self._worker.put(lambda: _write(stream, text)):
            self._dropped += 1

    def call(self, action: Callable[[], object], *, is_optional: bool = False) -> None:
        """Do this after what was put before. `is_optional`: leave it out if the console is too slow."""
        self._worker.put(action, overdraws=not is_optional)

    def close(self) -> None:
        if self._dropped:
            text = (
                f"penstock: {self._dropped} messages were dropped because the console is too slow\n"
            )
            self._worker.put(lambda: _write(sys.stderr, text), overdraws=True)
        self._worker.close(_CLOSE_TIMEOUT_S)


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # A closed console is no error.
        write_text(stream, text)


# ---------------------------------------------------------------------- log lines
# Lines of tasks' logs as the console shows them: each once, repeats in one line.
#
#     10:11:12 WARNING my.module [Map 3]: no price for 'EUR'
#     10:11:22 WARNING my.module [Map 1, 2, 3]: no price for 'CHF' ... 41 more times


_MOST_SUBTASKS: Final = 8


def first_line(event: LogEvent) -> str:
    """Return the line of an event that is shown for the first time, without a line feed."""
    subtasks = () if event.attempt_id is None else (event.attempt_id.subtask,)
    return f"{_head(event, subtasks)}: {event.text}"


def repeated_line(repeats: Repeats) -> str:
    """Return the line that says how often an event has repeated, with the newest one as example."""
    example = repeats.event.text.split("\n", 1)[0]
    times = "once more" if repeats.times == 1 else f"{repeats.times:,} more times"
    return f"{_head(repeats.event, repeats.subtasks)}: {example} ... {times}"


def _head(event: LogEvent, subtasks: Sequence[int]) -> str:
    at = dt.datetime.fromtimestamp(event.at_ms / 1000).astimezone().strftime("%H:%M:%S")
    return f"{at} {event.level_name} {event.logger}{_who(event.operator, subtasks)}"


def _who(operator: str, subtasks: Sequence[int]) -> str:
    """Return operator and subtasks, counted from 1; "": a thread of no task."""
    if not subtasks:
        return ""
    shown = ", ".join(str(one + 1) for one in subtasks[:_MOST_SUBTASKS])
    more = ", .." if len(subtasks) > _MOST_SUBTASKS else ""
    return f" [{f'{operator} ' if operator else ''}{shown}{more}]"


# ---------------------------------------------------------------------- console


_MOST_OF_HEADLINE: Final = 2000
_FOLDED_MS: Final = 10_000
_STARTS_LONG_S: Final = 2.0
_IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"


def _way_there(address: str) -> str:
    """A pod's loopback is nobody else's."""
    found = urllib.parse.urlsplit(address)
    if _IN_A_POD not in os.environ or found.hostname != "localhost":
        return ""
    return f" after `kubectl port-forward {socket.gethostname()} {found.port}`"


class Console(JobObserver):
    """Calls come from the JobManager's loop and return at once."""

    def __init__(self, settings: Settings, look: Look, address: str | None = None) -> None:
        """`look`: at the job as it is now. `address`: of the REST server; None: there is none."""
        self._look = look
        self._address = address
        self._shows_progress = settings.get(ConsoleOptions.PROGRESS)
        self._writer = LineWriter()
        self._is_live = (
            self._shows_progress and settings.get(ConsoleOptions.LIVE) and is_live(sys.stderr)
        )
        self._shows_places = self._shows_progress and (
            self._is_live or settings.is_set(ConsoleOptions.PROGRESS)
        )
        interval = (
            ConsoleOptions.PROGRESS_INTERVAL if self._is_live else ConsoleOptions.LINE_INTERVAL
        )
        self._interval_s = settings.get(interval) / 1000
        self._started = time.monotonic()
        self._next_progress_s = self._interval_s
        self._job = ("", JobId(""))
        self._taskmanagers: dict[ResourceId, str] = {}
        self._starting = 0
        self._folding = Folding(_FOLDED_MS, grows=True)

    def on_job_submitted(self, event: JobSubmitted) -> None:
        job_graph = event.job_graph
        self._job = job_graph.name, job_graph.job_id
        known = [vertex.parallelism for vertex in job_graph.vertices.values()]
        subtasks = sum(parallelism for parallelism in known if parallelism != UNDECIDED)
        more = ", others decided by the data" if UNDECIDED in known else ""
        seen = "" if self._address is None else f"; see {self._address}{_way_there(self._address)}"
        text = f"job '{job_graph.name}': {len(known)} vertices, {subtasks} subtasks{more}{seen}"
        self._say(text)
        if event.ignored_keys:
            self._say(f"accepted but without effect here: {', '.join(event.ignored_keys)}")

    def on_start_task_manager(self, _order: StartTaskManager) -> None:
        self._starting += 1

    def on_register_task_manager(self, message: RegisterTaskManager) -> None:
        place = f"{message.resource_id} (process {message.pid} on {message.host})"
        self._taskmanagers[message.resource_id] = place

    def on_task_manager_starved(self, event: TaskManagerStarved) -> None:
        self._say(f"TaskManager {event.resource_id} is silent: {event.cause}")

    def on_task_manager_lost(self, event: TaskManagerLost) -> None:
        self._say(f"lost TaskManager {event.resource_id}: {event.cause}")

    def on_task_managers_leaving(self, event: TaskManagersLeaving) -> None:
        self._say(f"TaskManager {', '.join(event.resource_ids)} leaves: {event.cause}")

    def on_slots_missing(self, missing: SlotsMissing) -> None:
        """Print missing slots. The ResourceManager reports them after 10 s, then every 30 s."""
        self._say(
            f"waiting for slots: {missing.wanted} wanted, {missing.available} available: "
            f"{missing.reason}"
        )

    def on_job_status_changed(self, change: JobStatusChanged) -> None:
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

    def on_reset_subtasks(self, reset: ResetSubtasks) -> None:
        self._say_that_it_restarts(len(reset.vertices), reset.checkpoint_id)

    def on_graph_replaced(self, replaced: GraphReplaced) -> None:
        if replaced.is_first:
            return
        parallelism = parallelism_of(replaced.job_graph)
        subtasks = sum(parallelism.values())
        if replaced.is_planned:
            kept = sum(one.vertex_id in replaced.kept for one in replaced.former)
            unstopped = f"; {kept} of them did not stop" if kept else ""
            if Counter(one.vertex_id for one in replaced.former) == parallelism:
                change = f"moved {subtasks} subtasks to other slots"
            else:
                change = f"rescaled from {len(replaced.former)} to {subtasks} subtasks"
            self._say(f"{change}{unstopped}")
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

    def on_checkpoint_ended(self, ended: CheckpointEnded) -> None:
        """Print a failed checkpoint, unless a restart, a newer checkpoint or the end of the job made it pointless."""
        if ended.reason is None or ended.is_given_up:
            return
        what = "savepoint" if ended.checkpoint_type.is_savepoint else "checkpoint"
        text = ended.text.splitlines()[-1] if ended.text else ""
        self._say(f"{what} {ended.checkpoint_id} failed ({ended.reason}): {text}")

    def on_user_output(self, output: UserOutput) -> None:
        who = ""
        if output.attempt_id is not None:
            who = f"[{output.operator} {output.attempt_id.subtask + 1}] "
        stream = sys.stderr if output.is_error else sys.stdout
        text = "\n".join(who + line for line in output.text.split("\n"))
        self._writer.put(stream, text + "\n")

    def on_log_events(self, events: LogEvents) -> None:
        """Show warnings and errors of functions. What repeats is counted, and shown less and less often."""
        now_ms = monotonic_ms()
        for event in events.events:
            if self._folding.take(event, now_ms):
                self._put(first_line(event))
        self._folding.left_out += events.left_out

    def _show_repeats(self, *, is_all: bool = False) -> None:
        for repeats in self._folding.due(monotonic_ms(), is_all=is_all):
            self._put(repeated_line(repeats))
        left_out, self._folding.left_out = self._folding.left_out, 0
        if left_out:
            self._say(f"{left_out:,} further warnings and errors are in the TaskManagers' logs")

    def on_engine_failed(self, event: EngineFailed) -> None:
        self._say(traceback_of(event.error))

    def on_job_tick(self, _event: JobTick) -> None:
        since_start_s = time.monotonic() - self._started
        self._show_repeats()
        if self._starting and not self._taskmanagers and since_start_s >= _STARTS_LONG_S:
            self._say(f"starting {counted(self._starting, 'TaskManager')}")
            self._starting = 0
        if self._shows_progress and since_start_s >= self._next_progress_s:
            self._next_progress_s = since_start_s + self._interval_s
            self._writer.call(self._show_progress, is_optional=True)

    def _show_progress(self) -> None:
        """On the thread that writes: to look at a job may take some time."""
        snapshot = snapshot_of(self._look())
        if self._is_live:
            LIVE_VIEW.show(self, snapshot)
        else:
            _write(sys.stderr, f"penstock: {line_of(snapshot)}\n")

    def on_job_ended(self, event: JobEnded) -> None:
        status, job = event.status, event.job
        self._show_repeats(is_all=True)
        if self._is_live:
            self._writer.call(lambda: LIVE_VIEW.remove(self))
        if self._shows_places:
            self._show_places(status, job)
        if status is not JobStatus.FINISHED and job.kept_checkpoint is not None:
            folder, _ = parted(job.kept_checkpoint)
            self._say(
                f"job {status}; its newest checkpoint is kept: {folder}. Begin with it by "
                "penstock run --from-savepoint, or execution.state-recovery.path."
            )
        self._writer.close()

    def _show_places(self, status: JobStatus, job: JobView) -> None:
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

    def _say(self, text: str) -> None:
        self._put(f"penstock: {text}")

    def _put(self, line: str) -> None:
        self._writer.put(sys.stderr, printable(f"{line}\n"))


def _headline(failure: FailureInfo | None) -> str:
    """Return the error's own line of a traceback."""
    if failure is None:
        return "unknown cause"
    return cut(headline_of(failure.text, failure.kind), _MOST_OF_HEADLINE)
