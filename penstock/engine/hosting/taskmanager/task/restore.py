"""Restores an attempt: turns the handles of its deployment into the snapshots that its operators
restore.

Runs on the task's own thread, before its operators are opened. Source: Flink
StreamTaskStateInitializerImpl, RecoveredInputChannel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

from penstock.engine.hosting.shipping.main_classes import unreadable_state
from penstock.engine.hosting.shipping.pickling import loads_state
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.checkpoints import InFlightShare, StateHandle, TaskRestore
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import PenstockError
from penstock.engine.model.graph.chain import ChainInput
from penstock.engine.model.graph.partitioning import Partitioning
from penstock.engine.model.key_groups import key_group_range
from penstock.engine.runtime.checkpoint.input_checkpoints import replayed
from penstock.engine.runtime.codecs.events import Part
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.network.gate.network_input import NetworkInput
from penstock.engine.runtime.network.partitioner import Partitioner, make_partitioner
from penstock.engine.runtime.state.snapshot import (
    IN_HAND,
    KeyedPart,
    OperatorSnapshot,
    Pieces,
    StateInfo,
)
from penstock.engine.runtime.state.snapshot_reader import OtherParts, read_operator
from penstock.engine.runtime.task.stream_task import StreamTask

# ---------------------------------------------------------------------- restore in flight
# Restores data in flight of the checkpoint that an attempt begins with: into the task's hand and
# in front of its inputs.
#
# If the parallelism has changed, several subtasks read the data that was on its way to one former
# subtask. Each keeps its own records, as decided by the edge's partitioner. On the task's own
# thread. Source: Flink SequentialChannelStateReaderImpl, RecoveredInputChannel,
# DemultiplexingRecordDeserializer, RecordFilter (docs/spec/checkpoints.md#data-in-flight).


def recover_in_flight(
    deployment: TaskDeployment,
    read: Callable[[StateHandle], bytes],
    task: StreamTask,
    inputs: Sequence[NetworkInput],
) -> None:
    """Restore the shares in order. Raises: what `read`, a key selector or a custom partitioner raises; UserError: records cannot
    be unpickled.
    """
    restore = deployment.restore
    if restore is None or not restore.in_flight:
        return

    def loads(part: Part) -> Any:
        try:
            return loads_state(part)
        except Exception as error:  # Classes of users may raise anything.
            what = f"data in flight of checkpoint {restore.checkpoint_id}"
            raise unreadable_state(what, error) from error

    gates = {gate.data_set_id: index for index, gate in enumerate(deployment.gates)}
    by_index = {one.index: one for one in inputs}
    shared = _Shared(deployment, task.chain.spec.inputs)
    for share in restore.in_flight:
        data = read(share.handle)
        if share.data_set_id is None:
            input_index, batch = loads(data)
            mine = shared.in_hand(share, input_index, batch)
            task.restore_in_hand((input_index, one) for one in mine)
            continue
        gate = gates[share.data_set_id]
        owner = by_index[deployment.gates[gate].input_index]
        batches = (
            mine for batch in replayed(data, loads) for mine in shared.on_edge(share, gate, batch)
        )
        owner.recover(gate, share.producer, batches)


class _Shared:
    """Selects the records of a share that belong to this subtask."""

    def __init__(self, deployment: TaskDeployment, inputs: Sequence[ChainInput]) -> None:
        self._subtask = deployment.attempt_id.subtask
        self._inputs = inputs
        self._partitioner = lru_cache(maxsize=None)(self._make_partitioner)
        self._parallelism = deployment.parallelism
        self._max_parallelism = deployment.max_parallelism

    def on_edge(self, share: InFlightShare, gate: int, batch: Batch) -> Iterator[Batch]:
        partitioning = self._inputs[gate].partitioning
        return self._mine(share, gate if partitioning.strategy.goes_by_content else None, batch)

    def in_hand(self, share: InFlightShare, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Select from records in hand. Their edge is no longer known, but all edges of a keyed
        operator give the same owner.
        """
        gates = [i for i, one in enumerate(self._inputs) if one.input_index == input_index]
        first, *others = (self._inputs[gate].partitioning for gate in gates)
        is_one = first.strategy.goes_by_content and all(_is_same(first, one) for one in others)
        return self._mine(share, gates[0] if is_one else None, batch)

    def _mine(self, share: InFlightShare, gate: int | None, batch: Batch) -> Iterator[Batch]:
        """`gate`: its partitioner decides; None: one subtask takes the whole share."""
        if not share.is_filtered:
            yield batch
        elif gate is None:
            if share.is_owner:
                yield batch
        else:
            for channel, part in self._partitioner(gate).split(batch):
                if channel == self._subtask:
                    yield part

    def _make_partitioner(self, gate: int) -> Partitioner:
        return make_partitioner(
            self._inputs[gate].partitioning,
            self._parallelism,
            self._subtask,
            self._max_parallelism,
            start=0,
        )


def _is_same(one: Partitioning, other: Partitioning) -> bool:
    """Compare partitionings. Functions that are one object in the program are one here, because a
    chain is one pickle.
    """
    return replace(one, columns=None) == replace(other, columns=None)


# ---------------------------------------------------------------------- restore


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
    pieces = (
        OtherParts.READ_AGAIN
        if attempt.host.task_settings.state_backend.is_rocks
        else OtherParts.HELD
    )
    states = _read_states(deployment, restore, read, pieces)
    for state in states.values():
        in_hand = state.lists.pop(IN_HAND, None)
        if in_hand is not None:
            task.restore_in_hand(in_hand.elements)
    recover_in_flight(deployment, read, task, inputs)
    task.chain.restore(states)


def _read_states(
    deployment: TaskDeployment, restore: TaskRestore, read: _Read, pieces: OtherParts
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


def _unreadable(uid: str, checkpoint_id: int, error: Exception) -> PenstockError:
    return unreadable_state(f"the state of operator {uid!r} in checkpoint {checkpoint_id}", error)
