"""What TaskManagers tell each other on a data connection, beside the data (wire). Knows no connection."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.ids import ResourceId, ResultPartitionId


@dataclass(frozen=True, slots=True)
class PeerGreeting:
    """First frame after the handshake: who dialled. The answer says whether this connection is used."""

    resource_id: ResourceId


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A consumer asks for one subpartition. `credit`: its first, in frames; `buffer_bytes`: most that one
    should hold.
    """

    partition_id: ResultPartitionId
    subpartition: int
    credit: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class TaskEventFor:
    """What a consumer sends to the producer of a partition. `event`: plain data."""

    partition_id: ResultPartitionId
    event: object
