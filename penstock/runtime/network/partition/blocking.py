"""BoundedBlockingSubpartition: written to a file first, and read when it is complete, by any number of readers at once.

Does not know the kinds of files or threads: the lock comes from the host. Each subpartition has a file of its own; where all
have one file, see `sort_merge.py`. Source: Flink BoundedBlockingSubpartition
(docs/spec/exchange.md#blocking-subpartition). Differs: a flush shows nothing, because nobody may read before the end.
"""

from __future__ import annotations

from penstock.model.errors import EngineBug, ResultDataLost
from penstock.runtime.elements import Batch, Element, EndOfPartition
from penstock.runtime.network.network_memory import LocalBufferPool
from penstock.runtime.network.partition.blocking_view import BoundedBlockingView
from penstock.runtime.network.partition.bounded_data import BoundedData, DiskBuffer
from penstock.runtime.network.partition.buffer_builder import (
    BlockingFormat,
    BufferBuilder,
    event_buffer,
)
from penstock.runtime.network.partition.subpartition import REFUSED, Lock, SubpartitionOwner
from penstock.runtime.network.subpartition_view import ViewListener


class BoundedBlockingSubpartition:
    """`write`, `add`, `flush`, `finish`: the producer's thread. Views: other threads. `release`: any thread."""

    def __init__(
        self,
        index: int,
        owner: SubpartitionOwner,
        data: BoundedData,
        lock: Lock,
        blocking_format: BlockingFormat,
    ) -> None:
        self.index = index
        self.records = 0
        self.is_released = False
        self.partition_id = owner.partition_id
        self._owner = owner
        self._data = data
        self._lock = lock
        self._format = blocking_format
        self._builder = BufferBuilder(blocking_format, self._write_buffer)
        self._is_finished = False
        self._readers: set[BoundedBlockingView] = set()

    def use_pool(self, pool: LocalBufferPool) -> None:
        """The data that is gathered before it is written takes one of the buffers that the partition always gets."""
        self._builder.limit(pool.buffer_bytes)

    def limit_frames(self, frame_bytes: int) -> None:
        self._builder.sizes.limit(frame_bytes)

    def limit_rows(self, rows: int | None) -> None:
        """Does nothing: no record waits for a consumer in memory."""

    # -------------------------------------------------------------- producer's side

    def write(self, batch: Batch) -> None:
        """Append a batch. Raises: ResultWriteError. Whatever pickling a user's object raises."""
        if self._is_finished or not len(batch):
            return
        self.records += len(batch)
        self._builder.write(batch)

    def add(self, event: Element) -> int:
        if self._is_finished:
            return REFUSED
        self._builder.add(event_buffer(event))
        return self._builder.sizes.frame_bytes

    def add_frame(self, batch: Batch, *, is_finished: bool) -> int:
        """Add a frame of its own. It is written now, or held until something follows it. Returns as `add`."""
        if self._is_finished:
            return REFUSED
        self.records += len(batch)
        self._builder.hold(batch)
        if is_finished:
            self._builder.end_frame()
        return self._builder.sizes.frame_bytes

    @property
    def queued(self) -> int:
        """Always 0: written data is in the file."""
        return 0

    def flush(self) -> None:
        """Write what is held. Nobody needs it yet, because reading begins after the end. Raises: as `write`."""
        if not self._is_finished:
            self._builder.flush()

    def finish(self) -> None:
        """Raises: EngineBug: finished or released. ResultWriteError."""
        if self._is_finished:
            state = "released" if self.is_released else "finished"
            raise EngineBug(f"subpartition {self.index} is to be finished, but is {state} already")
        self._builder.add(event_buffer(EndOfPartition()))
        with self._lock:
            self._is_finished = True
            if not self.is_released:
                self._data.finish_write()

    def _write_buffer(self, buffer: DiskBuffer) -> None:
        # A release from outside closes the file.
        with self._lock:
            if not self.is_released:
                self._data.write(buffer)

    # -------------------------------------------------------------- consumers' side

    def create_view(
        self, listener: ViewListener, *, is_encoded: bool = False
    ) -> BoundedBlockingView:
        """Open one more reading from the start. `is_encoded`: it gives `EncodedFrame`s instead of batches.

        Raises: EngineBug: it is not finished. ResultDataLost: it is released, or its file is gone.
        """
        with self._lock:
            if self.is_released:
                raise ResultDataLost(f"subpartition {self.index} of a blocking result is released")
            if not self._is_finished:
                raise EngineBug(
                    f"subpartition {self.index} of a blocking result is read before it is complete"
                )
            try:
                reader = self._data.create_reader()
                view = BoundedBlockingView(self, reader, self._format, is_encoded=is_encoded)
            except ResultDataLost as error:
                raise self.named(error) from error.__cause__
            self._readers.add(view)
            return view

    @property
    def data_frames(self) -> int:
        return self._builder.data_frames

    def named(self, error: ResultDataLost) -> ResultDataLost:
        """Add the id of the lost result to the error: its producer has to run again."""
        error.partition_id = self.partition_id
        return error

    def on_view_released(self, view: BoundedBlockingView) -> None:
        """Called by each view, once."""
        with self._lock:
            self._readers.discard(view)
            is_over = self.is_released and not self._readers
        if is_over:
            self._data.close()
        self._owner.on_consumed(self.index)

    def release(self, failure: str | None = None) -> None:
        """The file is deleted when its last reader has ended."""
        with self._lock:
            if self.is_released:
                return
            self.is_released = self._is_finished = True
            self._builder.clear()
            is_over = not self._readers
        if is_over:
            self._data.close()
