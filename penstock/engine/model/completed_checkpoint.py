"""A whole checkpoint: the content of its metadata file, and the state with which a restart begins. Plain data.

Source: Flink CompletedCheckpoint, OperatorState, CheckpointMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.model.checkpoints import (
    CheckpointType,
    DatabaseHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
    StateHandle,
)
from penstock.engine.model.ids import DataSetId, JobId
from penstock.engine.model.key_types import KeyMigration


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
    """A checkpoint that all tasks have acknowledged. `location`: of the metadata; None until it is written.

    `target_directory`: the directory that the user chose for a savepoint. `metadata_bytes`: size of the metadata file, where it
    has just been written.
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
