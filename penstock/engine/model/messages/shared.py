"""Bodies that events, effects and wire messages share. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.engine.model.ids import AllocationId, DataSetId, PartitionId, ResourceId
from penstock.engine.model.slot_size import UNSIZED, SlotSize
from penstock.engine.model.texts.bounded_text import MOST_OF_MESSAGE, cut_lines

_MOST_OF_TEXT: Final = MOST_OF_MESSAGE + 4096
"""A text that is cut already has more after it: the operator, the record, the task."""


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """A failure as text, so that nobody has to unpickle a user's exception. It is sent, logged, shown and kept, so it is bounded.

    `kind`: class name of the error. `text`: the message, user's traceback first, cut to about `MOST_OF_MESSAGE` characters. `is_user_code`: the user's
    function raised it. `is_recoverable` False: no restart can help. `lost_partition`: the partition that could not be
    read, if that was the cause. `lost_task_manager`: the TaskManager whose loss it is.
    """

    kind: str
    text: str
    is_user_code: bool = False
    is_recoverable: bool = True
    lost_partition: PartitionId | None = None
    lost_task_manager: ResourceId | None = None

    def __post_init__(self) -> None:
        limit = _MOST_OF_TEXT if len(self.text) <= _MOST_OF_TEXT else MOST_OF_MESSAGE
        object.__setattr__(self, "text", cut_lines(self.text, limit))


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """(wire) A slot that a TaskManager offers to the job that it was allocated for."""

    allocation_id: AllocationId
    slot_index: int
    size: SlotSize = UNSIZED


@dataclass(frozen=True, slots=True)
class SlotFreed:
    """(wire) A TaskManager has this slot free again. To the JobMaster and the ResourceManager."""

    resource_id: ResourceId
    slot_index: int
    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class Committable:
    """(wire) A sink subtask's prepared result, which the committer on the driver makes visible.

    `payload`: pickled on the TaskManager; only the committer's thread opens it.
    """

    node_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """(wire) The time in ms that latency markers take from a source to an operator: of the last 128; `count`: of all.

    `source_id`, `source_subtask`: '' and -1 if `metrics.latency.granularity` does not distinguish them.
    """

    source_id: str
    source_subtask: int
    operator_id: str
    count: int
    min_ms: int
    max_ms: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class UserMetric:
    """(wire) One number of a user function's metric. `name`: with its groups.

    A meter has `.count` after its name, a distribution `.count`, `.sum`, `.min` and `.max`.
    """

    operator_id: str
    operator: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class FrequentKey:
    """(wire) A key of which an attempt has sent many records lately. `key`: as text, which is cut. `count`: its records among the
    `records` of one batch that went to the subtask `channel`.
    """

    data_set_id: DataSetId
    channel: int
    key: str
    count: int
    records: int


class RecentFigures(NamedTuple):
    """(wire) How an attempt has spent its time, and what it has processed: per second over the last 5 s, or since its start. The
    three `*_ms_per_s` sum to 1,000.
    """

    busy_ms_per_s: float = 0.0
    idle_ms_per_s: float = 0.0
    backpressured_ms_per_s: float = 0.0
    records_in_per_s: float = 0.0
    records_out_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0


NOTHING_RECENT: Final = RecentFigures()


class TaskIo(NamedTuple):
    """(wire) Counters of one attempt. Bytes count encoded frames, and an estimate of what is never encoded; `remote_*` only those
    that crossed a socket.

    `*_ms`: since the start. `watermark_ms`: of the
    input (for a source: of its output). `buffers_in`: frames that wait for the task. `buffers_out`: frames that wait
    for its consumers. `mails`: mails that wait in its mailbox. `restored_*`: bytes of restored state, from its
    machine's disk and from the checkpoint directory. `user_metrics`: those of the user's functions, since the start of
    the attempt. `user_metrics_left_out`: how many more numbers there are; they are too many, or their names are too
    long.
    """

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    remote_bytes_in: int = 0
    remote_bytes_out: int = 0
    busy_ms: int = 0
    idle_ms: int = 0
    backpressured_ms: int = 0
    frequent_keys: tuple[FrequentKey, ...] = ()
    watermark_ms: int = -(2**63)
    late_records_dropped: int = 0
    buffers_in: int = 0
    buffers_out: int = 0
    mails: int = 0
    restored_local_bytes: int = 0
    restored_remote_bytes: int = 0
    latencies: tuple[LatencySummary, ...] = ()
    user_metrics: tuple[UserMetric, ...] = ()
    user_metrics_left_out: int = 0
    recent: RecentFigures = NOTHING_RECENT
