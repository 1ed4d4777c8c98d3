"""What else crosses the control wire, and the progress snapshot for console and REST. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.ids import (
    NO_TOKEN,
    AttemptId,
    BlobKey,
    FencingToken,
    ResourceId,
    ResultPartitionId,
    VertexId,
)
from penstock.model.messages.shared import SlotOffer, TaskIo
from penstock.model.slot_size import UNSIZED, SlotSize
from penstock.model.states import ExecutionState


@dataclass(frozen=True, slots=True)
class RegisterTaskManager:
    """(wire) First message after the mutual challenge. `cores`: what its host reserves for it."""

    resource_id: ResourceId
    host: str
    data_port: int
    slots: int
    pid: int
    supervisor_pid: int
    python_version: str
    size: SlotSize = UNSIZED
    cores: int = 1


@dataclass(frozen=True, slots=True)
class RegistrationAccepted:
    """(wire)"""

    fencing_token: FencingToken


@dataclass(frozen=True, slots=True)
class OfferSlots:
    """(wire)"""

    resource_id: ResourceId
    offers: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class PutBlob:
    """(wire) The bytes of a blob, before the first deployment that names it."""

    key: BlobKey
    data: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """(wire) `progress` rises whenever a mailbox of the TaskManager turns."""

    resource_id: ResourceId
    progress: int
    ios: tuple[tuple[AttemptId, TaskIo], ...] = ()


@dataclass(frozen=True, slots=True)
class MasterHeartbeat:
    """(wire) The JobManager is there. To TaskManagers and supervisors."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """(wire) Of a supervisor: its TaskManager is over, why, and its last words."""

    resource_id: ResourceId
    cause: str


@dataclass(frozen=True, slots=True)
class KillTaskManager:
    """(wire) To a supervisor: its TaskManager cannot end by itself. ProcessEnded tells where its tasks were."""

    reason: str


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """(wire) A source reader wants work."""

    attempt_id: AttemptId
    node_id: int
    host: str


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """(wire) A source reader tells its enumerator something of their own. `event`: plain data."""

    attempt_id: AttemptId
    node_id: int
    event: object


@dataclass(frozen=True, slots=True)
class ReportedWatermark:
    """(wire) A source with watermark alignment tells how far it is; 2^63-1: idle, or at its end."""

    attempt_id: AttemptId
    node_id: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class MaxAllowedWatermark:
    """(wire) A source waits while its watermark is above this (Flink's WatermarkAlignmentEvent)."""

    attempt_id: AttemptId
    node_id: int
    watermark_ms: int
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class AddSplits:
    """(wire) Splits for a reader, pickled by the driver; only the TaskManager opens them."""

    attempt_id: AttemptId
    node_id: int
    splits: bytes
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """(wire)"""

    attempt_id: AttemptId
    node_id: int
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class DriverData:
    """(wire) A batch of a print or collect stream: opaque bytes until the driver's consumer opens them.

    `behind_checkpoint`: the last one whose barrier the attempt has passed; -1: none. Later ones cover the batch.
    """

    stream: str
    attempt_id: AttemptId
    records: int
    payload: bytes
    behind_checkpoint: int = -1


@dataclass(frozen=True, slots=True)
class DriverCredit:
    """(wire) The driver took `frames` frames of this stream from this attempt."""

    stream: str
    attempt_id: AttemptId
    frames: int
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class UserOutput:
    """(wire) What a user function wrote to stdout or stderr."""

    attempt_id: AttemptId | None
    operator: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Shutdown:
    """(wire) End all tasks and exit."""

    reason: str
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class PartitionStateQuestion:
    """(wire) A consumer was told PartitionNotFound: what became of the producer?"""

    consumer: AttemptId
    partition_id: ResultPartitionId


@dataclass(frozen=True, slots=True)
class PartitionStateAnswer:
    """(wire) `producer_state` None: that attempt is not known any more."""

    consumer: AttemptId
    partition_id: ResultPartitionId
    producer_state: ExecutionState | None
    fencing_token: FencingToken = NO_TOKEN


@dataclass(frozen=True, slots=True)
class VertexProgress:
    """Snapshot of one job vertex for console and REST: subtasks by state and summed counters."""

    vertex_id: VertexId
    name: str
    parallelism: int
    states: dict[ExecutionState, int]
    records_in: int
    records_out: int
