"""What a TaskManager is told when it deploys a task. Plain data. Source: Flink TaskDeploymentDescriptor."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.graph.job_graph import ResultPartitionType
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    DataSetId,
    JobId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
)


@dataclass(frozen=True, slots=True)
class TaskManagerLocation:
    """Where a TaskManager serves its result partitions."""

    resource_id: ResourceId
    host: str
    data_port: int


@dataclass(frozen=True, slots=True)
class PartitionDeployment:
    """One result partition that the task makes. `subpartitions`: consumers, count."""

    partition_id: PartitionId
    result_type: ResultPartitionType
    subpartitions: int
    consumer_max_parallelism: int
    is_broadcast: bool = False


@dataclass(frozen=True, slots=True)
class ShuffleDescriptor:
    """One partition to read: `location` None while the producer's place is unknown."""

    partition_id: PartitionId
    result_partition_id: ResultPartitionId | None
    location: TaskManagerLocation | None


@dataclass(frozen=True, slots=True)
class InputGateDeployment:
    """One input gate: a channel per (partition, subpartition of `subpartition_index`), in channel order."""

    data_set_id: DataSetId
    result_type: ResultPartitionType
    input_index: int
    subpartition_index: int
    channels: tuple[ShuffleDescriptor, ...]


@dataclass(frozen=True, slots=True)
class TaskDeployment:
    """One attempt with everything that it needs but the bytes of its chain."""

    job_id: JobId
    job_name: str
    attempt_id: AttemptId
    allocation_id: AllocationId
    vertex_name: str
    parallelism: int
    max_parallelism: int
    chain_blob: BlobKey
    partitions: tuple[PartitionDeployment, ...]
    gates: tuple[InputGateDeployment, ...]
