"""BufferBuilder: what one subpartition of a blocking result gets, as buffers of a file.

Does not know files or locks. Batches are joined to frames, frames are encoded and cut into buffers, buffers are compressed.
An event has a buffer of its own. Source: Flink BufferWritingResultPartition, BufferCompressor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.engine.runtime.codecs.codec import ChannelEncoder, can_join, concat
from penstock.engine.runtime.codecs.events import Part, Parts, encode_event
from penstock.engine.runtime.elements import Batch, Element
from penstock.engine.runtime.network.partition.bounded_data import DATA, EVENT, DiskBuffer
from penstock.engine.runtime.network.partition.compression import BufferCompressor
from penstock.engine.runtime.network.partition.record_framing import RecordSerializer
from penstock.engine.runtime.network.partition.row_size import RowSize

MAX_ROWS_PER_FRAME: Final = 8192


class BlockingFormat:
    """How frames become buffers of a file, and back. All subpartitions of a partition have the same format."""

    def __init__(
        self,
        dumps: Callable[[object], bytes],
        loads: Callable[[Part], Any],
        frame_bytes: int,
        buffer_bytes: int,
        compressor: BufferCompressor | None,
    ) -> None:
        """`dumps`, `loads`: turn rows into bytes and back. `frame_bytes`: the largest encoded batch, unless it is a single
        record. `buffer_bytes`: size of the buffers in the file. `compressor` None: buffers are not compressed.
        """
        self.dumps = dumps
        self.loads = loads
        self.frame_bytes = frame_bytes
        self.buffer_bytes = buffer_bytes
        self.compressor = compressor


class BufferBuilder:
    """Hands each finished buffer to `emit`. For one thread.

    `rows`: how many records wait for their frame. `data_frames`: frames that were encoded.
    """

    __slots__ = (
        "_compressor", "_emit", "_encoder", "_gathered", "_serializer", "data_frames",
        "rows", "sizes",
    )  # fmt: skip

    def __init__(self, form: BlockingFormat, emit: Callable[[DiskBuffer], None]) -> None:
        self.sizes = RowSize(form.frame_bytes, MAX_ROWS_PER_FRAME)
        self.rows = 0
        self.data_frames = 0
        self._emit = emit
        self._encoder = ChannelEncoder(form.dumps)
        self._serializer = RecordSerializer(form.buffer_bytes)
        self._compressor = form.compressor
        self._gathered: list[Batch] = []

    def limit(self, buffer_bytes: int) -> None:
        """Set the largest size of frames and of buffers."""
        self.sizes.limit(buffer_bytes)
        self._serializer.limit(buffer_bytes)

    def write(self, batch: Batch) -> None:
        """Gather a batch. Raises: whatever pickling a user's object raises."""
        gathered, rows = self._gathered, self.rows + len(batch)
        if not gathered:
            self.sizes.sample(batch)
        elif rows < self.sizes.frame_rows and can_join(gathered[0], batch):
            gathered.append(batch)
            self.rows = rows
            return
        for piece in self.sizes.pieces(batch):
            self._gather(piece)

    def _gather(self, batch: Batch) -> None:
        if self._gathered and not can_join(self._gathered[0], batch):
            self.end_frame()
        self._gathered.append(batch)
        self.rows += len(batch)
        if self.rows >= self.sizes.frame_rows:
            self.end_frame()

    def hold(self, batch: Batch) -> None:
        """Begin a frame with this batch."""
        self.end_frame()
        self._gathered.append(batch)
        self.rows = len(batch)

    def add(self, event: DiskBuffer) -> None:
        """Append an event, which `event_buffer` has made."""
        self.flush()
        self._emit(event)

    def flush(self) -> None:
        """Hand out everything."""
        self.end_frame()
        rest = self._serializer.flush()
        if rest is not None:
            self._emit(self._packed(rest))

    def end_frame(self) -> None:
        """Encode what is gathered."""
        gathered, self._gathered, self.rows = self._gathered, [], 0
        if not gathered:
            return
        batch = concat(gathered)
        size = 0
        for kind, parts, _ in self._encoder.encode_to_size(batch, self.sizes.frame_bytes):
            record: Parts = [bytes([kind]), *parts]
            for buffer in self._serializer.add(record):
                self._emit(self._packed(buffer))
            size += sum(memoryview(part).nbytes for part in parts)
            self.data_frames += 1
        self.sizes.measured(len(batch), size)

    def clear(self) -> None:
        """Drop what is gathered."""
        self._gathered = []

    def _packed(self, data: Part) -> DiskBuffer:
        packed = None if self._compressor is None else self._compressor.compress(data)
        return DiskBuffer(DATA, packed is not None, data if packed is None else packed)


def event_buffer(event: Element) -> DiskBuffer:
    """The buffer of an event. Raises: EngineBug: it is not one."""
    kind, parts = encode_event(event)
    return DiskBuffer(EVENT, False, b"".join((bytes([kind]), *map(bytes, parts))))
