"""What a checkpoint consists of: options, handles to state, and what a subtask acknowledges. Plain data.

A handle says where bytes of state are and how to know that they are whole. Knows no file system and no state.
Source: Flink CheckpointOptions, StreamStateHandle, KeyGroupsStateHandle, OperatorStateHandle, OperatorSubtaskState.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from penstock.model.ids import DataSetId

INLINE_BYTES = 20 * 1024
"""State smaller than this travels in the acknowledgement and lies in the metadata."""


SHARED_FOLDER = "shared"
"""Of a job's checkpoint directory: whole files to which several checkpoints refer."""


class CheckpointType(StrEnum):
    """STOP_*: synchronous savepoints, after which the job ends: with the end of its data (DRAIN) or without."""

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
    """`aligned_timeout_ms`: after so long an aligned checkpoint goes on unaligned; None: never. `is_forced_aligned`: on this
    edge nothing is overtaken; behind it the checkpoint goes on as it was. `target`: directory of a savepoint."""

    type: CheckpointType = CheckpointType.CHECKPOINT
    is_exactly_once: bool = True
    is_unaligned: bool = False
    aligned_timeout_ms: int | None = None
    target: str | None = None
    is_forced_aligned: bool = False


@dataclass(frozen=True, slots=True)
class TaskCheckpointing:
    """What the tasks of a job need to know of its checkpoints besides what each barrier says.

    `directory`: path or URI, the same for driver and tasks; below it every job has a folder of its own. `inline_bytes`: state
    smaller than that goes into the acknowledgement. `has_final_checkpoint`: a task that has read its last input waits for one
    more checkpoint before it is FINISHED, and its sinks commit with that; else they hand over to the driver.
    `is_exactly_once` False: barriers are counted, nothing is aligned. `may_be_unaligned`: barriers may overtake data.
    `are_finished_tasks_allowed`: an input that has ended does not keep the others from taking a checkpoint.
    `is_incremental`: of a database's files only those are written that no earlier checkpoint has.
    `has_local_copies`: what is written is kept on the TaskManager too, for a task that starts again there.
    `is_periodic`: checkpoints are taken from time to time, not savepoints only.
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


@dataclass(frozen=True, slots=True)
class FileHandle:
    """`size` bytes at `offset` of a file. `path`: below the job's checkpoint directory, or absolute. `checksum`: of these
    bytes, CRC-32."""

    path: str
    offset: int
    size: int
    checksum: int

    @property
    def is_shared(self) -> bool:
        """Later checkpoints may refer to it too: it goes when none does any more."""
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
    """State of the key groups `first_group` to `last_group`. `offsets`: where each group begins in the handle's bytes, one
    per group; a group ends where the next begins, the last one at the end."""

    first_group: int
    last_group: int
    offsets: tuple[int, ...]
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class DatabaseHandle:
    """A database on the disk of a TaskManager, as it was: all its files, by name, with keyed state of the key groups
    `first_group` to `last_group`. `role`: what it is to the operator, which may have several.
    """

    role: str
    first_group: int
    last_group: int
    files: tuple[tuple[str, StateHandle], ...]


class RedistributionMode(StrEnum):
    """How the elements of a list state go to the subtasks of another parallelism."""

    SPLIT = "SPLIT"
    UNION = "UNION"
    BROADCAST = "BROADCAST"


@dataclass(frozen=True, slots=True)
class ListStateHandle:
    """One named operator state. `offsets`: where each element begins in the handle's bytes, in order."""

    name: str
    mode: RedistributionMode
    offsets: tuple[int, ...]
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class ChannelStateHandle:
    """Data in flight on one channel. `data_set_id`: of the edge, None: what the task itself had read and not processed.

    `channel`: of an input the producer's subtask, of an output the consumer's, of what was in hand its order.
    """

    data_set_id: DataSetId | None
    channel: int
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class OperatorSubtaskState:
    """Of one operator in one subtask."""

    keyed: tuple[KeyedStateHandle, ...] = ()
    lists: tuple[ListStateHandle, ...] = ()
    inputs_in_flight: tuple[ChannelStateHandle, ...] = ()
    outputs_in_flight: tuple[ChannelStateHandle, ...] = ()
    databases: tuple[DatabaseHandle, ...] = ()

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
    """What a subtask acknowledges, or starts from. `operators`: (uid, state), head first. `is_finished`: it has seen the end
    of its data; restored, it only passes the end on."""

    operators: tuple[tuple[str, OperatorSubtaskState], ...] = ()
    is_finished: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(state.size_bytes for _, state in self.operators)


@dataclass(frozen=True, slots=True)
class CheckpointMetrics:
    """Of one subtask. Alignment: from the first barrier to the last. `written_bytes`: without what earlier checkpoints have written."""

    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    bytes_in_flight: int = 0
    start_delay_ms: float = 0.0
    written_bytes: int = 0
