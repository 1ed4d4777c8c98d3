"""The JobMaster's events and effects. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model import ids
from penstock.engine.model.checkpoints import SubtaskState
from penstock.engine.model.deployment import ShuffleDescriptor, TaskDeployment
from penstock.engine.model.elastic import Rescales
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.messages.checkpoints import CheckpointEffect, CheckpointEvent
from penstock.engine.model.messages.shared import (
    Committable,
    FailureInfo,
    SlotFreed,
    SlotOffer,
    TaskIo,
)
from penstock.engine.model.slot_size import SlotSize
from penstock.engine.model.states import ExecutionState, JobStatus


@dataclass(frozen=True, slots=True)
class StartScheduling:
    now_ms: int


@dataclass(frozen=True, slots=True)
class SlotsOffered:
    location: ids.TaskManagerLocation
    offers: tuple[SlotOffer, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskStateChanged:
    """(wire) A TaskManager's report. INITIALIZING, RUNNING or a terminal state.

    `final_state`: what a savepoint holds of a task that is FINISHED and whose `committables` have not been committed yet.
    """

    attempt_id: ids.AttemptId
    state: ExecutionState
    failure: FailureInfo | None = None
    committables: tuple[Committable, ...] = ()
    io: TaskIo | None = None
    final_state: SubtaskState | None = None


@dataclass(frozen=True, slots=True)
class TaskReported:
    """A TaskStateChanged with the time of its arrival."""

    report: TaskStateChanged
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskIoReported:
    """To observers: the last counters of tasks that end."""

    ios: tuple[tuple[ids.AttemptId, TaskIo], ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class PartitionDataProduced:
    """(wire) A blocking partition is complete and can be consumed."""

    attempt_id: ids.AttemptId
    partition_id: ids.PartitionId


@dataclass(frozen=True, slots=True)
class TaskManagerGone:
    """`for_memory`: it was killed, because it or its container had too much."""

    resource_id: ids.ResourceId
    cause: str
    now_ms: int
    for_memory: bool = False


@dataclass(frozen=True, slots=True)
class TaskManagersLeaving:
    """The host takes these TaskManagers away soon. They still work. To the ResourceManager too."""

    resource_ids: tuple[ids.ResourceId, ...]
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class CancelJob:
    now_ms: int


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Another JobManager may lead the job now. Nothing is cleaned up."""

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
    """The ResourceManager cannot provide the slots. `available`: the slots that it can, `reason`: why not more.

    `is_final`: no TaskManager that could give the others is on its way.
    """

    available: int
    reason: str
    now_ms: int
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer set with SetTimer. Late ones (cancelled, replaced) must be harmless."""

    timer: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class RescaleJob:
    """What parallelism the job may have from now on: (vertex, lower bound, upper bound) of all its vertices."""

    bounds: tuple[tuple[ids.VertexId, int, int], ...]
    now_ms: int


JobEvent: TypeAlias = (
    StartScheduling
    | RescaleJob
    | SlotsOffered
    | SlotFreed
    | TaskReported
    | PartitionDataProduced
    | TaskManagerGone
    | TaskManagersLeaving
    | CancelJob
    | SuspendJob
    | FailJob
    | JobFinalized
    | NotEnoughResources
    | TimerFired
    | CheckpointEvent
)


@dataclass(frozen=True, slots=True)
class DeclareRequirements:
    """The number of slots that the job needs in all (held ones included). To the ResourceManager.

    `slots`: without a given size. `sized`: how many of each size, in addition.
    """

    job_id: ids.JobId
    slots: int
    now_ms: int = 0
    sized: tuple[tuple[SlotSize, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerOffers:
    """Accepts or rejects the slots that a TaskManager offered; it frees the rejected ones."""

    resource_id: ids.ResourceId
    accepted: tuple[ids.AllocationId, ...]
    rejected: tuple[ids.AllocationId, ...]
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class DeployTask:
    """(wire)"""

    resource_id: ids.ResourceId
    deployment: TaskDeployment
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class CancelTask:
    resource_id: ids.ResourceId
    attempt_id: ids.AttemptId
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class UpdatePartitions:
    """The places of producers that were not known when their consumer was deployed."""

    resource_id: ids.ResourceId
    attempt_id: ids.AttemptId
    descriptors: tuple[ShuffleDescriptor, ...]
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class ReleasePartitions:
    resource_id: ids.ResourceId
    partitions: tuple[tuple[ids.PartitionId, ids.AttemptId], ...]
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The job gives a slot back (job end, idle too long)."""

    resource_id: ids.ResourceId
    allocation_id: ids.AllocationId
    cause: str
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Feed TimerFired(timer) back at `at_ms`; a second timer of the same name replaces the first."""

    timer: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ResetSubtasks:
    """These subtasks start again: their coordinators take back splits and forget committables.

    `checkpoint_id`: splits and committables from before this checkpoint stay; None: the subtasks begin anew.
    """

    vertices: tuple[ids.ExecutionVertexId, ...]
    is_global: bool
    checkpoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class GraphReplaced:
    """Another generation of the job begins: its subtasks are new, and there may be more or less of them.

    `former`: all subtasks of the generation before. `first_attempt`: the number of the attempts of the new one. `checkpoint_id`: what the new one begins with; None: it begins anew.
    `is_planned`: the former one has handed over all that it did; otherwise it failed, and what came after the checkpoint
    is processed again. `kept`: vertices whose subtasks run on with the attempts that they have. `is_first`: nothing of the job
    has run before.
    """

    job_graph: JobGraph
    former: tuple[ids.ExecutionVertexId, ...]
    first_attempt: int
    checkpoint_id: int | None
    is_planned: bool
    kept: frozenset[ids.VertexId] = frozenset()
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class FinalizeJob:
    """All tasks are FINISHED: commit these, then feed JobFinalized (or FailJob) back."""

    committables: tuple[Committable, ...]


@dataclass(frozen=True, slots=True)
class JobStatusChanged:
    status: JobStatus
    now_ms: int
    failure: FailureInfo | None = None

    def __str__(self) -> str:
        cause = "" if self.failure is None else f" cause={self.failure.kind}"
        return f"job ->{self.status}{cause}"


@dataclass(frozen=True, slots=True)
class ExecutionStateChanged:
    """One line of the job's story, for console, log and REST."""

    attempt_id: ids.AttemptId
    old: ExecutionState
    new: ExecutionState
    now_ms: int
    cause: str = ""

    def __str__(self) -> str:
        cause = f" cause={self.cause}" if self.cause else ""
        return f"attempt={self.attempt_id} {self.old}->{self.new}{cause}"


@dataclass(frozen=True, slots=True)
class RescalesChanged:
    """What is known of the job's rescales from now on. Comes first when the job is elastic: then there are none."""

    rescales: Rescales


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
    | GraphReplaced
    | FinalizeJob
    | JobStatusChanged
    | RescalesChanged
    | ExecutionStateChanged
    | CheckpointEffect
)
