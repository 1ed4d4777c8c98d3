"""What happens to a job and is no message of its machines. Plain data, for observers of the job.

Observers get these events, and of `engine.model.messages` the events and effects of machines.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import AllocationId, AttemptId, ResourceId, TaskManagerLocation


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """The job begins. `ignored_keys`: options that have no effect here."""

    job_graph: JobGraph
    ignored_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskDeployed:
    """An attempt is sent to a TaskManager."""

    attempt_id: AttemptId
    location: TaskManagerLocation
    allocation_id: AllocationId | None


@dataclass(frozen=True, slots=True)
class CheckpointRestored:
    """Attempts begin with this checkpoint. `location`: of its metadata. `is_savepoint`: it is not the job's own."""

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
class TaskManagerStarved:
    """A TaskManager is silent, but its supervisor is heard."""

    resource_id: ResourceId
    cause: str


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """A TaskManager is gone."""

    resource_id: ResourceId
    cause: str
