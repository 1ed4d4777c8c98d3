"""Record of one job: takes its events in order, and gives a snapshot at any time.

Knows no clock and no thread: each event comes with its time. One thread calls it. What has not changed since the last
snapshot is the same object in the next one. Source: Flink ArchivedExecutionGraph, which Flink copies from the ExecutionGraph.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.engine.hosting.network.wire.counters import decode_counters
from penstock.engine.model.elastic import Rescales
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.job_events import (
    CheckpointRestored,
    SlotsMissing,
    TaskDeployed,
    TaskManagerLost,
)
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointEnded,
    ExecutionStateChanged,
    Heartbeat,
    JobStatusChanged,
    RegisterTaskManager,
    ResetSubtasks,
    TaskIo,
    TaskIoReported,
    TaskManagersLeaving,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.engine.model.texts.amounts import counted
from penstock.ops.jobs.checkpoint_record import CheckpointRecord
from penstock.ops.jobs.failure_record import FailureRecord, FailuresSeen
from penstock.ops.jobs.lane import VertexLane
from penstock.ops.jobs.snapshots import (
    AttemptSnapshot,
    CheckpointSnapshot,
    FormerAttempt,
    JobFacts,
    JobSnapshot,
    TaskManagerSnapshot,
    VertexFacts,
    VertexSnapshot,
    VerticesReplaced,
)
from penstock.ops.jobs.story_record import STORIED, StoryEvent, StoryKind, StoryRecord, place_of

_LOG: Final = logging.getLogger(__name__)
_FORMER_ATTEMPTS: Final = 16
"""How many earlier attempts of a subtask are kept, as `jobmanager.execution.attempts-history-size`."""
_LOST_TASKMANAGERS: Final = 100


class JobRecord:
    """One job."""

    def __init__(self, facts: JobFacts) -> None:
        since = {JobStatus.INITIALIZING: facts.submitted_ms}
        self._job = JobSnapshot(facts, JobStatus.INITIALIZING, since)
        self._changed_ms = facts.submitted_ms
        self._vertices = {one.vertex_id: _VertexRecord(one, facts) for one in facts.vertices}
        self._checkpoints = CheckpointRecord(facts.history_size)
        self._failures = FailureRecord()
        self._taskmanagers: dict[ResourceId, TaskManagerSnapshot] = {}
        self._story = StoryRecord(facts.submitted_ms)

    @property
    def facts(self) -> JobFacts:
        return self._job.facts

    def apply(self, event: Any, at_ms: int) -> None:
        """Take one event. `at_ms`: epoch milliseconds. Events of unknown kinds change nothing."""
        take = _TAKEN.get(type(event))
        # The end is reported twice: as it happens, and when everything is cleaned up.
        if take is None or (
            isinstance(event, JobStatusChanged) and event.status is self._job.status
        ):
            return
        if type(event) in STORIED:
            self._story.apply(event, at_ms)
        take(self, event, at_ms)

    def snapshot(self, now_ms: int) -> JobSnapshot:
        return replace(
            self._job,
            vertices=tuple(one.snapshot() for one in self._vertices.values()),
            checkpoints=self._checkpoints.snapshot(),
            failures=self._failures.entries,
            taskmanagers=tuple(self._taskmanagers.values()),
            now_ms=now_ms,
            changed_ms=self._changed_ms,
            story=self._story.story(),
            failure_groups=self._failures.groups(),
        )

    def ended_checkpoint(self, checkpoint_id: int) -> CheckpointSnapshot | None:
        """Return a checkpoint that has ended, if it is remembered."""
        return self._checkpoints.snapshot().of(checkpoint_id)

    def io_of(self, subtask: ExecutionVertexId) -> TaskIo | None:
        """Return what the current attempt of a subtask reported last; None: nothing yet."""
        vertex = self._vertices.get(subtask.vertex_id)
        return None if vertex is None else vertex.io_of(subtask.subtask)

    def _status_changed(self, event: JobStatusChanged, at_ms: int) -> None:
        job = self._job
        self._changed_ms = at_ms
        self._job = replace(
            job,
            status=event.status,
            timestamps={**job.timestamps, event.status: at_ms},
            failure=event.failure or job.failure,
            restarts=job.restarts + (event.status is JobStatus.RESTARTING),
            ended_ms=at_ms if event.status.is_terminal else job.ended_ms,
        )

    def _execution_changed(self, event: ExecutionStateChanged, at_ms: int) -> None:
        self._changed_ms = at_ms
        vertex = self._vertices.get(event.attempt_id.vertex_id)
        if vertex is not None:
            vertex.moved(event, at_ms)

    def _deployed(self, event: TaskDeployed, _at_ms: int) -> None:
        vertex = self._vertices.get(event.attempt_id.vertex_id)
        if vertex is not None:
            vertex.deployed(event)

    def _reset(self, event: ResetSubtasks, at_ms: int) -> None:
        for execution_vertex_id in event.vertices:
            vertex = self._vertices.get(execution_vertex_id.vertex_id)
            if vertex is not None:
                vertex.reset(execution_vertex_id.subtask, at_ms)

    def _replaced(self, event: VerticesReplaced, at_ms: int) -> None:
        """All subtasks are new, and there may be more or less of them, but those of vertices that run on."""
        former = {key: one.parallelism for key, one in self._vertices.items()}
        changed = {
            one.name: (former[one.vertex_id], one.parallelism)
            for one in event.vertices
            if former[one.vertex_id] != one.parallelism
        }
        found = _story_of(event, changed, at_ms)
        if found is not None:
            self._story.add(found)
        self._job = replace(self._job, facts=replace(self.facts, vertices=event.vertices))
        self._changed_ms = at_ms
        for facts in event.vertices:
            vertex = self._vertices.get(facts.vertex_id)
            if vertex is not None and facts.vertex_id not in event.kept:
                vertex.become(facts, event.attempt, at_ms)

    def _io_reported(self, event: TaskIoReported, _at_ms: int) -> None:
        for one, io in event.ios:
            self._note_io(one.vertex_id, one.subtask, one.attempt, io)

    def _note_io(self, vertex_id: VertexId, subtask: int, attempt: int, io: TaskIo) -> None:
        vertex = self._vertices.get(vertex_id)
        if vertex is not None:
            vertex.reported(subtask, attempt, io)

    def _triggered(self, event: TriggerCheckpoint, at_ms: int) -> None:
        ended = {key: one.ended for key, one in self._vertices.items()}
        subtasks = {key: one.parallelism - len(ended[key]) for key, one in self._vertices.items()}
        self._checkpoints.triggered(event, at_ms, subtasks, ended)

    def _registered(self, event: RegisterTaskManager, at_ms: int) -> None:
        known = TaskManagerSnapshot(event.resource_id, event, at_ms, at_ms)
        self._taskmanagers[event.resource_id] = known
        lost = [key for key, one in self._taskmanagers.items() if one.lost is not None]
        for key in lost[:-_LOST_TASKMANAGERS]:
            del self._taskmanagers[key]

    def _heard(self, event: Heartbeat, at_ms: int) -> None:
        known = self._taskmanagers.get(event.resource_id)
        if known is not None:
            self._taskmanagers[event.resource_id] = replace(known, heard_ms=at_ms)
        if event.ios:
            try:
                for one in decode_counters(event.ios):
                    self._note_io(*one)
            except Exception as error:  # Of a TaskManager that does not speak as ours do.
                _LOG.warning("taskmanager=%s SENDS_NO_COUNTERS cause=%s", event.resource_id, error)

    def _lost(self, event: TaskManagerLost, _at_ms: int) -> None:
        known = self._taskmanagers.get(event.resource_id)
        if known is not None:
            self._taskmanagers[event.resource_id] = replace(known, lost=event.cause)

    def _leaving(self, _event: TaskManagersLeaving, at_ms: int) -> None:
        self._changed_ms = at_ms

    def _slots_missing(self, event: SlotsMissing, _at_ms: int) -> None:
        self._job = replace(self._job, missing_slots=event)

    def _rescales_changed(self, event: Rescales, at_ms: int) -> None:
        self._story.rescales = event
        self._changed_ms = at_ms

    def _failed(self, event: FailuresSeen, at_ms: int) -> None:
        self._failures.apply(event)
        self._changed_ms = at_ms


def _story_of(
    event: VerticesReplaced, subtasks: Mapping[str, tuple[int, int]], at_ms: int
) -> StoryEvent | None:
    """Return the entry of a generation that begins. `subtasks`: before and after, of the vertices that have more or less of them, by name.

    None: it is the first one, and has what it asked for.
    """
    changes = [f"'{name}' from {one} to {other}" for name, (one, other) in subtasks.items()]
    what, place = ", ".join(changes), place_of(event.checkpoint_id)
    if event.is_first:
        text = f"the job begins with the slots that there are: {what} subtasks"
        return StoryEvent(at_ms, StoryKind.STATUS, text) if changes else None
    if not event.is_planned:
        count = counted(sum(one.parallelism for one in event.vertices), "subtask")
        more = f": {what} subtasks" if changes else ""
        return StoryEvent(at_ms, StoryKind.RESTART, f"{count} restart from {place}{more}")
    kept = [repr(one.name) for one in event.vertices if one.vertex_id in event.kept]
    text = f"the job moves to other slots at {place}"
    if changes:
        text = f"the job is rescaled at {place}: {what} subtasks"
    unstopped = f"; not stopped: {', '.join(kept)}" if kept else ""
    return StoryEvent(at_ms, StoryKind.RESCALE, text + unstopped)


class _VertexRecord:
    """One vertex. Its snapshot is made anew only after a change."""

    def __init__(self, facts: VertexFacts, job: JobFacts) -> None:
        self._facts = facts
        self._began_ms = job.submitted_ms
        self._attempts: list[AttemptSnapshot] = []
        self._ios: list[TaskIo | None] = []
        self._former: dict[int, deque[FormerAttempt]] = {}
        self._snapshot: VertexSnapshot | None = None
        self._lane = VertexLane()
        while len(self._attempts) < facts.parallelism:
            self._append(0, self._began_ms)

    @property
    def parallelism(self) -> int:
        return len(self._attempts)

    @property
    def ended(self) -> frozenset[int]:
        return frozenset(one.subtask for one in self._attempts if one.state.is_terminal)

    def moved(self, event: ExecutionStateChanged, at_ms: int) -> None:
        known = self._current(event.attempt_id, at_ms)
        if known is not None:
            since = (*known.since, (event.new, at_ms))
            cause = event.cause or known.cause
            self._put(replace(known, state=event.new, since=since, cause=cause))

    def deployed(self, event: TaskDeployed) -> None:
        known = self._current(event.attempt_id, self._began_ms)
        if known is not None:
            self._put(replace(known, location=event.location, allocation_id=event.allocation_id))

    def reset(self, subtask: int, at_ms: int) -> None:
        """A new attempt takes the place of the current one, unless that has not been used."""
        if subtask < len(self._attempts):
            known = self._attempts[subtask]
            if known.state is not ExecutionState.CREATED:
                self._replace(known.subtask, known.attempt + 1, at_ms)

    def become(self, facts: VertexFacts, attempt: int, at_ms: int) -> None:
        """Its subtasks begin anew, with this number of the attempt, and are as many as the facts say."""
        self._facts = facts
        for one in self._attempts[facts.parallelism :]:
            self._lane.moved(one.state, None, at_ms)
        del self._attempts[facts.parallelism :]
        del self._ios[facts.parallelism :]
        for subtask in range(len(self._attempts)):
            self._replace(subtask, attempt, at_ms)
        while len(self._attempts) < facts.parallelism:
            self._append(attempt, at_ms)
        self._snapshot = None

    def io_of(self, subtask: int) -> TaskIo | None:
        return self._ios[subtask] if subtask < len(self._ios) else None

    def reported(self, subtask: int, attempt: int, io: TaskIo) -> None:
        if subtask < len(self._attempts) and self._attempts[subtask].attempt == attempt:
            self._ios[subtask] = io
            self._snapshot = None

    def snapshot(self) -> VertexSnapshot:
        if self._snapshot is None:
            former = {subtask: tuple(ones) for subtask, ones in self._former.items()}
            self._snapshot = VertexSnapshot(
                self._facts,
                tuple(self._attempts),
                tuple(self._ios),
                former,
                self._lane.lane(),
            )
        return self._snapshot

    def _current(self, attempt_id: AttemptId, at_ms: int) -> AttemptSnapshot | None:
        """Return the attempt; a newer one replaces the current one. None: it is a former one."""
        while attempt_id.subtask >= len(self._attempts):  # A parallelism that was decided later.
            self._append(0, self._began_ms)
            self._facts = replace(self._facts, parallelism=len(self._attempts))
        known = self._attempts[attempt_id.subtask]
        if attempt_id.attempt > known.attempt:
            self._replace(known.subtask, attempt_id.attempt, at_ms)
            known = self._attempts[attempt_id.subtask]
        return known if known.attempt == attempt_id.attempt else None

    def _replace(self, subtask: int, attempt: int, at_ms: int) -> None:
        known = self._attempts[subtask]
        if known.state is not ExecutionState.CREATED:  # What nobody has used is no attempt.
            former = self._former.setdefault(subtask, deque(maxlen=_FORMER_ATTEMPTS))
            former.append(FormerAttempt(known, self._ios[subtask]))
        self._ios[subtask] = None
        self._put(_created(subtask, attempt, at_ms))

    def _put(self, attempt: AttemptSnapshot) -> None:
        former = self._attempts[attempt.subtask]
        self._lane.moved(former.state, attempt.state, attempt.since[-1][1])
        self._attempts[attempt.subtask] = attempt
        self._snapshot = None

    def _append(self, attempt: int, at_ms: int) -> None:
        """There is one subtask more."""
        self._attempts.append(_created(len(self._attempts), attempt, at_ms))
        self._lane.moved(None, ExecutionState.CREATED, at_ms)
        self._ios.append(None)


def _created(subtask: int, attempt: int, at_ms: int) -> AttemptSnapshot:
    since = ((ExecutionState.CREATED, at_ms),)
    return AttemptSnapshot(subtask, attempt, ExecutionState.CREATED, since)


_TAKEN: Final[dict[type, Callable[[JobRecord, Any, int], None]]] = {
    JobStatusChanged: JobRecord._status_changed,
    ExecutionStateChanged: JobRecord._execution_changed,
    TaskDeployed: JobRecord._deployed,
    ResetSubtasks: JobRecord._reset,
    VerticesReplaced: JobRecord._replaced,
    TaskIoReported: JobRecord._io_reported,
    TriggerCheckpoint: JobRecord._triggered,
    AcknowledgeCheckpoint: lambda own, event, at_ms: own._checkpoints.acknowledged(event, at_ms),
    CheckpointEnded: lambda own, event, at_ms: own._checkpoints.ended(event, at_ms),
    CheckpointRestored: lambda own, event, at_ms: own._checkpoints.restored(event, at_ms),
    FailuresSeen: JobRecord._failed,
    SlotsMissing: JobRecord._slots_missing,
    Rescales: JobRecord._rescales_changed,
    RegisterTaskManager: JobRecord._registered,
    Heartbeat: JobRecord._heard,
    TaskManagerLost: JobRecord._lost,
    TaskManagersLeaving: JobRecord._leaving,
}
RECORDED: Final = frozenset(_TAKEN)
"""The kinds of events that change a record."""
