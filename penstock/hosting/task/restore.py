"""Restores an attempt: turns the handles of its deployment into the snapshots that its operators
restore.

Runs on the task's own thread, before its operators are opened. Source: Flink
StreamTaskStateInitializerImpl, RecoveredInputChannel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from penstock.hosting.shipping.pickling import loads_state
from penstock.hosting.task.ports import TaskAttempt
from penstock.hosting.task.restore_in_flight import recover_in_flight
from penstock.model.checkpoints import StateHandle
from penstock.model.completed_checkpoint import TaskRestore
from penstock.model.deployment import TaskDeployment
from penstock.model.errors import PenstockError, UserError
from penstock.model.key_groups import key_group_range
from penstock.runtime.network.gate.network_input import NetworkInput
from penstock.runtime.state.snapshot import IN_HAND, KeyedPart, OperatorSnapshot, Pieces, StateInfo
from penstock.runtime.state.snapshot_reader import Beside, read_operator
from penstock.runtime.task.stream_task import StreamTask

_Read = Callable[[StateHandle], bytes]


def groups_of(deployment: TaskDeployment) -> tuple[int, int]:
    """Return the first and last key group of the subtask."""
    subtask = deployment.attempt_id.subtask
    return key_group_range(deployment.max_parallelism, deployment.parallelism, subtask)


class RestoredFrom(Protocol):
    """The checkpoint that an attempt begins with."""

    def begin_with(self, checkpoint_id: int) -> None: ...
    def read(self, handle: StateHandle) -> bytes: ...


def restore_task(
    attempt: TaskAttempt,
    checkpoint: RestoredFrom,
    task: StreamTask,
    inputs: Sequence[NetworkInput],
) -> None:
    """Give state to the operators, and data in flight to the task and its inputs.

    Raises: CheckpointDamaged, naming the file; CheckpointIoError; UserError: values cannot be
    unpickled; CancelSignal.
    """
    deployment = attempt.deployment
    restore = deployment.restore
    if restore is None or not (restore.operators or restore.in_flight):
        return
    checkpoint.begin_with(restore.checkpoint_id)
    read = checkpoint.read
    pieces = Beside.READ_AGAIN if attempt.host.task_settings.state_backend.is_rocks else Beside.HELD
    states = _read_states(deployment, restore, read, pieces)
    for state in states.values():
        in_hand = state.lists.pop(IN_HAND, None)
        if in_hand is not None:
            task.restore_in_hand(in_hand.elements)
    recover_in_flight(deployment, read, task, inputs)
    task.chain.restore(states)


def _read_states(
    deployment: TaskDeployment, restore: TaskRestore, read: _Read, pieces: Beside
) -> Mapping[str, OperatorSnapshot]:
    """Return the states by uid. Keyed state is read later, when its operator takes it."""
    groups = groups_of(deployment)
    states: dict[str, OperatorSnapshot] = {}
    for uid, state in restore.operators:
        try:
            found = read_operator(state, read, groups, loads_state, pieces)
        except PenstockError:
            raise
        except Exception as error:
            raise _unreadable(uid, restore.checkpoint_id, error) from error
        if found.pieces is not None:
            found.pieces = _ExplainedPieces(found.pieces, uid, restore.checkpoint_id)
        states[uid] = found
    return states


class _ExplainedPieces:
    """State that is read when its operator is opened. Its errors name the operator, like those of
    state that is read before.
    """

    def __init__(self, pieces: Pieces, uid: str, checkpoint_id: int) -> None:
        self._pieces = pieces
        self._uid = uid
        self._checkpoint_id = checkpoint_id

    def not_taken(self) -> dict[str, StateInfo]:
        return self._pieces.not_taken()

    def __call__(self, prefix: str) -> Iterator[dict[str, KeyedPart]]:
        pieces = self._pieces(prefix)
        while True:
            try:
                piece = next(pieces, None)
            except PenstockError:
                raise
            except Exception as error:
                raise _unreadable(self._uid, self._checkpoint_id, error) from error
            if piece is None:
                return
            yield piece


def _unreadable(uid: str, checkpoint_id: int, error: Exception) -> UserError:
    return UserError(
        f"the state of operator {uid!r} in checkpoint {checkpoint_id} cannot be read: "
        f"{type(error).__name__}: {error}. The classes of its values must be importable where "
        "the task runs, under the names that they had when it was written."
    )
