"""What is told of a job besides the messages of the control plane. Plain data.

A job's events are these, and of `model.messages`: JobStatusChanged, ExecutionStateChanged, ResetSubtasks, CheckpointEnded,
AcknowledgeCheckpoint, RegisterTaskManager and TaskIoReported.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.checkpoints import CheckpointType
from penstock.model.ids import AllocationId, AttemptId, ResourceId, TaskManagerLocation
from penstock.model.messages import FailureInfo


@dataclass(frozen=True, slots=True)
class Deployed:
    """An attempt is sent to a TaskManager."""

    attempt_id: AttemptId
    location: TaskManagerLocation
    allocation_id: AllocationId | None


@dataclass(frozen=True, slots=True)
class Triggered:
    """A checkpoint or savepoint begins."""

    checkpoint_id: int
    checkpoint_type: CheckpointType
    is_unaligned: bool


@dataclass(frozen=True, slots=True)
class Restored:
    """Attempts begin with this checkpoint. `location`: of its metadata."""

    checkpoint_id: int
    location: str | None
    is_savepoint: bool = False


@dataclass(frozen=True, slots=True)
class SlotsMissing:
    """The job waits for slots. `reason`: in words, with what the host says."""

    wanted: int
    available: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """One failure. `at_ms`: epoch milliseconds. `task`, `attempt_id` None: the job as a whole failed. `location` None: no slot yet.

    `number`: counts all failures of the job from 1. `restart`: counts the restarts of the job from 1; 0: none followed. `delay_ms`: from the
    failure to that restart.
    """

    failure: FailureInfo
    at_ms: int
    task: str | None = None
    attempt_id: AttemptId | None = None
    location: TaskManagerLocation | None = None
    number: int = 0
    restart: int = 0
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class FailuresSeen:
    """All entries of the exception history: each a failure that restarted tasks or ended the job, and those that came with it."""

    entries: tuple[tuple[FailureSeen, tuple[FailureSeen, ...]], ...]


@dataclass(frozen=True, slots=True)
class TaskManagerHeard:
    """A TaskManager has sent a sign of life."""

    resource_id: ResourceId


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """A TaskManager is gone."""

    resource_id: ResourceId
    cause: str
