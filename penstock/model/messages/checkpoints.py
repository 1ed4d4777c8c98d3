"""Checkpoints between JobMaster, tasks, coordinators of operators, and storage. Plain data.

Source: Flink's CheckpointCoordinatorGateway, TaskExecutorGateway, CheckpointFailureReason
(docs/spec/checkpoints.md#coordinator). Differs: writing a completed checkpoint, and asking the
coordinators of operators for their state, are effects with an answer each. Every `timestamp_ms` is
the JobMaster's clock until the host puts the wall clock's time in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from penstock.model.checkpoints import (
    CheckpointMetrics,
    CheckpointOptions,
    CheckpointType,
    SubtaskState,
)
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.ids import NO_TOKEN, AttemptId, FencingToken, ResourceId
from penstock.model.messages.shared import FailureInfo


class CheckpointFailureReason(StrEnum):
    """Why a checkpoint was not taken, or given up. A task's own reasons are from CHECKPOINT_DECLINED on."""

    PERIODIC_SCHEDULER_SHUTDOWN = "PERIODIC_SCHEDULER_SHUTDOWN"
    TOO_MANY_CHECKPOINT_REQUESTS = "TOO_MANY_CHECKPOINT_REQUESTS"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "MINIMUM_TIME_BETWEEN_CHECKPOINTS"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "NOT_ALL_REQUIRED_TASKS_RUNNING"
    COORDINATOR_SUSPEND = "COORDINATOR_SUSPEND"
    """Triggering stopped: the job restarts, or stops with a savepoint."""
    COORDINATOR_SHUTDOWN = "COORDINATOR_SHUTDOWN"
    """The job has ended."""
    CHECKPOINT_SUBSUMED = "CHECKPOINT_SUBSUMED"
    CHECKPOINT_EXPIRED = "CHECKPOINT_EXPIRED"
    FINALIZE_FAILURE = "FINALIZE_FAILURE"
    IO_EXCEPTION = "IO_EXCEPTION"
    """Its place could not be made, a coordinator's state not be taken, its metadata not be written."""
    CHECKPOINT_DECLINED = "CHECKPOINT_DECLINED"
    ASYNC_EXCEPTION = "ASYNC_EXCEPTION"
    TASK_NOT_READY = "TASK_NOT_READY"
    TASK_CLOSING = "TASK_CLOSING"
    SUBSUMED = "SUBSUMED"
    ON_CANCELLATION_BARRIER = "ON_CANCELLATION_BARRIER"
    INPUT_END_OF_STREAM = "INPUT_END_OF_STREAM"


# ------------------------------------------------------------------ to and from tasks


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """(wire) To a task none of whose producers run: emit the barrier and take the snapshot."""

    resource_id: ResourceId
    attempt_id: AttemptId
    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class NotifyCheckpointComplete:
    """(wire)"""

    resource_id: ResourceId
    attempt_id: AttemptId
    checkpoint_id: int
    timestamp_ms: int
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class NotifyCheckpointAborted:
    """(wire) `latest_completed_id`: -1 if there is none; to be completed first where that is news."""

    resource_id: ResourceId
    attempt_id: AttemptId
    checkpoint_id: int
    latest_completed_id: int
    timestamp_ms: int
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class AcknowledgeCheckpoint:
    """(wire) The task's snapshot is written."""

    attempt_id: AttemptId
    checkpoint_id: int
    state: SubtaskState
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """(wire) The task will not take part, or could not. `text`: for people."""

    attempt_id: AttemptId
    checkpoint_id: int
    reason: CheckpointFailureReason
    text: str = ""


@dataclass(frozen=True, slots=True)
class WaitsForFinalCheckpoint:
    """(wire) The task has read all its input, and ends with the next checkpoint."""

    attempt_id: AttemptId


# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class CheckpointAcknowledged:
    """An AcknowledgeCheckpoint with the time of its arrival."""

    message: AcknowledgeCheckpoint
    now_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointDeclined:
    """A DeclineCheckpoint with the time of its arrival."""

    message: DeclineCheckpoint
    now_ms: int


@dataclass(frozen=True, slots=True)
class FinalCheckpointAwaited:
    """A WaitsForFinalCheckpoint with the time of its arrival."""

    attempt_id: AttemptId
    now_ms: int


@dataclass(frozen=True, slots=True)
class CoordinatorsSnapshotted:
    """Answer to SnapshotCoordinators. `states`: (uid, state); `failure`: None unless one could not."""

    checkpoint_id: int
    states: tuple[tuple[str, bytes], ...]
    now_ms: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """Answer to StoreCheckpoint: it is written, and a restart of another driver would begin with it."""

    checkpoint_id: int
    location: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class CheckpointNotStored:
    """Answer to StoreCheckpoint: nobody will ever find it. `text`: what failed."""

    checkpoint_id: int
    text: str
    now_ms: int
    reason: CheckpointFailureReason = CheckpointFailureReason.FINALIZE_FAILURE


@dataclass(frozen=True, slots=True)
class TriggerSavepoint:
    """A user asks for one, or, with a synchronous type, to stop with one. Answered by SavepointAnswered.

    `target_directory`: the savepoint's own; None: the user named none, and the configuration has none.
    """

    request_id: str
    checkpoint_type: CheckpointType
    target_directory: str | None
    now_ms: int


CheckpointEvent: TypeAlias = (
    CheckpointAcknowledged
    | CheckpointDeclined
    | FinalCheckpointAwaited
    | CoordinatorsSnapshotted
    | CheckpointStored
    | CheckpointNotStored
    | TriggerSavepoint
)


# ------------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class SnapshotCoordinators:
    """Take the state of the coordinators of operators, hold back what they tell tasks until the tasks are triggered,
    and feed CoordinatorsSnapshotted back.
    """

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CoordinatorsCheckpointEnded:
    """Tell the coordinators of operators that it is complete, or aborted."""

    checkpoint_id: int
    is_completed: bool


@dataclass(frozen=True, slots=True)
class RestoreCoordinators:
    """All coordinators begin with this state; an operator that is not listed: with none. `checkpoint_id` None: all."""

    checkpoint_id: int | None
    states: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write its metadata, last and atomically, and name it as the latest if `is_for_recovery`; then feed
    CheckpointStored or CheckpointNotStored back: always one of them, a restart waits for it.
    """

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """A completed one that nobody needs any more: metadata first, then what only it uses."""

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class DiscardStates:
    """Snapshots of a checkpoint that was not completed."""

    checkpoint_id: int
    states: tuple[SubtaskState, ...]


@dataclass(frozen=True, slots=True)
class SavepointAnswered:
    """To whoever asked. `location` None: there is none, for `failure`."""

    request_id: str
    location: str | None
    failure: FailureInfo | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """For people: what became of a checkpoint. `location` None: it failed, for `reason`.

    `triggered_ms`: JobMaster's clock. `size_bytes`: of what was acknowledged; `written_bytes`: of that, what was
    written for it. `slowest`: the largest of each over all tasks.
    """

    checkpoint_id: int
    checkpoint_type: CheckpointType
    triggered_ms: int
    size_bytes: int
    slowest: CheckpointMetrics
    location: str | None = None
    reason: CheckpointFailureReason | None = None
    text: str = ""
    written_bytes: int = 0


CheckpointEffect: TypeAlias = (
    TriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | SnapshotCoordinators
    | CoordinatorsCheckpointEnded
    | RestoreCoordinators
    | StoreCheckpoint
    | DiscardCheckpoint
    | DiscardStates
    | SavepointAnswered
    | CheckpointEnded
)
