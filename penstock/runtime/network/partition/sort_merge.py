"""SortMergeResult: all subpartitions of a blocking partition in one file, written region by region. A file for each subpartition
would be too many where there are thousands.

Does not know threads: locks come from the host. Source: Flink SortMergeResultPartition, SortMergeSubpartitionReader
(docs/spec/exchange.md#sort-merge-results). Differs: if the buffer is full, its batches are encoded and compressed first,
and only if that does not make half of it free, a region is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, overload

from penstock.model.errors import EngineBug, ResultDataLost
from penstock.runtime.elements import Batch, Element, EndOfPartition
from penstock.runtime.network.network_memory import LocalBufferPool
from penstock.runtime.network.partition.blocking_view import BoundedBlockingView
from penstock.runtime.network.partition.buffer_builder import (
    BlockingFormat,
    SortMerge,
    event_buffer,
)
from penstock.runtime.network.partition.region_files import RegionFiles, RegionReader
from penstock.runtime.network.partition.sort_buffer import SortBuffer
from penstock.runtime.network.partition.subpartition import REFUSED, Lock, SubpartitionOwner
from penstock.runtime.network.subpartition_view import ViewListener

SLICE_BYTES: Final = 2 << 20
"""More of one subpartition in one place makes reading no quicker."""


class SortMergeResult:
    """What is written here, every consumer gets; `write_to` and its like write to one subpartition. `write...`, `add...`,
    `finish`: the producer's thread. Views: other threads. `release`: any thread. `frame_bytes`: the wanted size of frames.
    """

    def __init__(
        self,
        subpartitions: int,
        owner: SubpartitionOwner,
        blocking_format: BlockingFormat,
        settings: SortMerge,
        make_lock: Callable[[], Lock],
    ) -> None:
        """Raises: ResultWriteError: a file cannot be made."""
        self.settings = settings
        self.partition_id = owner.partition_id
        self.is_released = False
        self._owner = owner
        self._format = blocking_format
        self._lock = make_lock()
        self._buffer = SortBuffer(subpartitions, blocking_format)
        self._files = RegionFiles(settings.new_path, subpartitions, make_lock())
        self._pool: LocalBufferPool | None = None
        self._is_finished = False
        self._readers = 0
        self._most = self._buffer_bytes()

    def use_pool(self, pool: LocalBufferPool) -> None:
        """The sort buffer is as large as the pool. Frames are no larger than the buffers of others, because consumers read them."""
        self._pool = pool
        self._most = self._buffer_bytes()
        self._buffer.frame_limit = pool.buffer_bytes

    def limit_frames(self, frame_bytes: int) -> None:
        self._buffer.frame_limit = frame_bytes

    def limit_rows(self, rows: int | None) -> None:
        """Does nothing: no record waits for a consumer in memory."""

    @property
    def frame_bytes(self) -> int:
        return min(self._format.frame_bytes, self._buffer.frame_limit)

    def _buffer_bytes(self) -> int:
        """How much to gather. The pool may have more or less each time. Few subpartitions need no large regions."""
        settings = self.settings
        most = settings.min_buffers * settings.segment_bytes
        if self._pool is not None:
            most = self._pool.total_bytes
        return min(most, self._buffer.subpartitions * SLICE_BYTES)

    # -------------------------------------------------------------- producer's side

    def write(self, batch: Batch) -> None:
        """Append a batch to all subpartitions. It is stored once. Raises: ResultWriteError. Whatever pickling a user's object raises."""
        if self._is_finished or not len(batch):
            return
        if self._buffer.is_by_subpartition:
            self._write_region()
        self._buffer.write_shared(batch)
        self._make_room()

    def write_to(self, index: int, batch: Batch) -> None:
        """Append a batch to one subpartition. Raises: as `write`."""
        if self._is_finished or not len(batch):
            return
        buffer = self._buffer
        if buffer.shared is not None:
            self._write_region()
        if buffer.write(index, batch) >= self._most:
            self._make_room()

    def add(self, event: Element) -> int:
        """Add an event to all subpartitions. Returns the wanted bytes per frame, or `REFUSED`. Raises: as `write`."""
        if self._is_finished:
            return REFUSED
        self._buffer.add_shared(event_buffer(event))
        self._make_room()
        return self.frame_bytes

    def add_to(self, index: int, event: Element) -> int:
        """Add an event to one subpartition. Returns as `add`."""
        if self._is_finished:
            return REFUSED
        self._part_from_shared()
        self._buffer.add(index, event_buffer(event))
        self._make_room()
        return self.frame_bytes

    def hold(self, index: int, batch: Batch, *, is_finished: bool) -> int:
        """Add a frame of its own to one subpartition. Returns as `add`."""
        if self._is_finished:
            return REFUSED
        self._part_from_shared()
        self._buffer.hold(index, batch, is_finished=is_finished)
        self._make_room()
        return self.frame_bytes

    def flush(self) -> None:
        """Does nothing: nobody may read before the end."""

    def finish(self) -> None:
        """End all subpartitions. Raises: EngineBug: finished or released. ResultWriteError."""
        if self._is_finished:
            state = "released" if self.is_released else "finished"
            raise EngineBug(f"a sort-merge result is to be finished, but is {state} already")
        self._buffer.add_shared(event_buffer(EndOfPartition()))
        self._write_region()
        self._buffer.forget()
        with self._lock:
            self._is_finished = True

    def _part_from_shared(self) -> None:
        """Records of single subpartitions and records for all do not stand in one region."""
        if self._buffer.shared is not None:
            self._write_region()

    def _make_room(self) -> None:
        if self._buffer.size < self._most:
            return
        self._most = self._buffer_bytes()
        self._buffer.encode()
        if 2 * self._buffer.size >= self._most:
            self._write_region()

    def _write_region(self) -> None:
        if self._buffer.is_by_subpartition:
            self._files.append(self._buffer.take())
        shared = self._buffer.take_shared()
        if shared:
            self._files.append_shared(shared)

    # -------------------------------------------------------------- consumers' side

    def records_of(self, index: int) -> int:
        """How many records were written for this subpartition."""
        return self._buffer.records[index] + self._buffer.shared_records

    def data_frames_of(self, index: int) -> int:
        """How many frames of records this subpartition has in the file."""
        return self._buffer.data_frames[index] + self._buffer.shared_data_frames

    def create_view(
        self, subpartition: SortMergeSubpartition, *, is_encoded: bool
    ) -> BoundedBlockingView:
        """Open one more reading of a subpartition from the start.

        Raises: EngineBug: it is not finished. ResultDataLost: it is released, or its file is gone.
        """
        with self._lock:
            if self.is_released:
                raise ResultDataLost("a sort-merge result is released")
            if not self._is_finished:
                raise EngineBug("a sort-merge result is read before it is complete")
            self._readers += 1
        reader = RegionReader(self._files, subpartition.index)
        try:
            return BoundedBlockingView(subpartition, reader, self._format, is_encoded=is_encoded)
        except BaseException as error:
            self._end_reading()
            if isinstance(error, ResultDataLost):
                self.name(error)
            raise

    def name(self, error: ResultDataLost) -> None:
        """Add the id of the lost result to the error: its producer has to run again."""
        error.partition_id = self.partition_id

    def on_view_released(self, index: int) -> None:
        """Called by each view of this subpartition, once."""
        self._end_reading()
        self._owner.on_consumed(index)

    def _end_reading(self) -> None:
        with self._lock:
            self._readers -= 1
            is_over = self.is_released and not self._readers
        if is_over:
            self._files.close()

    def release(self, failure: str | None = None) -> None:
        """The files are deleted when their last reader has ended."""
        with self._lock:
            if self.is_released:
                return
            self.is_released = self._is_finished = True
            is_over = not self._readers
        if is_over:
            self._files.close()


