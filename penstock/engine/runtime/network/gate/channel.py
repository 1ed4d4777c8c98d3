"""InputChannel: what a gate sees of each kind of channel; and UnknownInputChannel, the placeholder.

Does not know where elements come from. Source: Flink InputChannel, UnknownInputChannel
(docs/spec/exchange.md#channels).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from penstock.engine.model.errors import EngineBug, ExternalError, PartitionNotFound, UserCodeError
from penstock.engine.model.ids import ResultPartitionId
from penstock.engine.runtime.elements import Batch, CheckpointBarrier, ColumnBatch, RowBatch
from penstock.engine.runtime.network.gate.missing_partition import Backoff
from penstock.engine.runtime.network.gate.ports import ChannelHost, ConsumerView, GateContext
from penstock.engine.runtime.network.network_memory import GateBuffers, LocalBufferPool
from penstock.engine.runtime.network.subpartition_view import NextType, Polled


class ChannelOwner(Protocol):
    """The gate as its channels see it. The `on_...` methods may be called from any thread."""

    index: int
    context: GateContext
    buffers: GateBuffers

    @property
    def pool(self) -> LocalBufferPool: ...
    @property
    def buffer_bytes(self) -> int: ...
    def on_channel_data(self, channel: InputChannel) -> None: ...
    def on_channel_priority(self, channel: InputChannel, sequence: int | None) -> None: ...
    def on_channel_announced(
        self, channel: InputChannel, barrier: CheckpointBarrier, sequence: int
    ) -> None: ...


class InputChannel(ABC):
    """One consumed subpartition. `bytes_in`, `buffers_in`: polled so far, including events.

    The gate's own marks on its channels are kept here, so that channels that were never made need no memory for them:
    `is_queued`, `is_finished` (end of partition), `has_ended_data`, `last_priority` (sequence number).
    """

    __slots__ = (
        "_error", "buffers_in", "bytes_in", "gate", "has_ended_data", "index", "is_finished",
        "is_queued", "is_released", "last_priority",
    )  # fmt: skip

    def __init__(self, gate: ChannelOwner, index: int) -> None:
        self.gate = gate
        self.index = index
        self.is_queued = False
        self.is_finished = False
        self.is_released = False
        self.has_ended_data = False
        self.last_priority: int | None = None
        self.bytes_in = 0
        self.buffers_in = 0
        self._error: Exception | None = None

    def request(self) -> None:
        """Ask the producer for the subpartition. Errors are kept for `poll`."""

    @abstractmethod
    def poll(self) -> Polled | None:
        """The next element, or None for now. Mailbox thread. Raises: the error of this channel."""

    def on_error(self, error: Exception) -> None:
        """Keep an error for the reader's next poll. Only the first one counts; errors of unknown classes are wrapped. Any thread."""
        if self._error is None:
            is_known = isinstance(error, ExternalError | UserCodeError | EngineBug)
            self._error = error if is_known else _wrapped(error)
        self.gate.on_channel_data(self)

    def notify_data(self) -> None:
        """There may be data. A call without new data costs one empty poll. Any thread."""
        # `poll` clears the mark before it looks for data, so no data is missed.
        if not self.is_queued:
            self.gate.on_channel_data(self)

    def notify_priority(self, sequence: int) -> None:
        """The element with this number has priority. Any thread."""
        self.gate.on_channel_priority(self, sequence)

    def overtaken(self, sequence: int) -> Sequence[Batch]:
        """The records in this channel that came before the element with this number and that it has overtaken. Mailbox thread."""
        return ()

    def prioritize(self, sequence: int) -> None:
        """Move the announced barrier with this number ahead of all data, unless it has been polled. Mailbox thread.

        Does nothing in a channel that keeps no data: nothing is announced there, because its producer handles such barriers.
        """

    def resume(self) -> None:
        """Go on after an element that blocked the channel."""

    def acknowledge_all_records(self) -> None:
        """Notify the producer that its last record was read."""

    def send_task_event(self, event: Any) -> None:
        """Send an event to the producer, against the direction of the data."""

    def announce_buffer_size(self, buffer_bytes: int) -> None:
        """Ask the producer for buffers of at most this size from now on."""

    def announce_row_limit(self) -> None:
        """Send the producer the number of records that may wait from now on:
        `gate.context.in_flight`.
        """

    @property
    def queued_buffers(self) -> int:
        """How many buffers wait here for the reader."""
        return 0

    @property
    def buffers_in_use(self) -> int:
        """`queued_buffers`, and the buffers that the sender has announced."""
        return self.queued_buffers

    def release(self) -> None:
        """Stop reading and give all buffers back. Mailbox thread; may be called twice."""
        self.is_released = True

    def check_error(self) -> None:
        """Raise the error that `on_error` kept, if any."""
        if self._error is not None:
            raise self._error


class UnknownInputChannel(InputChannel):
    """A channel whose producer's location is not known yet, so it cannot be read or requested."""

    __slots__ = ("task_events",)

    def __init__(self, gate: ChannelOwner, index: int) -> None:
        super().__init__(gate, index)
        self.task_events: list[Any] = []

    def poll(self) -> Polled | None:
        self.check_error()
        raise EngineBug(
            f"input channel {self.index} of gate {self.gate.index} was read before its producer's "
            "location was known"
        )

    def send_task_event(self, event: Any) -> None:
        """Keep the event until the producer is known."""
        self.task_events.append(event)


