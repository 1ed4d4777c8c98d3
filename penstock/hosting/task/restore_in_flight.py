"""Restores data in flight of the checkpoint that an attempt begins with: into the task's hand and
in front of its inputs.

If the parallelism has changed, several subtasks read the data that was on its way to one former
subtask. Each keeps its own records, as decided by the edge's partitioner. On the task's own thread.
Source: Flink SequentialChannelStateReaderImpl, RecoveredInputChannel,
DemultiplexingRecordDeserializer, RecordFilter (docs/spec/checkpoints.md#data-in-flight).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from penstock.hosting.shipping.pickling import loads_records
from penstock.model.checkpoints import StateHandle
from penstock.model.completed_checkpoint import InFlightShare
from penstock.model.deployment import TaskDeployment
from penstock.model.graph.chain import ChainInput
from penstock.model.graph.partitioning import Partitioning
from penstock.runtime.checkpoint.in_flight import replayed
from penstock.runtime.elements import Batch
from penstock.runtime.network.gate.network_input import NetworkInput
from penstock.runtime.network.partitioner import Partitioner, make_partitioner
from penstock.runtime.task.stream_task import StreamTask


def recover_in_flight(
    deployment: TaskDeployment,
    read: Callable[[StateHandle], bytes],
    task: StreamTask,
    inputs: Sequence[NetworkInput],
) -> None:
    """Restore the shares in order. Raises: what `read`, a key selector or a custom partitioner raises."""
    restore = deployment.restore
    if restore is None or not restore.in_flight:
        return
    gates = {gate.data_set_id: index for index, gate in enumerate(deployment.gates)}
    by_index = {one.index: one for one in inputs}
    shared = _Shared(deployment, task.chain.spec.inputs)
    for share in restore.in_flight:
        data = read(share.handle)
        if share.data_set_id is None:
            input_index, batch = loads_records(data)
            mine = shared.in_hand(share, input_index, batch)
            task.restore_in_hand((input_index, one) for one in mine)
            continue
        gate = gates[share.data_set_id]
        owner = by_index[deployment.gates[gate].input_index]
        batches = (
            mine
            for batch in replayed(data, loads_records)
            for mine in shared.on_edge(share, gate, batch)
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
