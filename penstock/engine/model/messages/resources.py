"""The ResourceManager's events and effects. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model.ids import (
    NO_TOKEN,
    AllocationId,
    FencingToken,
    JobId,
    ResourceId,
    TaskManagerLocation,
)
from penstock.engine.model.messages.job import DeclareRequirements, TaskManagersLeaving
from penstock.engine.model.messages.shared import SlotFreed
from penstock.engine.model.slot_size import UNSIZED, SlotSize


@dataclass(frozen=True, slots=True)
class TaskManagerRegistered:
    location: TaskManagerLocation
    slots: int
    now_ms: int
    size: SlotSize = UNSIZED


@dataclass(frozen=True, slots=True)
class TaskManagerLostEvent:
    """A TaskManager's connection broke, its lease ran out, or its host ended."""

    resource_id: ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskManagerStartFailed:
    """A requested TaskManager will not come."""

    resource_id: ResourceId
    cause: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class TaskManagersAllowed:
    """The host has grown: so many TaskManagers may there be at one time."""

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

    resource_id: ResourceId
    slots: int
    size: SlotSize = UNSIZED


@dataclass(frozen=True, slots=True)
class StopTaskManager:
    resource_id: ResourceId
    reason: str


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """(wire) Allocate this slot to the job and offer it to the job's JobMaster."""

    resource_id: ResourceId
    slot_index: int
    allocation_id: AllocationId
    job_id: JobId
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class ResourcesMissing:
    """To the JobMaster, as NotEnoughResources. The console also prints it, after 3 s and then every 30 s. `is_final`: none is on its way."""

    job_id: JobId
    wanted: int
    available: int
    reason: str
    is_final: bool = False


ResourceEffect: TypeAlias = StartTaskManager | StopTaskManager | RequestSlot | ResourcesMissing
