"""The TaskManager's and the ResourceManager's events and effects: the inputs and outputs of their control planes. Plain data.

`Fenced` messages carry the fencing token of the JobManager that sends them. Effects of the JobMaster and the
ResourceManager are events here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from penstock.engine.model import ids
from penstock.engine.model.deployment import TaskDeployment
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
    DeclareRequirements,
    DeployTask,
    FreeSlot,
    ReleasePartitions,
    TaskManagersLeaving,
    TaskStateChanged,
    UpdatePartitions,
)
from penstock.engine.model.messages.questions import AskTaskManager
from penstock.engine.model.messages.shared import SlotFreed
from penstock.engine.model.slot_size import UNSIZED, SlotSize


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    location: ids.TaskManagerLocation
    slots: int
    now_ms: int
    size: SlotSize = UNSIZED


@dataclass(frozen=True, slots=True)
class TaskManagerLostEvent:
    """A TaskManager's connection broke, its lease ran out, or its host ended."""

    resource_id: ids.ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskManagerStartFailed:
    """A requested TaskManager will not come."""

    resource_id: ids.ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskManagersAllowed:
    """The host can now run `most` TaskManagers at one time, more than before."""

    most: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class ResourceTick:
    """Time passes: requirement checks, idle TaskManagers, start timeouts."""

    now_ms: int


ResourceEvent: TypeAlias = (
    DeclareRequirements
    | TaskManagerRegistered
    | TaskManagerLostEvent
    | TaskManagersLeaving
    | TaskManagersAllowed
    | TaskManagerStartFailed
    | SlotFreed
    | ResourceTick
)


@dataclass(frozen=True, slots=True)
class StartTaskManager:
    """Ask the host for a TaskManager that will register under this id.

    `size`: of its one slot, or UNSIZED: the usual TaskManager.
    """

    resource_id: ids.ResourceId
    slots: int
    size: SlotSize = UNSIZED


@dataclass(frozen=True, slots=True)
class StopTaskManager:
    resource_id: ids.ResourceId
    reason: str


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """(wire) Allocate this slot to the job and offer it to the job's JobMaster."""

    resource_id: ids.ResourceId
    slot_index: int
    allocation_id: ids.AllocationId
    job_id: ids.JobId
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class ResourcesMissing:
    """To the JobMaster, as NotEnoughResources. The console also prints it, after 10 s and then every 30 s. `is_final`: none is on its way."""

    job_id: ids.JobId
    wanted: int
    available: int
    reason: str
    is_final: bool = False


ResourceEffect: TypeAlias = StartTaskManager | StopTaskManager | RequestSlot | ResourcesMissing


ToTask: TypeAlias = UpdatePartitions | AddSplits | NoMoreSplits | MaxAllowedWatermark | DriverCredit
"""Messages for one attempt, which has to exist."""
ToTasks: TypeAlias = TriggerCheckpoint | NotifyCheckpointComplete | NotifyCheckpointAborted
"""Messages for several attempts of a TaskManager, which have to exist."""
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
    | ToTasks
)
FENCED: Final[frozenset[type]] = frozenset(get_args(Fenced))


@dataclass(frozen=True, slots=True)
class SlotTimedOut:
    """A timer set with StartSlotTimer. A late one must be harmless."""

    allocation_id: ids.AllocationId


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task's code has ended, in whatever way. The task itself reports its state afterwards."""

    attempt_id: ids.AttemptId


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

    allocation_id: ids.AllocationId


@dataclass(frozen=True, slots=True)
class StartTask:
    """Run the task. Feed TaskEnded back at its end, also if it cannot begin."""

    deployment: TaskDeployment


@dataclass(frozen=True, slots=True)
class StopTask:
    """Interrupt the task; it may already be ending."""

    attempt_id: ids.AttemptId
    cause: str


@dataclass(frozen=True, slots=True)
class ReleaseLocalState:
    """The local state of the tasks of this slot is no longer needed on this TaskManager."""

    allocation_id: ids.AllocationId


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
    | ToTasks
    | EndTaskManager
)
