"""What a TaskManager is told when it deploys a task. Plain data.

Source: Flink TaskDeploymentDescriptor, ShuffleDescriptor (spec 2.3). The producers of a gate are
one value for all its consumers, packed once, so that a gate costs no object and no work per channel.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

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
    VertexId,
)

PACK_FROM_BYTES: Final = 1024
"""Longer columns are compressed: with 10,000 producers to about a third, decompressed in 0.1 ms."""
_HEAD: Final = struct.Struct("<QBBI")
_CODES: Final = ((0, "x"), (1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_RAW, _DEFLATED = b"\0", b"\1"
_DEFLATE_LEVEL: Final = 1


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


class ProducerColumns(NamedTuple):
    """Per partition: attempt, and place as index into the TaskManagers plus 1 (0: not known). Per
    TaskManager: id, host, data port.
    """

    attempts: Sequence[int]
    places: Sequence[int]
    resource_ids: Sequence[ResourceId]
    hosts: Sequence[str]
    ports: Sequence[int]

    def location(self, number: int) -> TaskManagerLocation:
        return TaskManagerLocation(
            self.resource_ids[number], self.hosts[number], self.ports[number]
        )


@dataclass(frozen=True, slots=True)
class Producers:
    """Consecutive partitions of one data set with their producers: what a gate is connected to.

    A sequence of `ShuffleDescriptor`, which are made as they are looked at. `first`: index of the
    first partition. `count`: partitions. `packed`: what `pack_producers` wrote.
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
        columns = _columns(self.packed, self.count)
        known = columns.places[at]
        location = columns.location(known - 1) if known else None
        return self._descriptor(at, columns.attempts[at], location)

    def __iter__(self) -> Iterator[ShuffleDescriptor]:
        columns = _columns(self.packed, self.count)
        locations = [None, *map(columns.location, range(len(columns.resource_ids)))]
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
    """One input gate: a channel per (partition, subpartition of `subpartition_index`), in channel order.

    `channels`: one entry per partition; all consumers of these partitions are given the same value.
    """

    data_set_id: DataSetId
    result_type: ResultPartitionType
    input_index: int
    subpartition_index: int
    channels: Producers


@dataclass(frozen=True, slots=True)
class TaskDeployment:
    """One attempt with everything that it needs but the bytes of its chain. `restore`: None: it begins with no state."""

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


def pack_producers(
    data_set_id: DataSetId,
    vertex_id: VertexId,
    first: int,
    producers: Sequence[tuple[int, TaskManagerLocation | None]],
) -> Producers:
    """One value for all consumers of these partitions. `producers`: attempt and place of each.

    The bytes: what follows is raw or deflated; least attempt, width of the two columns in bytes and
    length of the first; attempts above the least; places; the TaskManagers as JSON columns.
    """
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
    least = min((attempt for attempt, _ in producers), default=0)
    attempt_bytes, attempt_column = _column([attempt - least for attempt, _ in producers])
    place_bytes, place_column = _column(places)
    table = json.dumps(
        (
            [location.resource_id for location in task_managers],
            [location.host for location in task_managers],
            [location.data_port for location in task_managers],
        ),
        separators=(",", ":"),
    ).encode()
    head = _HEAD.pack(least, attempt_bytes, place_bytes, len(attempt_column))
    body = b"".join((head, attempt_column, place_column, table))
    if len(body) >= PACK_FROM_BYTES:
        packed = _DEFLATED + zlib.compress(body, _DEFLATE_LEVEL)
    else:
        packed = _RAW + body
    return Producers(data_set_id, vertex_id, first, len(producers), packed)


def read_producers(packed: bytes, count: int) -> ProducerColumns:
    """What `pack_producers` wrote for `count` partitions."""
    body = packed[1:] if packed[:1] == _RAW else zlib.decompress(packed[1:])
    least, attempt_bytes, place_bytes, places_at = _HEAD.unpack_from(body)
    places_at += _HEAD.size
    attempts = _read_column(body, _HEAD.size, attempt_bytes, count)
    if least:
        attempts = [least + a for a in attempts] if attempt_bytes else [least] * count
    places = _read_column(body, places_at, place_bytes, count)
    ids, hosts, ports = json.loads(body[places_at + place_bytes * count :])
    return ProducerColumns(
        attempts,
        places,
        ids,
        hosts,
        ports,
    )


_columns = lru_cache(maxsize=16)(read_producers)


def _column(values: Sequence[int]) -> tuple[int, bytes]:
    """Bytes per value, and the values; nothing where all are 0."""
    most = max(values, default=0)
    width, code = next((w, c) for w, c in _CODES if most < 1 << (8 * w))
    return width, struct.pack(f"<{len(values)}{code}", *values) if width else b""


def _read_column(body: bytes, at: int, width: int, count: int) -> Sequence[int]:
    if not width:
        return [0] * count
    return struct.unpack_from(f"<{count}{dict(_CODES)[width]}", body, at)
