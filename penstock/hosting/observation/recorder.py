"""Records what happens to one job. The job's own thread pays for one entry in a queue per event, and nothing else.

Another thread takes the entries out and folds them (`observatory.py`).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from penstock.hosting.clock import monotonic_ms, wall_ms
from penstock.hosting.observation.facts import vertices_of
from penstock.hosting.observer import JobObserver, JobView
from penstock.machines.job.exception_history import ExceptionHistory, FailureEntry, OneFailure
from penstock.model.elastic.rescales import Rescales
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AllocationId, AttemptId, ResourceId, TaskManagerLocation
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointEnded,
    ExecutionStateChanged,
    GraphReplaced,
    Heartbeat,
    JobStatusChanged,
    MetricsReport,
    RegisterTaskManager,
    ResetSubtasks,
    ResourcesMissing,
    SlowSubtasks,
    TaskIo,
    TaskIoReported,
    TriggerCheckpoint,
)
from penstock.model.states import JobStatus
from penstock.observation.jobs.events import (
    Deployed,
    FailureSeen,
    FailuresSeen,
    Restored,
    SlotsMissing,
    TaskManagerHeard,
    TaskManagerLost,
    Triggered,
)
from penstock.observation.jobs.snapshots import VerticesReplaced

MOST_WAITING: Final = 200_000
"""If the thread that takes entries out does not run, older entries are dropped rather than memory filled."""


class Recorder(JobObserver):
    """`entries`: (event, epoch milliseconds), oldest first. Its owner pops from the left, on any one thread."""

    def __init__(self) -> None:
        self.entries: deque[tuple[Any, int]] = deque(maxlen=MOST_WAITING)
        self._failures_told = 0

    def _note(self, event: Any) -> None:
        self.entries.append((event, time.time_ns() // 1_000_000))

    def taskmanager_registered(self, message: RegisterTaskManager) -> None:
        self._note(message)

    def taskmanager_lost(self, resource_id: ResourceId, cause: str) -> None:
        self._note(TaskManagerLost(resource_id, cause))

    def resources_missing(self, missing: ResourcesMissing, host: str) -> None:
        self._note(SlotsMissing(missing.wanted, missing.available, f"{missing.reason}; {host}"))

    def status_changed(self, change: JobStatusChanged) -> None:
        self._note(change)

    def execution_changed(self, change: ExecutionStateChanged, job_graph: JobGraph) -> None:
        self._note(change)

    def task_deployed(
        self, attempt_id: AttemptId, location: TaskManagerLocation, slot: AllocationId | None
    ) -> None:
        self._note(Deployed(attempt_id, location, slot))

    def heartbeat(self, message: Heartbeat) -> None:
        self._note(TaskManagerHeard(message.resource_id))
        if message.ios:
            self._note(TaskIoReported(message.ios, 0))

    def metrics_reported(self, report: MetricsReport) -> None:
        self._note(report)

    def task_reported(self, attempt_id: AttemptId, io: TaskIo) -> None:
        self._note(TaskIoReported(((attempt_id, io),), 0))

    def checkpoint_triggered(self, first: TriggerCheckpoint) -> None:
        options = first.options
        self._note(Triggered(first.checkpoint_id, options.type, options.is_unaligned))

    def checkpoint_acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        self._note(message)

    def checkpoint_restored(
        self, checkpoint_id: int, location: str | None, *, is_savepoint: bool
    ) -> None:
        self._note(Restored(checkpoint_id, location, is_savepoint))

    def checkpoint_ended(self, ended: CheckpointEnded) -> None:
        self._note(ended)

    def restarting(self, reset: ResetSubtasks) -> None:
        self._note(reset)

    def slow_subtasks(self, told: SlowSubtasks) -> None:
        self._note(told)

    def graph_replaced(self, replaced: GraphReplaced) -> None:
        facts = vertices_of(replaced.job_graph)
        first, is_planned = replaced.first_attempt, replaced.is_planned
        checkpoint_id, kept = replaced.checkpoint_id, replaced.kept
        self._note(VerticesReplaced(facts, first, is_planned, checkpoint_id, kept))

    def rescales_changed(self, rescales: Rescales) -> None:
        self._note(rescales.shifted(wall_ms() - monotonic_ms()))

    def tick(self, job: JobView) -> None:
        self._note_failures(job.exceptions)

    def job_ended(self, status: JobStatus, job: JobView) -> None:
        self._note_failures(job.exceptions)
        self._note(JobStatusChanged(status, 0))

    def _note_failures(self, history: ExceptionHistory) -> None:
        if history.changes == self._failures_told:
            return
        self._failures_told = history.changes
        offset_ms = wall_ms() - monotonic_ms()
        entries = tuple(
            (
                _seen(entry.root, entry, offset_ms),
                tuple(_seen(one, entry, offset_ms) for one in entry.concurrent),
            )
            for entry in history
        )
        self._note(FailuresSeen(entries))


def _seen(one: OneFailure, entry: FailureEntry, offset_ms: int) -> FailureSeen:
    return FailureSeen(
        one.failure,
        one.at_ms + offset_ms,
        one.task,
        one.attempt_id,
        one.location,
        one.number,
        entry.restart,
        entry.delay_ms,
    )