class SortMergeSubpartition:
    """One subpartition of a `SortMergeResult`, which does everything. All subpartitions end and are released together."""

    __slots__ = ("_result", "index")

    def __init__(self, result: SortMergeResult, index: int) -> None:
        self.index = index
        self._result = result

    @property
    def records(self) -> int:
        return self._result.records_of(self.index)

    @property
    def data_frames(self) -> int:
        return self._result.data_frames_of(self.index)

    @property
    def is_released(self) -> bool:
        return self._result.is_released

    @property
    def queued(self) -> int:
        """Always 0: written data is in the file."""
        return 0

    def use_pool(self, pool: LocalBufferPool) -> None:
        self._result.use_pool(pool)

    def limit_frames(self, frame_bytes: int) -> None:
        self._result.limit_frames(frame_bytes)

    def limit_rows(self, rows: int | None) -> None:
        """Does nothing: no record waits for a consumer in memory."""

    def write(self, batch: Batch) -> None:
        self._result.write_to(self.index, batch)

    def add(self, event: Element) -> int:
        return self._result.add_to(self.index, event)

    def add_frame(self, batch: Batch, *, is_finished: bool) -> int:
        return self._result.hold(self.index, batch, is_finished=is_finished)

    def flush(self) -> None:
        self._result.flush()

    def finish(self) -> None:
        self._result.finish()

    def create_view(
        self, listener: ViewListener, *, is_encoded: bool = False
    ) -> BoundedBlockingView:
        return self._result.create_view(self, is_encoded=is_encoded)

    def named(self, error: ResultDataLost) -> ResultDataLost:
        self._result.name(error)
        return error

    def on_view_released(self, view: BoundedBlockingView) -> None:
        self._result.on_view_released(self.index)

    def release(self, failure: str | None = None) -> None:
        self._result.release(failure)


class SortMergeSubpartitions(Sequence[SortMergeSubpartition]):
    """Makes a subpartition when it is asked for: thousands of results may have thousands each. `result`: stands for all of them."""

    def __init__(self, result: SortMergeResult, count: int) -> None:
        self.result = result
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> SortMergeSubpartition: ...
    @overload
    def __getitem__(self, place: slice) -> list[SortMergeSubpartition]: ...
    def __getitem__(
        self, place: int | slice
    ) -> SortMergeSubpartition | list[SortMergeSubpartition]:
        if isinstance(place, slice):
            return [self[one] for one in range(self._count)[place]]
        if not 0 <= place < self._count:
            raise IndexError(f"there is no subpartition {place} of {self._count}")
        return SortMergeSubpartition(self.result, place)
