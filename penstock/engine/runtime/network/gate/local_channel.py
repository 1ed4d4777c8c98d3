"""LocalInputChannel: reads a subpartition of the same process; batches are passed on as objects.

Does not know how partitions are stored, and has no clock. Source: Flink LocalInputChannel
(docs/spec/exchange.md#channels). Differs: when the partition arrives, the channel requests it at once instead of waiting for
the next try, so that the order in which tasks are deployed costs no back-off.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from penstock.engine.model.errors import ExternalError, PartitionNotFound
from penstock.engine.model.ids import ResultPartitionId
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.network.gate.backoff import Backoff
from penstock.engine.runtime.network.gate.channel import ChannelOwner, InputChannel
from penstock.engine.runtime.network.gate.ports import ChannelHost, ConsumerView
from penstock.engine.runtime.network.subpartition_view import NextType, Polled

SAMPLE_EVERY: Final = 64
BYTES_PER_ROW: Final = 64
"""Assumed size of a row from the same process, because the size of its objects is not known."""


class LocalInputChannel(InputChannel):
    """A channel within one process. `partition_id`, `subpartition`: what it reads."""

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
