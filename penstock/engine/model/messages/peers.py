"""Messages between TaskManagers on a data connection, beside the data (wire). Does not know connections."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.ids import ResultPartitionId


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A consumer asks for one subpartition. `credit`: the first credit, in frames.

    `buffer_bytes`: the largest number of bytes that one frame should hold. `row_limit`: how many records may wait for
    the consumer at the producer; None: any number.
    """

    partition_id: ResultPartitionId
    subpartition: int
    credit: int
    buffer_bytes: int
    row_limit: int | None = None


@dataclass(frozen=True, slots=True)
class StateRequest:
    """A task asks for state that the other TaskManager keeps of a handover: what it wrote to this file, from `offset` on."""

    path: str
    offset: int


@dataclass(frozen=True, slots=True)
class TaskEventFor:
    """An event of a consumer for the producer of a partition. `event`: plain data."""

    partition_id: ResultPartitionId
    event: object
