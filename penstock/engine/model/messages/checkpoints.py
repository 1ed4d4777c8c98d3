"""Checkpoints between JobMaster, tasks, coordinators of operators, and storage. Plain data.

Source: Flink's CheckpointCoordinatorGateway, TaskExecutorGateway, CheckpointFailureReason
(docs/spec/checkpoints.md#coordinator). Differs: writing a completed checkpoint, and asking the
coordinators of operators for their state, are effects with an answer each. Every `timestamp_ms` is
the JobMaster's clock until the host puts the wall clock's time in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from penstock.engine.model.checkpoints import (
    CheckpointMetrics,
    CheckpointOptions,
    CheckpointType,
    CompletedCheckpoint,
    SubtaskState,
)
from penstock.engine.model.ids import NO_TOKEN, AttemptId, FencingToken, ResourceId, VertexId
from penstock.engine.model.messages.shared import FailureInfo


class CheckpointFailureReason(StrEnum):
    """Why a checkpoint was not taken, or was aborted. A task's own reasons are from CHECKPOINT_DECLINED on."""

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
    """Its directory could not be made, a coordinator's state not be taken, or its metadata not be written."""
    CHECKPOINT_DECLINED = "CHECKPOINT_DECLINED"
    ASYNC_EXCEPTION = "ASYNC_EXCEPTION"
    TASK_NOT_READY = "TASK_NOT_READY"
    TASK_CLOSING = "TASK_CLOSING"
    SUBSUMED = "SUBSUMED"
    ON_CANCELLATION_BARRIER = "ON_CANCELLATION_BARRIER"
    INPUT_END_OF_STREAM = "INPUT_END_OF_STREAM"


_POINTLESS: Final = frozenset({
    CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
    CheckpointFailureReason.COORDINATOR_SUSPEND,
    CheckpointFailureReason.COORDINATOR_SHUTDOWN,
    CheckpointFailureReason.CHECKPOINT_SUBSUMED,
    CheckpointFailureReason.TASK_CLOSING,
})


# ------------------------------------------------------------------ to and from tasks


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """(wire) To a TaskManager's tasks without running producers: emit the barrier and take the snapshot."""

    resource_id: ResourceId
    attempt_ids: tuple[AttemptId, ...]
    checkpoint_id: int
    timestamp_ms: int
    options: CheckpointOptions
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class NotifyCheckpointComplete:
    """(wire) To tasks of a TaskManager."""

    resource_id: ResourceId
    attempt_ids: tuple[AttemptId, ...]
    checkpoint_id: int
    timestamp_ms: int
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class NotifyCheckpointAborted:
    """(wire) To tasks of a TaskManager. `latest_completed_id`: -1 if there is none. A task first completes that one, if it does not know
    it yet.
    """

    resource_id: ResourceId
    attempt_ids: tuple[AttemptId, ...]
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
    """(wire) The task refuses the checkpoint, or has failed to take it. `text`: the reason in words."""

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
    """Answer to SnapshotCoordinators. `states`: (uid, state); `failure`: None, unless a coordinator failed."""

    checkpoint_id: int
    states: tuple[tuple[str, bytes], ...]
    now_ms: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """Answer to StoreCheckpoint: it is stored, and another driver that restarts the job would begin with it.

    `metadata_bytes`: size of its metadata file.
    """

    checkpoint_id: int
    location: str
    now_ms: int
    metadata_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointNotStored:
    """Answer to StoreCheckpoint: it is not stored, and nobody will ever find it. `text`: the cause."""

    checkpoint_id: int
    text: str
    now_ms: int
    reason: CheckpointFailureReason = CheckpointFailureReason.FINALIZE_FAILURE


@dataclass(frozen=True, slots=True)
class TriggerSavepoint:
    """A user asks for a savepoint or, with a synchronous type, to stop with one. Answered by SavepointAnswered.

    `target_directory`: the savepoint's own; None: neither the user nor the configuration names one.
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
    """Take the state of the operators' coordinators, and feed CoordinatorsSnapshotted back.

    Until the tasks are triggered, hold back what the coordinators send to tasks.
    """

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CoordinatorsCheckpointEnded:
    """Notify the operators' coordinators that the checkpoint is complete or aborted."""

    checkpoint_id: int
    is_completed: bool


@dataclass(frozen=True, slots=True)
class RestoreCoordinators:
    """Reset all coordinators to this state; an operator that is not listed starts without state.

    `checkpoint_id` None: all coordinators start without state. `kept`: those of these vertices go on as they are.
    """

    checkpoint_id: int | None
    states: tuple[tuple[str, bytes], ...]
    kept: frozenset[VertexId] = frozenset()


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write the checkpoint's metadata, last and atomically, and record it as the latest if `is_for_recovery`.

    Then feed CheckpointStored or CheckpointNotStored back. One of them must come, because a restart waits for it.
    """

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """Delete a completed checkpoint that nobody needs any more: first its metadata, then the files that only it uses."""

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class DiscardStates:
    """Delete the snapshots of a checkpoint that was not completed."""

    checkpoint_id: int
    states: tuple[SubtaskState, ...]


@dataclass(frozen=True, slots=True)
class SavepointAnswered:
    """Answer the user who asked. `location` None: there is no savepoint, and `failure` says why."""

    request_id: str
    location: str | None
    failure: FailureInfo | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """The result of a checkpoint, for logs and the console. `location` None: it failed, and `reason` says why.

    `triggered_ms`: by the JobMaster's clock. `size_bytes`: of the acknowledged state; `written_bytes`: the part of it
    that was written for this checkpoint. `slowest`: the largest of each measurement over all tasks. `metadata_bytes`: size
    of its metadata file; 0: it has none.
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
    metadata_bytes: int = 0

    @property
    def is_given_up(self) -> bool:
        """Whether it had become pointless: by a restart, a newer one, or the end of its job. A savepoint that somebody waits for has
        failed then.
        """
        return self.reason in _POINTLESS and not self.checkpoint_type.is_savepoint


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
