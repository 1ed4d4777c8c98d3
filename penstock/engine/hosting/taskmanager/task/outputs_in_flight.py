"""Data that a task's barriers overtake at its outputs, kept until it is written with the
checkpoint.

Source: Flink ChannelStateWriterImpl, PipelinedSubpartition's channel state future
(docs/spec/checkpoints.md#data-in-flight). An aligned barrier that may time out counts as through
when its consumer has taken it; then it has overtaken nothing. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from penstock.engine.hosting.shipping.pickling import dumps_records
from penstock.engine.model.ids import DataSetId
from penstock.engine.runtime.checkpoint.input_checkpoints import recorded
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.network.partition.pipelined import PipelinedSubpartition
from penstock.engine.runtime.network.partition.result_partition import ResultPartition
from penstock.engine.runtime.network.partition.subpartition import OutputState

Place: TypeAlias = tuple[DataSetId, int]
"""Edge, and channel of it: for an output the consumer's subtask, for an input the producer's."""


class OutputsInFlight:
    """The overtaken data of all partitions of a task."""

    def __init__(
        self, channels: int, on_news: Callable[[int], None], on_failed: Callable[[int, str], None]
    ) -> None:
        """`channels`: number of channels on which barriers may overtake.

        `on_news`: called, on any thread, when all outputs of a checkpoint are there. `on_failed`:
        called when a barrier cannot get through, with the cause.
        """
        self._channels = channels
        self._on_news = on_news
        self._on_failed = on_failed
        self._lock = threading.Lock()
        self._found: dict[int, dict[Place, bytes]] = {}

    def of_edge(self, edge: DataSetId) -> OutputState:
        """Return what the subpartitions of an edge report to."""
        return _OfEdge(self, edge)

    def of(self, checkpoint_id: int) -> Mapping[Place, bytes] | None:
        """Return the overtaken data by edge and subpartition; None: some barriers are not through yet."""
        with self._lock:
            found = self._found.get(checkpoint_id, {})
            if len(found) < self._channels:
                return None
            return {place: data for place, data in found.items() if data}

    def forget(self, checkpoint_id: int) -> None:
        """Forget this checkpoint and older ones: they are written, or not needed."""
        with self._lock:
            self._found = {i: found for i, found in self._found.items() if i > checkpoint_id}

    def complete(self, checkpoint_id: int, place: Place, batches: Sequence[Batch]) -> None:
        """Take the data that a barrier has overtaken. It is encoded at once, because a consumer may
        later change these records.
        """
        data = recorded(batches, dumps_records)
        with self._lock:
            found = self._found.setdefault(checkpoint_id, {})
            found[place] = data
            is_whole = len(found) == self._channels
        if is_whole:
            self._on_news(checkpoint_id)

    def fail(self, checkpoint_id: int, cause: str) -> None:
        self.forget(checkpoint_id)
        self._on_failed(checkpoint_id, cause)


class _OfEdge:
    """`OutputState` of one edge."""

    def __init__(self, owner: OutputsInFlight, edge: DataSetId) -> None:
        self._owner = owner
        self._edge = edge

    def complete(self, checkpoint_id: int, subpartition: int, overtaken: Sequence[Batch]) -> None:
        self._owner.complete(checkpoint_id, (self._edge, subpartition), overtaken)

    def fail(self, checkpoint_id: int, subpartition: int, cause: str) -> None:
        del subpartition
        self._owner.fail(checkpoint_id, cause)


def time_out_barriers(partitions: Sequence[ResultPartition], checkpoint_id: int) -> None:
    """The aligned barriers have waited too long, and now overtake. Mailbox thread."""
    for subpartition in _overtaken(partitions):
        subpartition.time_out_barrier(checkpoint_id)


def forget_barriers(partitions: Sequence[ResultPartition], checkpoint_id: int) -> None:
    """Drop what barriers of this checkpoint have overtaken. Mailbox thread."""
    for subpartition in _overtaken(partitions):
        subpartition.abort_checkpoint(checkpoint_id, "the checkpoint was aborted")


def _overtaken(partitions: Sequence[ResultPartition]) -> Iterator[PipelinedSubpartition]:
    for partition in partitions:
        if partition.hooks.output_state is not None:
            for one in partition.subpartitions:
                if isinstance(one, PipelinedSubpartition):
                    yield one
