"""Typed ids, and where a TaskManager is. Source: Flink's JobID, JobVertexID, ExecutionAttemptID, AllocationID.

Ids are values with a readable text (`Map[2]#0`). This module does not make them: the control plane counts, and only
hosting draws random ids.
"""

from dataclasses import dataclass
from typing import Final, NewType

JobId = NewType("JobId", str)
VertexId = NewType("VertexId", str)
"""A JobVertex: 32 hex digits, derived from the uid or the place in the graph."""
DataSetId = NewType("DataSetId", str)
"""An IntermediateDataSet: what one JobVertex produces for its consumers."""
ResourceId = NewType("ResourceId", str)
"""One incarnation of a TaskManager; a restarted one has another id."""
AllocationId = NewType("AllocationId", str)
"""The right of a job to one physical slot; outlives requests and re-offers."""
SlotRequestId = NewType("SlotRequestId", str)
BlobKey = NewType("BlobKey", str)
"""SHA-256 of a blob of the JobGraph, in hex."""
FencingToken = NewType("FencingToken", str)
NO_TOKEN: Final = FencingToken("")
"""The token of a message that no JobManager has sent yet."""


def taskmanager_name(job_id: JobId, resource_id: ResourceId) -> str:
    """Return the name of a TaskManager among those of all jobs of a driver: each job counts its own."""
    return f"{resource_id}-{job_id[:6]}"


@dataclass(frozen=True, slots=True)
class TaskManagerLocation:
    """Where a TaskManager serves its result partitions, and state that it keeps for others."""

    resource_id: ResourceId
    host: str
    data_port: int


@dataclass(frozen=True, slots=True, order=True)
class ExecutionVertexId:
    """One parallel instance of a JobVertex; subtask counts from 0."""

    vertex_id: VertexId
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex_id[:8]}[{self.subtask}]"


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """One try to run a subtask; attempts count from 0."""

    execution_vertex_id: ExecutionVertexId
    attempt: int

    def __str__(self) -> str:
        return f"{self.execution_vertex_id}#{self.attempt}"

    @property
    def vertex_id(self) -> VertexId:
        return self.execution_vertex_id.vertex_id

    @property
    def subtask(self) -> int:
        return self.execution_vertex_id.subtask


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """One IntermediateResultPartition: the part of a data set that subtask `index` of the producer makes."""

    data_set_id: DataSetId
    index: int

    def __str__(self) -> str:
        return f"{self.data_set_id[:8]}/{self.index}"


@dataclass(frozen=True, slots=True, order=True)
class ResultPartitionId:
    """A partition as made by one attempt; a restarted producer makes another one."""

    partition_id: PartitionId
    producer: AttemptId

    def __str__(self) -> str:
        return f"{self.partition_id}@{self.producer}"
