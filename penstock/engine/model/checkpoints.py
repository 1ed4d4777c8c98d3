"""Checkpoints as plain data: their parts, a whole one with the state that a restart begins with, and their statistics.

A handle says where the bytes of a state are, and how to check that they are complete. Does not know file systems or
state. Source: Flink CheckpointOptions, StreamStateHandle, KeyGroupsStateHandle, OperatorStateHandle,
OperatorSubtaskState, CompletedCheckpoint, OperatorState, CheckpointMetadata, CheckpointStatsSnapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from penstock.engine.model.ids import DataSetId, JobId, TaskManagerLocation
from penstock.engine.model.key_types import KeyMigration, KeyType

INLINE_BYTES = 20 * 1024
"""State smaller than this travels in the acknowledgement and is stored in the metadata."""


METADATA = "_metadata"
"""The file, in a checkpoint's folder, that is written last."""
SHARED_FOLDER = "shared"
"""The folder, in a job's checkpoint directory, of whole files to which several checkpoints refer."""


class CheckpointType(StrEnum):
    """Kinds of checkpoints. STOP_*: synchronous savepoints, after which the job ends.

    STOP_DRAIN ends it with the end of its data (event time is advanced to the end), STOP_SUSPEND without.
    """

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    STOP_DRAIN = "STOP_DRAIN"
    STOP_SUSPEND = "STOP_SUSPEND"

    @property
    def is_savepoint(self) -> bool:
        return self is not type(self).CHECKPOINT

    @property
    def is_synchronous(self) -> bool:
        return self in (type(self).STOP_DRAIN, type(self).STOP_SUSPEND)


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Options that a checkpoint barrier carries.

    `aligned_timeout_ms`: an aligned checkpoint becomes unaligned after this time; None: never.
    `is_forced_aligned`: the barrier overtakes nothing on this edge. Downstream of the edge the
    checkpoint is unaligned again if it was before. `target`: the directory of a savepoint.
    `is_held`: each task stops after its snapshot until the checkpoint is complete or aborted. If it
    is complete, the task ends and the next generation of the job continues from it. If it is
    aborted, the task continues.
    """

    type: CheckpointType = CheckpointType.CHECKPOINT
    is_exactly_once: bool = True
    is_unaligned: bool = False
    aligned_timeout_ms: int | None = None
    target: str | None = None
    is_forced_aligned: bool = False
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class TaskCheckpointing:
    """Settings of a job's checkpoints that its tasks need, apart from the options that come with
    each barrier.

    `directory`: a path or URI, the same for driver and tasks; each job has its own folder in it.
    `inline_bytes`: smaller state travels in the acknowledgement. `has_final_checkpoint`: a task
    that has read its last input waits for one more checkpoint before it is FINISHED, and its sinks
    commit with that checkpoint; otherwise the driver commits. `is_exactly_once` False: barriers are
    counted and not aligned. `may_be_unaligned`: barriers may overtake data.
    `are_finished_tasks_allowed`: checkpoints are also taken after some inputs have ended.
    `is_incremental`: only those files of a database are written that no earlier checkpoint has.
    `has_local_copies`: the TaskManager keeps a copy, for a task that starts again there.
    `is_periodic`: checkpoints are taken at an interval, not only savepoints. `kept_bytes`: how much
    of the state of a handover a TaskManager keeps for those that take it over.
    """

    directory: str
    inline_bytes: int = INLINE_BYTES
    has_final_checkpoint: bool = False
    is_exactly_once: bool = True
    may_be_unaligned: bool = False
    are_finished_tasks_allowed: bool = True
    is_incremental: bool = False
    has_local_copies: bool = False
    is_periodic: bool = False
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FileHandle:
    """`size` bytes at `offset` of a file. `path`: below the job's checkpoint directory, or absolute.

    `checksum`: the CRC-32 of these bytes. `kept_by`: a TaskManager that keeps them too, for as long as it lives and has
    room; None: nobody does.
    """

    path: str
    offset: int
    size: int
    checksum: int
    kept_by: TaskManagerLocation | None = field(default=None, compare=False)

    @property
    def is_shared(self) -> bool:
        """Whether later checkpoints may refer to the file too. It is deleted when no checkpoint refers to it."""
        path = self.path.partition("?")[0] if "://" in self.path else self.path
        return path.rpartition("/")[0].endswith(f"/{SHARED_FOLDER}")


@dataclass(frozen=True, slots=True)
class InlineHandle:
    """The bytes themselves. `checksum`: CRC-32."""

    data: bytes
    checksum: int

    @property
    def size(self) -> int:
        return len(self.data)


StateHandle: TypeAlias = FileHandle | InlineHandle


@dataclass(frozen=True, slots=True)
class KeyedStateHandle:
    """State of the key groups `first_group` to `last_group`.

    `offsets`: where each group begins in the handle's bytes, one per group. A group ends where the next one begins, and
    the last one at the end of the bytes.
    """

    first_group: int
    last_group: int
    offsets: tuple[int, ...]
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class DatabaseHandle:
    """A copy of a database on a TaskManager's disk: all its files, by name.

    It has keyed state of the key groups `first_group` to `last_group`. `role`: the database's purpose, as an operator
    may have several.
    """

    role: str
    first_group: int
    last_group: int
    files: tuple[tuple[str, StateHandle], ...]


class RedistributionMode(StrEnum):
    """How the elements of a list state are distributed when the parallelism changes."""

    SPLIT = "SPLIT"
    UNION = "UNION"
    BROADCAST = "BROADCAST"


@dataclass(frozen=True, slots=True)
class ListStateHandle:
    """One named operator state. `offsets`: where each element begins in the handle's bytes, in order.

    `type_text`: the declared type of each element, as `engine/model/texts/type_texts.py` writes it; None: there is none.
    """

    name: str
    mode: RedistributionMode
    offsets: tuple[int, ...]
    handle: StateHandle
    type_text: str | None = None


@dataclass(frozen=True, slots=True)
class ChannelStateHandle:
    """Data in flight on one channel. `data_set_id`: of the edge; None: the task had read the data but not processed it.

    `channel`: for an input the producer's subtask, for an output the consumer's; for data that was read, its order.
    """

    data_set_id: DataSetId | None
    channel: int
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class OperatorSubtaskState:
    """The state of one operator in one subtask. `keys`: of its keyed state; None: it has none, or an earlier release wrote it."""

    keyed: tuple[KeyedStateHandle, ...] = ()
    lists: tuple[ListStateHandle, ...] = ()
    inputs_in_flight: tuple[ChannelStateHandle, ...] = ()
    outputs_in_flight: tuple[ChannelStateHandle, ...] = ()
    databases: tuple[DatabaseHandle, ...] = ()
    keys: KeyType | None = None

    @property
    def handles(self) -> Iterator[StateHandle]:
        for part in (self.keyed, self.lists, self.inputs_in_flight, self.outputs_in_flight):
            for one in part:
                yield one.handle
        for database in self.databases:
            for _, handle in database.files:
                yield handle

    @property
    def size_bytes(self) -> int:
        return sum(handle.size for handle in self.handles)


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """The state that a subtask acknowledges, or starts from. `operators`: (uid, state), head first.

    `is_finished`: the subtask has seen the end of its data. Restored, it only passes the end on.
    """

    operators: tuple[tuple[str, OperatorSubtaskState], ...] = ()
    is_finished: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(state.size_bytes for _, state in self.operators)


@dataclass(frozen=True, slots=True)
class CheckpointMetrics:
    """Measurements of one subtask. Start delay: from the trigger to the first barrier. Alignment: from the first barrier to the last.

    `written_bytes`: without the bytes that earlier checkpoints have written. `processed_bytes`: read during the alignment.
    """

    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    bytes_in_flight: int = 0
    start_delay_ms: float = 0.0
    written_bytes: int = 0
    processed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OperatorCheckpoint:
    """The state of one operator. `subtasks`: by index; None: the subtask had finished before.

    `is_fully_finished`: all its subtasks had finished; a restored operator starts as finished. `is_at_end`: every
    subtask had finished, or had read its last data and kept some state; restored, they only go through their end again.
    """

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: tuple[OperatorSubtaskState | None, ...]
    is_fully_finished: bool = False
    coordinator_state: bytes | None = None
    is_at_end: bool = False


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A whole checkpoint: the content of its metadata file, and the state with which a restart begins. Plain data.

    Source: Flink CompletedCheckpoint, OperatorState, CheckpointMetadata.

    A checkpoint that all tasks have acknowledged. `location`: of the metadata; None until it is written.

    `target_directory`: the directory that the user chose for a savepoint. `metadata_bytes`: size of the metadata file,
    where it has just been written.
    """

    checkpoint_id: int
    job_id: JobId
    checkpoint_type: CheckpointType
    timestamp_ms: int
    operators: tuple[OperatorCheckpoint, ...]
    location: str | None = None
    target_directory: str | None = None
    metadata_bytes: int = field(default=0, compare=False)

    @property
    def is_for_recovery(self) -> bool:
        """Whether a restart may begin with it. A plain savepoint belongs to the user, and no restart uses it."""
        return self.checkpoint_type is not CheckpointType.SAVEPOINT