def _wrapped(error: Exception) -> ExternalError:
    wrapped = ExternalError(f"an input channel failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


SAMPLE_EVERY: Final = 64
BYTES_PER_ROW: Final = 64
"""Assumed size of a row from the same process, because the size of its objects is not known."""


class LocalInputChannel(InputChannel):
    """Reads a subpartition of the same process; batches are passed on as objects.

    Does not know how partitions are stored, and has no clock. Source: Flink LocalInputChannel
    (docs/spec/exchange.md#channels). Differs: when the partition arrives, the channel requests it at once instead of
    waiting for the next try, so that the order in which tasks are deployed costs no back-off.

    A channel within one process. `partition_id`, `subpartition`: what it reads.
    """

    __slots__ = (
        "_backlog", "_backoff", "_bytes_per_row", "_host", "_is_awaiting", "_lock", "_until_sample",
        "_view", "_wanted_bytes", "partition_id", "subpartition",
    )  # fmt: skip

    def __init__(
        self,
        gate: ChannelOwner,
        index: int,
        partition_id: ResultPartitionId,
        subpartition: int,
    ) -> None:
        super().__init__(gate, index)
        self.partition_id = partition_id
        self.subpartition = subpartition
        context = gate.context
        settings = context.settings
        self._host: ChannelHost = context.host
        self._lock: AbstractContextManager[Any] = context.new_lock()
        self._backoff = Backoff(settings.initial_backoff_ms, settings.max_backoff_ms)
        self._view: ConsumerView | None = None
        self._backlog = 0
        self._bytes_per_row = 0.0
        self._until_sample = 0
        self._is_awaiting = False
        self._wanted_bytes: int | None = None

    def request(self) -> None:
        """Open the view. Called by the gate at first, by the timer for the next try, and when the partition arrives. Any thread."""
        try:
            with self._lock:
                if self.is_released or self._view is not None:
                    return
                try:
                    view = self._host.create_view(self.partition_id, self.subpartition, self)
                except PartitionNotFound as error:
                    missing: PartitionNotFound | None = error
                else:
                    missing, self._view = None, view
        except ExternalError as error:
            self.on_error(error)
            return
        if missing is None:
            if self._wanted_bytes is not None:
                self.announce_buffer_size(self._wanted_bytes)
            self.announce_row_limit()
            # Data may have come before the view was opened.
            self.notify_data()
        else:
            self._try_again(missing)

    def on_error(self, error: Exception) -> None:
        if isinstance(error, PartitionNotFound):
            error.partition_id = self.partition_id
        super().on_error(error)

    def _try_again(self, missing: PartitionNotFound) -> None:
        if not self._backoff.increase():
            self.on_error(missing)
            return
        if not self._is_awaiting:
            self._is_awaiting = True
            self._host.await_partition(self.partition_id, self.request)
        self._host.call_later(self._backoff.current_ms, self.request)

    def poll(self) -> Polled | None:
        view = self._view
        if self._error is not None:
            raise self._error
        if view is None:
            return None
        while True:
            polled = view.poll()
            if polled is None:
                return None
            element = polled.element
            if isinstance(element, RowBatch):
                # An empty batch is skipped.
                if not element.values:
                    if polled.next is NextType.NONE:
                        # The frame is still being filled, so it is left alone.
                        return None
                    continue
                self.bytes_in += len(element.values) * BYTES_PER_ROW
            elif isinstance(element, ColumnBatch):
                self.bytes_in += self._column_bytes(element)
            self.buffers_in += 1
            self._backlog = polled.backlog
            return polled

    def _column_bytes(self, batch: ColumnBatch) -> int:
        """An estimate from the bytes per row of sampled batches, because Arrow takes 2 us per column to compute a size."""
        rows = len(batch)
        if self._until_sample == 0 and rows:
            self._until_sample = SAMPLE_EVERY
            self._bytes_per_row = batch.data.nbytes / rows
        self._until_sample = max(0, self._until_sample - 1)
        return int(rows * self._bytes_per_row)

    @property
    def queued_buffers(self) -> int:
        """The backlog after the element that was polled last."""
        return self._backlog

    def resume(self) -> None:
        view = self._view
        if view is None:
            return
        view.resume()
        if view.is_available(has_credit=True):
            self.notify_data()

    def acknowledge_all_records(self) -> None:
        if self._view is not None:
            self._view.acknowledge_all_records()

    def send_task_event(self, event: Any) -> None:
        self._host.publish_task_event(self.partition_id, event)

    def announce_buffer_size(self, buffer_bytes: int) -> None:
        self._wanted_bytes = buffer_bytes
        if self._view is not None:
            self._view.new_buffer_size(buffer_bytes)

    def announce_row_limit(self) -> None:
        if self._view is not None:
            self._view.limit_rows(self.gate.context.in_flight.rows)

    def release(self) -> None:
        with self._lock:
            if self.is_released:
                return
            self.is_released = True
            view = self._view
        if view is not None:
            view.release()
