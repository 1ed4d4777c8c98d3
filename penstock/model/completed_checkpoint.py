"""A checkpoint as a whole: what its metadata file holds and what a restart begins with. Plain data.

Source: Flink CompletedCheckpoint, OperatorState, CheckpointMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.checkpoints import (
    CheckpointType,
    DatabaseHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
    StateHandle,
)
from penstock.model.ids import DataSetId, JobId


@dataclass(frozen=True, slots=True)
class OperatorCheckpoint:
    """One operator's part. `subtasks`: by index, None where a subtask had finished before.

    `is_fully_finished`: all its subtasks had; a restored one starts as finished. `is_at_end`: all had, or had read the last of
    their data and kept some state: restored, they have nothing but their end to go through again.
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
    """All tasks have acknowledged. `location`: of the metadata; None until it is written.

    `target_directory`: of a savepoint, where the user wants it.
    """

    checkpoint_id: int
    job_id: JobId
    checkpoint_type: CheckpointType
    timestamp_ms: int
    operators: tuple[OperatorCheckpoint, ...]
    location: str | None = None
    target_directory: str | None = None

    @property
    def is_for_recovery(self) -> bool:
        """A plain savepoint is the user's: no restart of the job begins with it."""
        return self.checkpoint_type is not CheckpointType.SAVEPOINT


@dataclass(frozen=True, slots=True)
class ListStateShare:
    """What a subtask gets of a list that some subtask wrote: its elements from `first` to `last`, inclusive."""

    state: ListStateHandle
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class OperatorRestore:
    """What one operator of an attempt begins with. `keyed`, `databases`: handles that hold key groups of the attempt's range; they may
    hold others beside them, which it leaves alone.
    """

    keyed: tuple[KeyedStateHandle, ...] = ()
    lists: tuple[ListStateShare, ...] = ()
    databases: tuple[DatabaseHandle, ...] = ()


@dataclass(frozen=True, slots=True)
class InFlightShare:
    """Data in flight that a subtask reads before all that is new, in the order of its shares.

    `data_set_id`: of the edge that it was on, None: a former subtask had it in hand. `producer`: former subtask that sent it.
    `is_filtered`: it was on its way to a subtask of another parallelism, and where records go by their content others are
    given it too: each keeps what is its own. `is_owner`: one of them, which keeps what does not go by its content.
    """

    data_set_id: DataSetId | None
    producer: int
    handle: StateHandle
    is_filtered: bool = False
    is_owner: bool = True


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """What an attempt begins with: the state of its operators, (uid, state), and from which checkpoint.

    `is_finished`: all subtasks of its vertex had seen the end of their data: it only passes the end on. `in_flight`: of an
    unaligned checkpoint.
    """

    checkpoint_id: int
    operators: tuple[tuple[str, OperatorRestore], ...] = ()
    is_finished: bool = False
    in_flight: tuple[InFlightShare, ...] = ()
