"""BoundedBlockingSubpartition: written to a file first, and read when it is complete, by any number of readers at once.

Does not know the kinds of files or threads: the lock comes from the host. Each subpartition has a file of its own. Source: Flink BoundedBlockingSubpartition
(docs/spec/exchange.md#blocking-subpartition). Differs: a flush shows nothing, because nobody may read before the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from penstock.engine.model.errors import EngineBug, ResultDataLost
from penstock.engine.runtime.codecs.codec import ChannelDecoder, EncodedFrame
from penstock.engine.runtime.codecs.events import FrameKind, Part
from penstock.engine.runtime.elements import Batch, Element, EndOfPartition
from penstock.engine.runtime.network.network_memory import LocalBufferPool
from penstock.engine.runtime.network.partition.bounded_data import (
    EVENT,
    BoundedData,
    BoundedReader,
    DiskBuffer,
)
from penstock.engine.runtime.network.partition.buffer_builder import (
    BlockingFormat,
    BufferBuilder,
    RecordDeserializer,
    event_buffer,
)
from penstock.engine.runtime.network.partition.subpartition import REFUSED, Lock, SubpartitionOwner
from penstock.engine.runtime.network.subpartition_view import (
    NextType,
    Polled,
    ViewListener,
    following,
)

# ---------------------------------------------------------------------- blocking view
# BoundedBlockingView: one reading of one subpartition of a blocking result, whichever kind it is.
#
# Does not know files. Source: Flink BoundedBlockingSubpartitionReader
# (docs/spec/exchange.md#blocking-subpartition). Differs: a poll gives a whole encoded batch,
# which may span buffers.


_WITHOUT_LIMIT: Final = 1 << 62


class BoundedBlockingView:
    """One reading. It reads one frame ahead, so that it knows what comes next. It closes `reader` with itself."""

    def __init__(
        self,
        parent: BoundedBlockingSubpartition,
        reader: BoundedReader,
        blocking_format: BlockingFormat,
        *,
        is_encoded: bool,
    ) -> None:
        self._parent = parent
        self._reader = reader
        self._compressor = blocking_format.compressor
        self._decoder = None if is_encoded else ChannelDecoder(blocking_format.loads)
        self._records = RecordDeserializer()
        self._frames: Iterator[EncodedFrame] = self._read()
        self._backlog = parent.data_frames
        self._sequence = 0
        self._is_released = False
        self._ahead: deque[EncodedFrame] = deque()
        try:
            self._look_ahead()
        except BaseException:
            self._reader.close()
            raise

    @property
    def frame_bytes(self) -> int:
        return _WITHOUT_LIMIT

    def measured(self, rows: int, size: int) -> None:
        """Does nothing: the data is written already."""

    def new_buffer_size(self, frame_bytes: int) -> None:
        """Does nothing: the data is written already."""

    def limit_rows(self, rows: int | None) -> None:
        """Does nothing: the data is written already."""

    def poll(self) -> Polled | None:
        """The next frame; None at the end. Raises: ResultDataLost: the file is truncated or damaged."""
        if not self._ahead:
            return None
        frame = self._ahead.popleft()
        if frame.kind.is_data:
            self._backlog -= 1
        try:
            self._look_ahead()
        except ResultDataLost as error:
            raise self._parent.named(error) from error.__cause__
        element: Any = frame
        if self._decoder is not None:
            element = self._decoder.decode(frame.kind, frame.payload)
        polled = Polled(element, self._backlog, self._next_type(), self._sequence)
        self._sequence = following(self._sequence)
        return polled

    def poll_last(self) -> Polled | None:
        return self.poll()

    def grant(self) -> None:
        """Does nothing: the data is written already."""

    def is_available(self, *, has_credit: bool) -> bool:
        kind = self._next_type()
        return kind is not NextType.NONE and (has_credit or kind is not NextType.DATA)

    @property
    def has_priority(self) -> bool:
        """Always False: nothing overtakes in a file."""
        return False

    def resume(self) -> None:
        raise EngineBug("a blocking result has no barriers, so its reading cannot be resumed")

    def acknowledge_all_records(self) -> None:
        """Does nothing: the producer ended before its result was read."""

    def disconnect(self) -> None:
        self.release()

    def release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        self._ahead.clear()
        self._frames.close()  # type: ignore[attr-defined] # a generator
        self._reader.close()
        self._parent.on_view_released(self)

    def _next_type(self) -> NextType:
        if not self._ahead:
            return NextType.NONE
        return NextType.DATA if self._ahead[0].kind.is_data else NextType.EVENT

    def _look_ahead(self) -> None:
        frame = next(self._frames, None)
        if frame is not None:
            self._ahead.append(frame)

    def _read(self) -> Iterator[EncodedFrame]:
        while (buffer := self._reader.next_buffer()) is not None:
            # Copied out of the file at once: if a mapped file is cut short, access to its memory
            # fails.
            data = self._unpacked(buffer)
            buffer.recycle()
            if buffer.code == EVENT:
                yield _frame_of(data)
                continue
            for record in self._records.feed(data):
                yield _frame_of(record)

    def _unpacked(self, buffer: DiskBuffer) -> bytes:
        if not buffer.is_compressed:
            return bytes(buffer.data)
        if self._compressor is None:
            raise ResultDataLost(
                "a buffer is marked as compressed, but the result was written without compression"
            )
        return self._compressor.decompress(buffer.data)


def _frame_of(record: Part) -> EncodedFrame:
    view = memoryview(record)
    return EncodedFrame(FrameKind(view[0]), view[1:])


# ---------------------------------------------------------------------- blocking


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
