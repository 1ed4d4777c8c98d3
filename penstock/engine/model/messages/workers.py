"""Messages of workers: processes of executors that host the TaskManagers of several jobs. Does not know who decides.

A start is one TaskManager of one job that wants slots of a worker. Source: Flink's TaskExecutor, which several JobMasters share;
here each job has a TaskManager of its own in the shared process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, TypeAlias

from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.slot_size import UNSIZED, SlotSize

WorkerId = ResourceId
"""A worker has the same kind of id as a TaskManager: from outside, a worker and its only
TaskManager look alike.
"""
StartId = NewType("StartId", str)


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """What is equal for all who share a worker. `digest`: of everything that this module does not know. `slots`: of one worker."""

    digest: str
    slots: int
    size: SlotSize = UNSIZED


# ---------------------------------------------------------------------- wire


@dataclass(frozen=True, slots=True)
class HostTaskManager:
    """(wire) To a worker's supervisor: host this TaskManager.

    `order`: JSON of `engine.hosting.taskmanager_order.ChildOrder` without secrets. `identity`: the job's
    certificate and key.
    """

    start_id: StartId
    order: bytes
    identity: bytes

    def __repr__(self) -> str:
        return f"HostTaskManager(start_id={self.start_id})"


@dataclass(frozen=True, slots=True)
class DropTaskManager:
    """(wire) To a worker's supervisor: its job does not need this TaskManager any more. See that it ends."""

    start_id: StartId
    reason: str


@dataclass(frozen=True, slots=True)
class HostedEnded:
    """(wire) From a worker's supervisor: a TaskManager is over, and nothing of it is left. `was_refused`: it has never begun,
    because the process is not fit for it.
    """

    start_id: StartId
    cause: str
    was_refused: bool = False


@dataclass(frozen=True, slots=True)
class WorkerUsedUp:
    """(wire) From a worker's supervisor: something of user code is left in the process, so it must serve nobody else."""

    worker_id: WorkerId
    cause: str


# ---------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class StartWanted:
    """A job wants a TaskManager with this number of slots.

    `lower_bound`: the number of slots without which the job cannot run. `idle_ms`: how long the
    worker may wait for the next job afterwards. `after_sized`: how many TaskManagers of a given
    size are placed first, because they are harder to place.
    """

    start_id: StartId
    job_id: JobId
    kind: WorkerKind
    slots: int
    lower_bound: int
    idle_ms: int
    now_ms: int
    after_sized: int = 0


@dataclass(frozen=True, slots=True)
class StartRegistered:
    """The TaskManager has reached its JobManager."""

    start_id: StartId


@dataclass(frozen=True, slots=True)
class StartDropped:
    """The job does not want it any more."""

    start_id: StartId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class HostedGone:
    """A worker reports that a TaskManager has ended."""

    start_id: StartId
    cause: str
    was_refused: bool
    now_ms: int


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    worker_id: WorkerId
    now_ms: int


@dataclass(frozen=True, slots=True)
class WorkerUnfit:
    """A worker must serve nobody else."""

    worker_id: WorkerId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class WorkerLost:
    worker_id: WorkerId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class RoomWanted:
    """Somebody waits for task slots of Spark that idle workers hold. `kind`: whose workers are of use as they are."""

    workers: int
    kind: WorkerKind | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class WorkersTick:
    now_ms: int


WorkersEvent: TypeAlias = (
    StartWanted
    | StartRegistered
    | StartDropped
    | HostedGone
    | WorkerConnected
    | WorkerUnfit
    | WorkerLost
    | RoomWanted
    | WorkersTick
)

# ---------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class LaunchWorker:
    worker_id: WorkerId
    kind: WorkerKind


@dataclass(frozen=True, slots=True)
class HostStart:
    worker_id: WorkerId
    start_id: StartId
    slots: int


@dataclass(frozen=True, slots=True)
class DropStart:
    worker_id: WorkerId
    start_id: StartId
    cause: str


@dataclass(frozen=True, slots=True)
class StartEnded:
    """To the job: its TaskManager is over, or will never begin."""

    start_id: StartId
    cause: str


@dataclass(frozen=True, slots=True)
class EndWorker:
    worker_id: WorkerId
    cause: str


WorkersEffect: TypeAlias = LaunchWorker | HostStart | DropStart | StartEnded | EndWorker
