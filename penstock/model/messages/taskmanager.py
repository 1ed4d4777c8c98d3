"""The TaskManager's events and effects: what its control plane is told, and what it wants done. Plain data.

`Fenced` messages carry the fencing token of the JobManager that sends them. What is an effect of the JobMaster or of the
ResourceManager is an event here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from penstock.model.deployment import TaskDeployment
from penstock.model.ids import AllocationId, AttemptId
from penstock.model.messages.checkpoints import (
    DeclineCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from penstock.model.messages.control import (
    AddSplits,
    DriverCredit,
    MaxAllowedWatermark,
    NoMoreSplits,
    OfferSlots,
    PartitionStateAnswer,
    RegistrationAccepted,
    Shutdown,
)
from penstock.model.messages.job import (
    AnswerOffers,
    CancelTask,
    DeployTask,
    FreeSlot,
    ReleasePartitions,
    TaskStateChanged,
    UpdatePartitions,
)
from penstock.model.messages.resources import RequestSlot
from penstock.model.messages.shared import SlotFreed

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
"""What is meant for one attempt, which has to be there."""
Fenced: TypeAlias = (
    RequestSlot
    | AnswerOffers
    | FreeSlot
    | DeployTask
    | CancelTask
    | ReleasePartitions
    | PartitionStateAnswer
    | Shutdown
    | ToTask
)
FENCED: Final[frozenset[type]] = frozenset(get_args(Fenced))


@dataclass(frozen=True, slots=True)
class SlotTimedOut:
    """A timer asked for with StartSlotTimer. One that is late must be harmless."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task's code is over, whatever its end was. It reports its state itself, after this."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class JobManagerLost:
    """The connection is over, or nothing was heard for too long."""

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
    """Run it, and feed TaskEnded back in the end, also where it cannot begin."""

    deployment: TaskDeployment


@dataclass(frozen=True, slots=True)
class StopTask:
    """Interrupt it; it may be ending already."""

    attempt_id: AttemptId
    cause: str


@dataclass(frozen=True, slots=True)
class ReleaseLocalState:
    """What lies on this TaskManager for tasks of that slot has no use any more."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class EndTaskManager:
    """All tasks end, then the process."""

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
    | ToTask
    | EndTaskManager
)
