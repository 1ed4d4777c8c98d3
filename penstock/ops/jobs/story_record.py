"""What happened to a job, in order: a bounded list of the events that change its course.

States of single attempts are not here: the attempts know them. Periodic checkpoints that complete one after the other are one
entry. Source: Flink's job events (JobEventManager) and the timelines of its dashboard.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from penstock.engine.model.elastic import Rescales
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.job_events import CheckpointRestored, TaskManagerLost
from penstock.engine.model.messages import (
    CheckpointEnded,
    JobStatusChanged,
    RegisterTaskManager,
    ResetSubtasks,
    TaskManagersLeaving,
)
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.amounts import counted
from penstock.ops.jobs.lane import NO_LANE, Lane, LaneRecord

MOST_EVENTS: Final = 1000
STORIED: Final = frozenset({
    CheckpointEnded, CheckpointRestored, JobStatusChanged, RegisterTaskManager, ResetSubtasks,
    TaskManagerLost, TaskManagersLeaving,
})  # fmt: skip
"""The kinds of events that are part of the story."""


class StoryKind(StrEnum):
    """What an entry is about."""

    STATUS = "status"
    TASKMANAGER = "taskmanager"
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    CHECKPOINT_FAILED = "checkpoint-failed"
    RESTORE = "restore"
    RESTART = "restart"
    RESCALE = "rescale"
    FAILURE = "failure"
    VERTEX = "vertex"
    SUBTASK = "subtask"


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """An entry of a job's story.

    `at_ms`: epoch milliseconds. `checkpoints`: the first and the last one of completed checkpoints in a row. `taskmanager`: the one
    whose loss is the cause.
    """

    at_ms: int
    kind: StoryKind
    text: str
    checkpoints: tuple[int, int] | None = None
    taskmanager: ResourceId | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """The story of one job.

    `events`: oldest first. `forgotten_kinds`: how many older ones there were of each kind. `statuses`: those of the job over time.

    `rescales` None: nobody has asked to rescale the job.
    """

    events: tuple[StoryEvent, ...] = ()
    forgotten_kinds: Mapping[StoryKind, int] = field(default_factory=dict)
    statuses: Lane = NO_LANE
    rescales: Rescales | None = None

    @property
    def forgotten(self) -> int:
        return sum(self.forgotten_kinds.values())


NO_STORY: Final = Story()


class StoryRecord:
    """The newest events, and how many older ones are forgotten. `rescales`: what is known of the job's rescales now."""

    def __init__(self, submitted_ms: int) -> None:
        self._forgotten: Counter[StoryKind] = Counter()
        self._statuses = LaneRecord()
        self._statuses.enter(str(JobStatus.INITIALIZING), submitted_ms)
        self._events: deque[StoryEvent] = deque(maxlen=MOST_EVENTS)
        self.rescales: Rescales | None = None

    def apply(self, event: Any, at_ms: int) -> None:
        """Take one event of the job; most kinds are no part of its story."""
        found = _event_of(event, at_ms)
        if found is None:
            return
        if isinstance(event, JobStatusChanged):
            self._statuses.enter(str(event.status), at_ms)
        last = self._events[-1] if self._events else None
        if found.checkpoints and last is not None and last.checkpoints:
            self._events[-1] = _together(last, found)
            return
        self.add(found)

    def add(self, found: StoryEvent) -> None:
        if len(self._events) == MOST_EVENTS:
            self._forgotten[self._events[0].kind] += 1
        self._events.append(found)

    def story(self) -> Story:
        """Return what has happened."""
        events, statuses = tuple(self._events), self._statuses.lane()
        return Story(events, dict(self._forgotten), statuses, self.rescales)


def _event_of(event: Any, at_ms: int) -> StoryEvent | None:
    if isinstance(event, CheckpointEnded):
        return _checkpoint(event, at_ms)
    if isinstance(event, JobStatusChanged):
        lost = None if event.failure is None else event.failure.lost_task_manager
        cause = "" if lost is None else f" because TaskManager {lost} is lost"
        text = f"the job is {event.status}{cause}"
        return StoryEvent(at_ms, StoryKind.STATUS, text, taskmanager=lost)
    plain = _plain(event)
    return None if plain is None else StoryEvent(at_ms, *plain)


def _plain(event: Any) -> tuple[StoryKind, str] | None:
    match event:
        case RegisterTaskManager():
            slots = counted(event.slots, "slot")
            text = f"TaskManager {event.resource_id} on {event.host} comes with {slots}"
            return StoryKind.TASKMANAGER, text
        case TaskManagerLost():
            return StoryKind.TASKMANAGER, f"TaskManager {event.resource_id} is gone: {event.cause}"
        case TaskManagersLeaving(names, cause):
            return StoryKind.TASKMANAGER, f"TaskManager {', '.join(names)} leaves: {cause}"
        case ResetSubtasks():
            count, place = counted(len(event.vertices), "subtask"), place_of(event.checkpoint_id)
            return StoryKind.RESTART, f"{count} restart from {place}"
        case CheckpointRestored():
            place = "" if event.location is None else f" at {event.location}"
            text = f"state is restored from checkpoint {event.checkpoint_id}{place}"
            return StoryKind.RESTORE, text
    return None


def place_of(checkpoint_id: int | None) -> str:
    """Return in words where subtasks begin. None: anew."""
    return "the beginning" if checkpoint_id is None else f"checkpoint {checkpoint_id}"


def _checkpoint(event: CheckpointEnded, at_ms: int) -> StoryEvent:
    number, is_savepoint = event.checkpoint_id, event.checkpoint_type.is_savepoint
    what = "savepoint" if is_savepoint else "checkpoint"
    if event.is_given_up:
        text = f"{what} {number} was given up: {event.text}"
        return StoryEvent(at_ms, StoryKind.CHECKPOINT, text)
    if event.location is None:
        text = f"{what} {number} failed ({event.reason}): {event.text}".rstrip(": ")
        return StoryEvent(at_ms, StoryKind.CHECKPOINT_FAILED, text)
    if is_savepoint:
        text = f"savepoint {number} is complete at {event.location}"
        return StoryEvent(at_ms, StoryKind.SAVEPOINT, text)
    return StoryEvent(
        at_ms, StoryKind.CHECKPOINT, f"checkpoint {number} is complete", (number, number)
    )


def _together(last: StoryEvent, found: StoryEvent) -> StoryEvent:
    assert last.checkpoints is not None
    assert found.checkpoints is not None
    first, newest = last.checkpoints[0], found.checkpoints[1]
    text = f"checkpoints {first} to {newest} are complete"
    return replace(last, text=text, checkpoints=(first, newest))
