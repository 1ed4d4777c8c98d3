"""The description of a task that a TaskManager gets when it deploys the task. Plain data.

Source: Flink TaskDeploymentDescriptor, ShuffleDescriptor (docs/spec/execution-graph.md#deployment). The producers of a
gate are one value for all its consumers, packed once, so that a gate costs no object and no work per channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.model.completed_checkpoint import TaskRestore
from penstock.model.graph.job_graph import ResultPartitionType
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    DataSetId,
    ExecutionVertexId,
    JobId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
    VertexId,
)
from penstock.model.producer_columns import ProducerColumns, columns_of, pack


@dataclass(frozen=True, slots=True)
class SparkTask:
    """The task of Spark in which a TaskManager lives. `attempt`: Spark's number of this task in its application. `executor` None: its id is not
    known.
    """

    stage: int
    partition: int
    attempt: int
    executor: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionDeployment:
    """A result partition that the task makes. `subpartitions`: the number of consumers. `is_in_turn`: the chain would forward its records,
    but its consumers are more or less than its producers, so the records go to them in turn.
    """

    partition_id: PartitionId
    result_type: ResultPartitionType
    subpartitions: int
    consumer_max_parallelism: int
    is_broadcast: bool = False
    is_in_turn: bool = False


@dataclass(frozen=True, slots=True)
class ShuffleDescriptor:
    """A partition to read. `location` None: it is not yet known where the producer runs."""

    partition_id: PartitionId
    result_partition_id: ResultPartitionId | None
    location: TaskManagerLocation | None


@dataclass(frozen=True, slots=True)
class Producers:
    """Consecutive partitions of one data set with their producers, to which a gate is connected.

    A sequence of `ShuffleDescriptor`, which are made only when they are read. `first`: index of the first partition.
    `count`: number of partitions. `packed`: the bytes from `producer_columns.pack`.
    """

    data_set_id: DataSetId
    vertex_id: VertexId
    first: int
    count: int
    packed: bytes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> ShuffleDescriptor:
        at = place + self.count if place < 0 else place
        if not 0 <= at < self.count:
            raise IndexError(f"channel {place} of {self.count}")
        columns = columns_of(self.packed, self.count)
        known = columns.places[at]
        location = _location(columns, known - 1) if known else None
        return self._descriptor(at, columns.attempts[at], location)

    def __iter__(self) -> Iterator[ShuffleDescriptor]:
        columns = columns_of(self.packed, self.count)
        numbers = range(len(columns.resource_ids))
        locations = [None, *(_location(columns, number) for number in numbers)]
        for at, (attempt, place) in enumerate(zip(columns.attempts, columns.places, strict=True)):
            yield self._descriptor(at, attempt, locations[place])

    def _descriptor(
        self, at: int, attempt: int, location: TaskManagerLocation | None
    ) -> ShuffleDescriptor:
        index = self.first + at
        partition_id = PartitionId(self.data_set_id, index)
        if location is None:
            return ShuffleDescriptor(partition_id, None, None)
        producer = AttemptId(ExecutionVertexId(self.vertex_id, index), attempt)
        return ShuffleDescriptor(partition_id, ResultPartitionId(partition_id, producer), location)


@dataclass(frozen=True, slots=True)
class InputGateDeployment:
    """An input gate: a channel per (partition, subpartition of `subpartition_index`), in channel order.

    `channels`: one entry per partition; all consumers of these partitions share this value.
    """

    data_set_id: DataSetId
    result_type: ResultPartitionType
    input_index: int
    subpartition_index: int
    channels: Producers


@dataclass(frozen=True, slots=True)
class TaskDeployment:
    """One attempt, with everything that it needs except the bytes of its chain. `restore` None: it begins without
    state. `may_have_rivals`: another attempt of the subtask may run at the same time and win.
    """

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
    restore: TaskRestore | None = None
    may_have_rivals: bool = False

    @property
    def title(self) -> str:
        """The task as Flink names its thread: vertex, subtask from 1, attempt."""
        subtask = f"{self.attempt_id.subtask + 1}/{self.parallelism}"
        return f"{self.vertex_name} ({subtask})#{self.attempt_id.attempt}"


def pack_producers(
    data_set_id: DataSetId,
    vertex_id: VertexId,
    first: int,
    producers: Sequence[tuple[int, TaskManagerLocation | None]],
) -> Producers:
    """Packs one value for all consumers of these partitions. `producers`: attempt and place of each."""
    known: dict[ResourceId, int] = {}
    task_managers: list[TaskManagerLocation] = []
    places: list[int] = []
    for _, location in producers:
        if location is None:
            places.append(0)
            continue
        place = known.get(location.resource_id)
        if place is None:
            task_managers.append(location)
            known[location.resource_id] = place = len(task_managers)
        places.append(place)
    columns = ProducerColumns(
        [attempt for attempt, _ in producers],
        places,
        [location.resource_id for location in task_managers],
        [location.host for location in task_managers],
        [location.data_port for location in task_managers],
    )
    return Producers(data_set_id, vertex_id, first, len(producers), pack(columns))


def _location(columns: ProducerColumns, number: int) -> TaskManagerLocation:
    return TaskManagerLocation(
        columns.resource_ids[number], columns.hosts[number], columns.ports[number]
    )
