"""The other messages of the control wire, those between TaskManagers on a data connection, and the progress snapshot for
console and REST. Plain data.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model import ids
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.messages.shared import SlotOffer
from penstock.engine.model.slot_size import UNSIZED, SlotSize
from penstock.engine.model.states import ExecutionState


@dataclass(frozen=True, slots=True)
class RegisterTaskManager:
    """(wire) The first message after the mutual challenge. `cores`: the cores that its host reserves for it. `spark_task` None: its host is not
    Spark.
    """

    resource_id: ids.ResourceId
    host: str
    data_port: int
    slots: int
    pid: int
    supervisor_pid: int
    python_version: str
    size: SlotSize = UNSIZED
    cores: int = 1
    spark_task: SparkTask | None = None


@dataclass(frozen=True, slots=True)
class RegistrationAccepted:
    """(wire)"""

    fencing_token: ids.FencingToken


@dataclass(frozen=True, slots=True)
class OfferSlots:
    """(wire)"""

    resource_id: ids.ResourceId
    offers: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class PutBlob:
    """(wire) The bytes of a blob, before the first deployment that names it."""

    key: ids.BlobKey
    data: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """(wire) `progress` rises whenever a mailbox of the TaskManager turns. `ios`: counters of its tasks (see
    `engine/hosting/network/wire/counters.py`), which the JobManager passes on without a look. Empty: it has no tasks.
    """

    resource_id: ids.ResourceId
    progress: int
    ios: bytes = b""


@dataclass(frozen=True, slots=True)
class MetricsReport:
    """(wire) All metrics of a TaskManager, or those of a task that ends. `payload`: see `engine/metrics/report_format.py`."""

    resource_id: ids.ResourceId
    payload: bytes


@dataclass(frozen=True, slots=True)
class ProcessStopped:
    """(wire) From a supervisor, in place of a heartbeat: a signal or a debugger has stopped its TaskManager."""

    resource_id: ids.ResourceId


@dataclass(frozen=True, slots=True)
class MasterHeartbeat:
    """(wire) The JobManager is alive. Goes to TaskManagers and supervisors."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """(wire) From a supervisor: its TaskManager has ended, or, to a pool of workers, its process; the cause, and the last output.

    `last_lines`: of a TaskManager's log. `for_memory`: the kernel has killed it, because memory was exhausted.
    """

    resource_id: ids.ResourceId
    cause: str
    last_lines: bytes = b""
    for_memory: bool = False


@dataclass(frozen=True, slots=True)
class KillTaskManager:
    """(wire) To a supervisor: its TaskManager cannot end by itself. The `cause` of the
    ProcessEnded that follows says where its tasks were.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """(wire) A source reader asks for a split."""

    attempt_id: ids.AttemptId
    node_id: int
    host: str


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """(wire) An event of a source reader for its enumerator. `event`: plain data."""

    attempt_id: ids.AttemptId
    node_id: int
    event: object


@dataclass(frozen=True, slots=True)
class ReportedWatermark:
    """(wire) The watermark of a source with watermark alignment; 2^63-1: it is idle or has ended."""

    attempt_id: ids.AttemptId
    node_id: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class MaxAllowedWatermark:
    """(wire) A source waits while its watermark is above this one (Flink's WatermarkAlignmentEvent)."""

    attempt_id: ids.AttemptId
    node_id: int
    watermark_ms: int
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class AddSplits:
    """(wire) Splits for a reader, pickled by the driver; only the TaskManager opens them."""

    attempt_id: ids.AttemptId
    node_id: int
    splits: bytes
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """(wire)"""

    attempt_id: ids.AttemptId
    node_id: int
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class DriverData:
    """(wire) A batch of a print or collect stream: opaque bytes until the driver's consumer opens
    them.

    `after_checkpoint`: the last checkpoint whose barrier the attempt sent before the batch; -1:
    none. Later checkpoints cover the batch.
    """

    stream: str
    attempt_id: ids.AttemptId
    records: int
    payload: bytes
    after_checkpoint: int = -1


@dataclass(frozen=True, slots=True)
class DriverCredit:
    """(wire) The driver took `frames` frames of this stream from this attempt."""

    stream: str
    attempt_id: ids.AttemptId
    frames: int
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class UserOutput:
    """(wire) What a user function wrote to stdout or stderr."""

    attempt_id: ids.AttemptId | None
    operator: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Shutdown:
    """(wire) End all tasks and exit."""

    reason: str
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class PartitionStateQuestion:
    """(wire) A consumer got PartitionNotFound, and asks for the state of the producer."""

    consumer: ids.AttemptId
    partition_id: ids.ResultPartitionId


@dataclass(frozen=True, slots=True)
class PartitionStateAnswer:
    """(wire) `producer_state` None: the attempt is not known any more."""

    consumer: ids.AttemptId
    partition_id: ids.ResultPartitionId
    producer_state: ExecutionState | None
    fencing_token: ids.FencingToken = ids.NO_TOKEN


@dataclass(frozen=True, slots=True)
class LogEvent:
    """(wire) A line of a log, with the repeats that followed it.

    `at_ms`: since 1970. `level`: as a number, as in Python's `logging`. `attempt_id` None: on a thread of no task.
    `sameness`: equal for lines that differ only in what they are about. `repeats`: further lines of this sameness.
    """

    at_ms: int
    level: int
    level_name: str
    logger: str
    attempt_id: ids.AttemptId | None
    operator: str
    text: str
    sameness: str
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class LogEvents:
    """(wire) Warnings and errors of a TaskManager's tasks. `left_out`: how many more there were."""

    resource_id: ids.ResourceId
    events: tuple[LogEvent, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A consumer asks for one subpartition. `credit`: the first credit, in frames.

    `buffer_bytes`: the largest number of bytes that one frame should hold. `row_limit`: how many records may wait for
    the consumer at the producer; None: any number.
    """

    partition_id: ids.ResultPartitionId
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

    partition_id: ids.ResultPartitionId
    event: object
