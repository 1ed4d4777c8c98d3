"""The description of a task that a TaskManager gets when it deploys the task. Plain data.

Source: Flink TaskDeploymentDescriptor, ShuffleDescriptor (docs/spec/execution-graph.md#deployment). The producers of a
gate are one value for all its consumers, packed once, so that a gate costs no object and no work per channel.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.engine.model.checkpoints import TaskRestore
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import (
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

# ---------------------------------------------------------------------- producer columns
# The places of a gate's producers, as columns and as bytes.
#
# Does not know gates or descriptors. The bytes are part of a deployment, which the JobMaster
# writes and TaskManagers read, both on demand. Both know the model, so this module is here. A
# gate of 10,000 channels needs no object per channel.


PACK_FROM_BYTES: Final = 1024
"""Larger bodies are compressed: with 10,000 producers to about a third, decompressed in 0.1 ms."""
_HEAD: Final = struct.Struct("<QBBI")
_CODES: Final = ((0, "x"), (1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_RAW, _DEFLATED = b"\0", b"\1"
_DEFLATE_LEVEL: Final = 1


class ProducerColumns(NamedTuple):
    """Per partition: attempt, and place as index into the TaskManagers plus 1 (0: not known).

    Per TaskManager: id, host, data port.
    """

    attempts: Sequence[int]
    places: Sequence[int]
    resource_ids: Sequence[ResourceId]
    hosts: Sequence[str]
    ports: Sequence[int]


def pack(columns: ProducerColumns) -> bytes:
    """The bytes. The first byte says whether the rest is raw or deflated. The rest has these parts:

    the least attempt, the width of the two columns in bytes and the length of the first; the attempts above the least;
    the places; the TaskManagers as JSON columns.
    """
    least = min(columns.attempts, default=0)
    attempt_bytes, attempt_column = _column([attempt - least for attempt in columns.attempts])
    place_bytes, place_column = _column(columns.places)
    task_managers = (columns.resource_ids, columns.hosts, columns.ports)
    table = json.dumps(task_managers, separators=(",", ":")).encode()
    head = _HEAD.pack(least, attempt_bytes, place_bytes, len(attempt_column))
    body = b"".join((head, attempt_column, place_column, table))
    if len(body) >= PACK_FROM_BYTES:
        return _DEFLATED + zlib.compress(body, _DEFLATE_LEVEL)
    return _RAW + body


def unpack(packed: bytes, count: int) -> ProducerColumns:
    """The columns that `pack` wrote for `count` partitions."""
    body = packed[1:] if packed[:1] == _RAW else zlib.decompress(packed[1:])
    least, attempt_bytes, place_bytes, places_at = _HEAD.unpack_from(body)
    places_at += _HEAD.size
    attempts = _read_column(body, _HEAD.size, attempt_bytes, count)
    if least:
        attempts = [least + a for a in attempts] if attempt_bytes else [least] * count
    places = _read_column(body, places_at, place_bytes, count)
    ids, hosts, ports = json.loads(body[places_at + place_bytes * count :])
    return ProducerColumns(attempts, places, ids, hosts, ports)


columns_of = lru_cache(maxsize=16)(unpack)
"""`unpack` with a cache, for callers that read the same gate again and again."""


def _column(values: Sequence[int]) -> tuple[int, bytes]:
    """The bytes per value, and the values; no bytes if all are 0."""
    most = max(values, default=0)
    width, code = next((w, c) for w, c in _CODES if most < 1 << (8 * w))
    return width, struct.pack(f"<{len(values)}{code}", *values) if width else b""


def _read_column(body: bytes, at: int, width: int, count: int) -> Sequence[int]:
    if not width:
        return [0] * count
    return struct.unpack_from(f"<{count}{dict(_CODES)[width]}", body, at)


# ---------------------------------------------------------------------- deployment


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
    state.
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
