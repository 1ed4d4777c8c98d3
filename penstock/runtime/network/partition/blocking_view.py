"""BoundedBlockingView: one reading of one subpartition of a blocking result, whichever kind it is.

Does not know files. Source: Flink BoundedBlockingSubpartitionReader (docs/spec/exchange.md#blocking-subpartition).
Differs: a poll gives a whole encoded batch, which may span buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol

from penstock.model.errors import EngineBug, ResultDataLost
from penstock.runtime.codecs.codec import ChannelDecoder, EncodedFrame
from penstock.runtime.codecs.events import FrameKind, Part
from penstock.runtime.network.partition.bounded_data import EVENT, BoundedReader, DiskBuffer
from penstock.runtime.network.partition.buffer_builder import BlockingFormat
from penstock.runtime.network.partition.record_framing import RecordDeserializer
from penstock.runtime.network.sequence import following
from penstock.runtime.network.subpartition_view import NextType, Polled

_WITHOUT_LIMIT: Final = 1 << 62


class ViewedSubpartition(Protocol):
    """The subpartition, as its views see it."""

    @property
    def data_frames(self) -> int:
        """How many frames of records there are to read."""
        ...

    def named(self, error: ResultDataLost) -> ResultDataLost:
        """Add the id of the lost result to the error: its producer has to run again."""
        ...

    def on_view_released(self, view: BoundedBlockingView) -> None:
        """Called by each view, once."""
        ...


class BoundedBlockingView:
    """One reading. It reads one frame ahead, so that it knows what comes next. It closes `reader` with itself."""

    def __init__(
        self,
        parent: ViewedSubpartition,
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
