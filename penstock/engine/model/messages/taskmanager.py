"""The TaskManager's events and effects: the inputs and outputs of its control plane. Plain data.

`Fenced` messages carry the fencing token of the JobManager that sends them. Effects of the JobMaster and the
ResourceManager are events here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.ids import AllocationId, AttemptId
from penstock.engine.model.messages.checkpoints import (
    DeclineCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from penstock.engine.model.messages.control import (
    AddSplits,
    DriverCredit,
    MaxAllowedWatermark,
    NoMoreSplits,
    OfferSlots,
    PartitionStateAnswer,
    RegistrationAccepted,
    Shutdown,
)
from penstock.engine.model.messages.job import (
    AnswerOffers,
    CancelTask,
    DeployTask,
    FreeSlot,
    ReleasePartitions,
    TaskStateChanged,
    UpdatePartitions,
)
from penstock.engine.model.messages.questions import AskTaskManager
from penstock.engine.model.messages.resources import RequestSlot
from penstock.engine.model.messages.shared import SlotFreed

ToTask: TypeAlias = (
    UpdatePartitions
    | TriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | AddSplits
    | NoMoreSplits
    | MaxAllowedWatermark
    | DriverCredit
)
"""Messages for one attempt, which has to exist."""
Fenced: TypeAlias = (
    RequestSlot
    | AnswerOffers
    | FreeSlot
    | DeployTask
    | CancelTask
    | ReleasePartitions
    | PartitionStateAnswer
    | AskTaskManager
    | Shutdown
    | ToTask
)
FENCED: Final[frozenset[type]] = frozenset(get_args(Fenced))


@dataclass(frozen=True, slots=True)
class SlotTimedOut:
    """A timer set with StartSlotTimer. A late one must be harmless."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task's code has ended, in whatever way. The task itself reports its state afterwards."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class JobManagerLost:
    """The connection has ended, or the JobManager was silent for too long."""

    cause: str


TaskManagerEvent: TypeAlias = (
    RegistrationAccepted | Fenced | SlotTimedOut | TaskEnded | JobManagerLost
)


@dataclass(frozen=True, slots=True)
class StartSlotTimer:
    """Feed SlotTimedOut back after the slot timeout."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class StartTask:
    """Run the task. Feed TaskEnded back at its end, also if it cannot begin."""

    deployment: TaskDeployment


@dataclass(frozen=True, slots=True)
class StopTask:
    """Interrupt the task; it may already be ending."""

    attempt_id: AttemptId
    cause: str


@dataclass(frozen=True, slots=True)
class ReleaseLocalState:
    """The local state of the tasks of this slot is no longer needed on this TaskManager."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class EndTaskManager:
    """End all tasks, then the process."""

    cause: str


TaskManagerEffect: TypeAlias = (
    OfferSlots
    | SlotFreed
    | TaskStateChanged
    | DeclineCheckpoint
    | StartSlotTimer
    | StartTask
    | StopTask
    | ReleaseLocalState
    | ReleasePartitions
    | PartitionStateAnswer
    | AskTaskManager
    | ToTask
    | EndTaskManager
)
