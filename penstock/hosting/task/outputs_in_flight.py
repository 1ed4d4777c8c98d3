"""What a task's barriers overtake on its way out, until it is written with the checkpoint.

Source: Flink ChannelStateWriterImpl, PipelinedSubpartition's channel state future
(docs/spec/checkpoints.md#data-in-flight). An aligned barrier that may be timed out counts as
through when its consumer has taken it, with nothing overtaken. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from penstock.hosting.shipping.pickling import dumps_records
from penstock.model.ids import DataSetId
from penstock.runtime.checkpoint.in_flight import recorded
from penstock.runtime.elements import Batch
from penstock.runtime.network.partition.pipelined import PipelinedSubpartition
from penstock.runtime.network.partition.result_partition import ResultPartition
from penstock.runtime.network.partition.subpartition import OutputState

Place: TypeAlias = tuple[DataSetId, int]
"""Edge, and channel of it: of an output the consumer's subtask, of an input the producer's."""


class OutputsInFlight:
    """Of all partitions of a task."""

    def __init__(
        self, channels: int, on_news: Callable[[int], None], on_failed: Callable[[int, str], None]
    ) -> None:
        """`channels`: that barriers overtake on. `on_news`: told, on any thread, when a checkpoint's outputs are all there.
        `on_failed`: a barrier will not get through, and why.
        """
        self._channels = channels
        self._on_news = on_news
        self._on_failed = on_failed
        self._lock = threading.Lock()
        self._found: dict[int, dict[Place, bytes]] = {}

    def of_edge(self, edge: DataSetId) -> OutputState:
        """For the subpartitions of an edge."""
        return _OfEdge(self, edge)

    def of(self, checkpoint_id: int) -> Mapping[Place, bytes] | None:
        """By edge and subpartition, where something was overtaken; None: not all barriers are through."""
        with self._lock:
            found = self._found.get(checkpoint_id, {})
            if len(found) < self._channels:
                return None
            return {place: data for place, data in found.items() if data}

    def forget(self, checkpoint_id: int) -> None:
        """All up to here: written, or of no use."""
        with self._lock:
            self._found = {i: found for i, found in self._found.items() if i > checkpoint_id}

    def complete(self, checkpoint_id: int, place: Place, batches: Sequence[Batch]) -> None:
        """Encoded at once: whoever takes these batches later may change their records."""
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
    """`OutputState`."""

    def __init__(self, owner: OutputsInFlight, edge: DataSetId) -> None:
        self._owner = owner
        self._edge = edge

    def complete(self, checkpoint_id: int, subpartition: int, overtaken: Sequence[Batch]) -> None:
        self._owner.complete(checkpoint_id, (self._edge, subpartition), overtaken)

    def fail(self, checkpoint_id: int, subpartition: int, cause: str) -> None:
        del subpartition
        self._owner.fail(checkpoint_id, cause)


def time_out_barriers(partitions: Sequence[ResultPartition], checkpoint_id: int) -> None:
    """Mailbox thread: aligned barriers have waited long enough, and overtake."""
    for subpartition in _overtaken(partitions):
        subpartition.time_out_barrier(checkpoint_id)


def forget_barriers(partitions: Sequence[ResultPartition], checkpoint_id: int) -> None:
    """Mailbox thread: nobody waits for what they overtake any more."""
    for subpartition in _overtaken(partitions):
        subpartition.abort_checkpoint(checkpoint_id, "the checkpoint was aborted")


def _overtaken(partitions: Sequence[ResultPartition]) -> Iterator[PipelinedSubpartition]:
    for partition in partitions:
        if partition.hooks.output_state is not None:
            for one in partition.subpartitions:
                if isinstance(one, PipelinedSubpartition):
                    yield one