@dataclass(frozen=True, slots=True)
class ListStateShare:
    """A subtask's share of a list that some subtask wrote: its elements from `first` to `last`, inclusive."""

    state: ListStateHandle
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class OperatorRestore:
    """The state with which one operator of an attempt begins.

    `keyed`, `databases`: handles that hold key groups of the attempt's range. They may hold other groups, which the
    attempt ignores. `keys`: what is done to restored keys; None: nothing. `allows_double`: integers may become DOUBLE.
    `key_kinds`: the classes that the keys had in a savepoint of another job, if their type was not declared.
    """

    keyed: tuple[KeyedStateHandle, ...] = ()
    lists: tuple[ListStateShare, ...] = ()
    databases: tuple[DatabaseHandle, ...] = ()
    keys: KeyMigration | None = None
    allows_double: bool = False
    key_kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InFlightShare:
    """Data in flight that a subtask reads before any new data, in the order of its shares.

    `data_set_id`: of the edge that the data was on; None: an earlier subtask had read it. `producer`: the earlier
    subtask that sent it. `is_filtered`: the data was sent to a subtask of another parallelism. If records of the edge
    go by their content, other subtasks read the same data, and each keeps its own records. `is_owner`: this subtask
    alone keeps the elements that do not go by content.
    """

    data_set_id: DataSetId | None
    producer: int
    handle: StateHandle
    is_filtered: bool = False
    is_owner: bool = True


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """The state with which an attempt begins: (uid, state) of its operators, and the checkpoint.

    `is_finished`: all subtasks of its vertex had seen the end of their data, so that it only passes the end on.
    `in_flight`: the data in flight of an unaligned checkpoint.
    """

    checkpoint_id: int
    operators: tuple[tuple[str, OperatorRestore], ...] = ()
    is_finished: bool = False
    in_flight: tuple[InFlightShare, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A checkpoint or savepoint that has ended. `location`: of its metadata; None: it failed, and `failure` says why.

    `triggered_at_ms`: epoch milliseconds. `duration_ms`: until the last task acknowledged it, or until it failed.
    `size_bytes`: of the acknowledged state. `written_bytes`: the part of it that was written for this checkpoint; less with incremental
    checkpoints. The other numbers are the largest of all tasks.
    """

    checkpoint_id: int
    checkpoint_type: CheckpointType
    triggered_at_ms: int
    duration_ms: int
    size_bytes: int
    alignment_ms: float
    sync_ms: float
    async_ms: float
    location: str | None = None
    failure: str | None = None
    written_bytes: int = 0

    @property
    def is_completed(self) -> bool:
        return self.location is not None


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """The checkpoint from which attempts of the job were restored. `restored_at_ms`: epoch milliseconds. `is_savepoint`: whoever took
    it still owns it, so the job never deletes it.
    """

    checkpoint_id: int
    restored_at_ms: int
    location: str | None = None
    is_savepoint: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointStatistics:
    """Statistics of a job's checkpoints, as a program sees them. Plain data. Source: Flink CheckpointStatsSnapshot,
    CheckpointStatsHistory.

    Statistics of one job since its driver started. `restored`: how often it was restored from a checkpoint.

    `history`: the newest checkpoints that have ended, oldest first.
    """

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0
    latest_completed: CheckpointSummary | None = None
    latest_savepoint: CheckpointSummary | None = None
    latest_failed: CheckpointSummary | None = None
    latest_restored: RestoredCheckpoint | None = None
    history: tuple[CheckpointSummary, ...] = ()

    @property
    def triggered(self) -> int:
        return self.in_progress + self.completed + self.failed
