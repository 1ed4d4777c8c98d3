"""Subpartitions and partitions of one thread, with a consumer that remembers what it was told."""

import pickle
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from penstock.engine.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResultPartitionId,
    VertexId,
)
from penstock.engine.runtime.network.partition.bounded_data import FileData
from penstock.engine.runtime.network.partition.buffer_builder import (
    BlockingFormat,
    BufferCompressor,
)
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    ResultPartition,
    blocking_partition,
    pipelined_partition,
)


class ViewListener:
    """Counts what it is told. `priorities`: sequence numbers, in order."""

    def __init__(self) -> None:
        self.data = 0
        self.priorities: list[int] = []

    def notify_data(self) -> None:
        self.data += 1

    def notify_priority(self, sequence: int) -> None:
        self.priorities.append(sequence)


@dataclass(frozen=True)
class Barrier:
    """A barrier as the checkpoints will have it."""

    checkpoint_id: int = 1
    has_priority: bool = False
    is_timeoutable: bool = False

    @property
    def blocks_upstream(self) -> bool:
        return not self.has_priority

    def as_unaligned(self) -> "Barrier":
        return Barrier(self.checkpoint_id, has_priority=True)


@dataclass
class Checkpoints:
    """Remembers output in-flight data."""

    completed: list = field(default_factory=list)
    failed: list = field(default_factory=list)

    def complete(self, checkpoint_id, subpartition, overtaken) -> None:
        values = [value for batch in overtaken for value in batch.values]
        self.completed.append((checkpoint_id, subpartition, values))

    def fail(self, checkpoint_id, subpartition, cause) -> None:
        self.failed.append((checkpoint_id, subpartition))


class Manager:
    """Where partitions are known, and what was released there."""

    def __init__(self) -> None:
        self.known: dict = {}
        self.released: list = []

    def register(self, partition) -> None:
        self.known[partition.partition_id] = partition

    def release(self, partition_id, failure=None) -> None:
        partition = self.known.pop(partition_id, None)
        if partition is not None:
            self.released.append((partition_id, failure))
            partition.release(failure)


def result_partition_id(index: int = 0) -> ResultPartitionId:
    attempt = AttemptId(ExecutionVertexId(VertexId("v"), index), 0)
    return ResultPartitionId(PartitionId(DataSetId("d"), index), attempt)


def pipelined(
    subpartitions=1, frame_bytes=1 << 20, wake=lambda: None, index=0, **hooks
) -> ResultPartition:
    told = PartitionHooks(wake, **hooks)
    return pipelined_partition(result_partition_id(index), subpartitions, frame_bytes, told)


def blocking(
    folder,
    kind: Any = FileData,
    codec="LZ4",
    subpartitions=1,
    frame_bytes=1 << 20,
    buffer=64,
) -> ResultPartition:
    """Of this class of file. Its files are `part-N` in the folder."""
    compressor = None if codec is None else BufferCompressor(codec)
    numbers = count()

    form = BlockingFormat(pickle.dumps, pickle.loads, frame_bytes, buffer, compressor)
    return blocking_partition(
        result_partition_id(),
        subpartitions,
        lambda: kind(str(folder / f"part-{next(numbers)}")),
        form,
    )


def drained_view(view) -> list:
    """All that can be had now, a partly filled frame included."""
    found = []
    while (polled := view.poll()) is not None:
        found.append(polled.element)
    return found


def views_of(partition) -> list:
    return [
        partition.create_view(index, ViewListener())
        for index in range(len(partition.subpartitions))
    ]
