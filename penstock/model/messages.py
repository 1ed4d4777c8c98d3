"""What machines are told (events), what they want done (effects), and what crosses a control wire.

One union per machine. Time arrives as `now_ms` inside the events that need it: milliseconds of the
shell's monotonic clock. A class that crosses the wire is marked (wire); `hosting/wire.py` decodes
nothing else. Knows no machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.model.deployment import ShuffleDescriptor, TaskDeployment, TaskManagerLocation
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    DataSetId,
    ExecutionVertexId,
    FencingToken,
    JobId,
    PartitionId,
    ResourceId,
    VertexId,
)
from penstock.model.states import ExecutionState, JobStatus

# --------------------------------------------------------------------------- shared bodies


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """A failure as text, so that nobody has to unpickle an exception of the user's.

    `kind`: class name of the error. `text`: the full message, user's traceback first.
    `is_user_code`: raised by the user's function. `is_recoverable` False: no restart may help.
    `lost_partition`: the partition that could not be read, if that was the reason.
    """

    kind: str
    text: str
    is_user_code: bool = False
    is_recoverable: bool = True
    is_task_manager_lost: bool = False
    lost_partition: PartitionId | None = None


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """(wire) A slot that a TaskManager offers to the job that it was allocated for."""

    allocation_id: AllocationId
    slot_index: int


@dataclass(frozen=True, slots=True)
class Committable:
    """(wire) What a sink subtask prepared and the committer on the driver makes visible.

    `payload`: plain data (str, int, bytes, tuple, list, dict, None) only.
    """

    node_id: int
    payload: object


@dataclass(frozen=True, slots=True)
class TaskIo:
    """(wire) Counters of one attempt. Bytes count encoded frames; `remote_*` only what crossed a socket."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    remote_bytes_in: int = 0
    remote_bytes_out: int = 0
    busy_ms: int = 0
    idle_ms: int = 0
    backpressured_ms: int = 0
    watermark_ms: int = -(2**63)
    late_records_dropped: int = 0


# --------------------------------------------------------------------------- JobMaster: events


@dataclass(frozen=True, slots=True)
class StartScheduling:
    now_ms: int


@dataclass(frozen=True, slots=True)
class SlotsOffered:
    location: TaskManagerLocation
    offers: tuple[SlotOffer, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskStateChanged:
    """(wire) A TaskManager's report. INITIALIZING, RUNNING or a terminal state."""

    attempt_id: AttemptId
    state: ExecutionState
    failure: FailureInfo | None = None
    committables: tuple[Committable, ...] = ()
    io: TaskIo | None = None


@dataclass(frozen=True, slots=True)
class TaskReported:
    """A TaskStateChanged with the time of its arrival."""

    report: TaskStateChanged
    now_ms: int


@dataclass(frozen=True, slots=True)
class PartitionDataProduced:
    """(wire) A blocking partition is complete and can be consumed."""

    attempt_id: AttemptId
    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class TaskManagerGone:
    resource_id: ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class CancelJob:
    now_ms: int


@dataclass(frozen=True, slots=True)
class FailJob:
    """A job-level failure: a coordinator (enumerator, committer) raised, or finalising failed."""

    failure: FailureInfo
    now_ms: int


@dataclass(frozen=True, slots=True)
class JobFinalized:
    """The committers have made the job's results visible."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class NotEnoughResources:
    """The ResourceManager cannot give what was asked. `available`: slots it can give, `reason`: why no more."""

    available: int
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer asked for with SetTimer. Late ones (cancelled, replaced) must be harmless."""

    timer: str
    now_ms: int


JobEvent: TypeAlias = (
    StartScheduling
    | SlotsOffered
    | TaskReported
    | PartitionDataProduced
    | TaskManagerGone
    | CancelJob
    | FailJob
    | JobFinalized
    | NotEnoughResources
    | TimerFired
)

# --------------------------------------------------------------------------- JobMaster: effects


@dataclass(frozen=True, slots=True)
class DeclareRequirements:
    """How many slots the job needs in all (held ones included). To the ResourceManager."""

    job_id: JobId
    slots: int
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class AnswerOffers:
    """Which of a TaskManager's offers the job takes; the others are freed there."""

    resource_id: ResourceId
    accepted: tuple[AllocationId, ...]
    rejected: tuple[AllocationId, ...]


@dataclass(frozen=True, slots=True)
class DeployTask:
    resource_id: ResourceId
    deployment: TaskDeployment


@dataclass(frozen=True, slots=True)
class CancelTask:
    resource_id: ResourceId
    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class UpdatePartitions:
    """Unknown producers of a deployed consumer are placed now."""

    resource_id: ResourceId
    attempt_id: AttemptId
    descriptors: tuple[ShuffleDescriptor, ...]


@dataclass(frozen=True, slots=True)
class ReleasePartitions:
    resource_id: ResourceId
    partitions: tuple[tuple[PartitionId, AttemptId], ...]


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The job gives a slot back (job end, idle too long)."""

    resource_id: ResourceId
    allocation_id: AllocationId
    cause: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Feed TimerFired(timer) back at `at_ms`; a second one of that name replaces the first."""

    timer: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ResetSubtasks:
    """These subtasks start again: their coordinators take back splits and forget committables."""

    vertices: tuple[ExecutionVertexId, ...]
    is_global: bool


@dataclass(frozen=True, slots=True)
class FinalizeJob:
    """All tasks are FINISHED: commit these, then feed JobFinalized (or FailJob) back."""

    committables: tuple[Committable, ...]


@dataclass(frozen=True, slots=True)
class JobStatusChanged:
    status: JobStatus
    now_ms: int
    failure: FailureInfo | None = None


@dataclass(frozen=True, slots=True)
class ExecutionStateChanged:
    """One line of the job's story, for console, log and REST."""

    attempt_id: AttemptId
    old: ExecutionState
    new: ExecutionState
    now_ms: int
    cause: str = ""


JobEffect: TypeAlias = (
    DeclareRequirements
    | AnswerOffers
    | DeployTask
    | CancelTask
    | UpdatePartitions
    | ReleasePartitions
    | FreeSlot
    | SetTimer
    | ResetSubtasks
    | FinalizeJob
    | JobStatusChanged
    | ExecutionStateChanged
)

# --------------------------------------------------------------------------- ResourceManager


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    location: TaskManagerLocation
    slots: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskManagerLostEvent:
    """A TaskManager's connection broke, its lease ran out, or its host ended."""

    resource_id: ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskManagerStartFailed:
    """A TaskManager that was asked for will not come."""

    resource_id: ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """(wire) A TaskManager has this slot free again."""

    resource_id: ResourceId
    slot_index: int
    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class ResourceTick:
    """Time passes: requirement checks, idle TaskManagers, start timeouts."""

    now_ms: int


ResourceEvent: TypeAlias = (
    DeclareRequirements
    | TaskManagerRegistered
    | TaskManagerLostEvent
    | TaskManagerStartFailed
    | SlotFreed
    | ResourceTick
)


@dataclass(frozen=True, slots=True)
class StartTaskManager:
    """Ask the host for a TaskManager that will register under this id."""

    resource_id: ResourceId
    slots: int


@dataclass(frozen=True, slots=True)
class StopTaskManager:
    resource_id: ResourceId
    reason: str


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """(wire) Allocate this slot to the job and offer it to its JobMaster."""

    resource_id: ResourceId
    slot_index: int
    allocation_id: AllocationId
    job_id: JobId


@dataclass(frozen=True, slots=True)
class ResourcesMissing:
    """To the JobMaster, as NotEnoughResources; also what the console says after 3 s and every 30 s."""

    job_id: JobId
    wanted: int
    available: int
    reason: str


ResourceEffect: TypeAlias = StartTaskManager | StopTaskManager | RequestSlot | ResourcesMissing

# --------------------------------------------------------------------------- control wire


@dataclass(frozen=True, slots=True)
class RegisterTaskManager:
    """(wire) First message after the mutual challenge."""

    resource_id: ResourceId
    host: str
    data_port: int
    slots: int
    pid: int
    supervisor_pid: int
    python_version: str
    penstock_version: str


@dataclass(frozen=True, slots=True)
class RegistrationAccepted:
    """(wire)"""

    fencing_token: FencingToken


@dataclass(frozen=True, slots=True)
class OfferSlots:
    """(wire)"""

    resource_id: ResourceId
    offers: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class PutBlob:
    """(wire) The bytes of a blob, before the first deployment that names it."""

    key: BlobKey
    data: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """(wire) `progress` rises whenever a mailbox of the TaskManager turns."""

    resource_id: ResourceId
    progress: int
    ios: tuple[tuple[AttemptId, TaskIo], ...] = ()


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """(wire) A source reader wants work."""

    attempt_id: AttemptId
    node_id: int
    host: str


@dataclass(frozen=True, slots=True)
class AddSplits:
    """(wire) Splits for a reader, pickled by the driver; only the TaskManager opens them."""

    attempt_id: AttemptId
    node_id: int
    splits: bytes


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """(wire)"""

    attempt_id: AttemptId
    node_id: int


@dataclass(frozen=True, slots=True)
class DriverData:
    """(wire) A batch of a print or collect stream: opaque bytes until the driver's consumer opens them."""

    stream: str
    attempt_id: AttemptId
    records: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class DriverCredit:
    """(wire) The driver took `frames` frames of this stream from this attempt."""

    stream: str
    attempt_id: AttemptId
    frames: int


@dataclass(frozen=True, slots=True)
class UserOutput:
    """(wire) What a user function wrote to stdout or stderr."""

    attempt_id: AttemptId | None
    operator: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Shutdown:
    """(wire) End all tasks and exit."""

    reason: str


@dataclass(frozen=True, slots=True)
class PartitionStateQuestion:
    """(wire) A consumer was told PartitionNotFound: what became of the producer?"""

    consumer: AttemptId
    data_set_id: DataSetId
    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class PartitionStateAnswer:
    """(wire) `producer_state` None: not known any more."""

    consumer: AttemptId
    partition_id: PartitionId
    producer_state: ExecutionState | None


@dataclass(frozen=True, slots=True)
class VertexProgress:
    """Snapshot of one job vertex for console and REST: subtasks by state and summed counters."""

    vertex_id: VertexId
    name: str
    parallelism: int
    states: dict[ExecutionState, int]
    records_in: int
    records_out: int
