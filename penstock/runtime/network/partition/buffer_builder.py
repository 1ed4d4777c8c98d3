"""BufferBuilder: what one subpartition of a blocking result gets, as buffers of a file.

Does not know files or locks. Batches are joined to frames, frames are encoded and cut into buffers, buffers are compressed.
An event has a buffer of its own. Source: Flink BufferWritingResultPartition, BufferCompressor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.codecs.codec import ChannelEncoder, can_join, concat
from penstock.runtime.codecs.events import Part, Parts, encode_event
from penstock.runtime.elements import Batch, Element
from penstock.runtime.network.network_memory import SEGMENT_BYTES
from penstock.runtime.network.partition.bounded_data import DATA, EVENT, HEADER, DiskBuffer
from penstock.runtime.network.partition.compression import BufferCompressor
from penstock.runtime.network.partition.record_framing import RecordSerializer
from penstock.runtime.network.partition.row_size import RowSize

MAX_ROWS_PER_FRAME: Final = 8192


@dataclass(frozen=True, slots=True)
class SortMerge:
    """Which results are sort-merge, and how. `new_path`: gives the path of a new file. `min_parallelism`: the fewest subpartitions.
    `min_buffers`: segments in memory while it is written, each of `segment_bytes`.
    """

    new_path: Callable[[], str]
    min_parallelism: int = 1
    min_buffers: int = 512
    segment_bytes: int = SEGMENT_BYTES


class BlockingFormat:
    """How frames become buffers of a file, and back. All subpartitions of a partition have the same format."""

    def __init__(
        self,
        dumps: Callable[[object], bytes],
        loads: Callable[[Part], Any],
        frame_bytes: int,
        buffer_bytes: int,
        compressor: BufferCompressor | None,
        sort_merge: SortMerge | None = None,
    ) -> None:
        """`dumps`, `loads`: turn rows into bytes and back. `frame_bytes`: the largest encoded batch, unless it is a single
        record. `buffer_bytes`: size of the buffers in the file. `compressor` None: buffers are not compressed. `sort_merge` None: each
        subpartition has a file.
        """
        self.dumps = dumps
        self.loads = loads
        self.frame_bytes = frame_bytes
        self.buffer_bytes = buffer_bytes
        self.compressor = compressor
        self.sort_merge = sort_merge


class BufferBuilder:
    """Hands each finished buffer to `emit`. For one thread.

    `rows`, `batches`: how many records and batches wait for their frame. `data_frames`: frames that were encoded.
    `emitted_bytes`: of buffers with their headers. Whoever reads the counts may set them back.
    """

    __slots__ = (
        "_compressor", "_emit", "_encoder", "_gathered", "_serializer", "data_frames",
        "emitted_bytes", "rows", "sizes",
    )  # fmt: skip

    def __init__(self, form: BlockingFormat, emit: Callable[[DiskBuffer], None]) -> None:
        self.sizes = RowSize(form.frame_bytes, MAX_ROWS_PER_FRAME)
        self.rows = 0
        self.data_frames = 0
        self.emitted_bytes = 0
        self._emit = emit
        self._encoder = ChannelEncoder(form.dumps)
        self._serializer = RecordSerializer(form.buffer_bytes)
        self._compressor = form.compressor
        self._gathered: list[Batch] = []

    @property
    def batches(self) -> int:
        return len(self._gathered)

    @property
    def unfinished_bytes(self) -> int:
        """Encoded bytes in the buffer that is not full yet."""
        return len(self._serializer)

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
        self._hand_out(event)

    def flush(self) -> None:
        """Hand out everything."""
        self.end_frame()
        rest = self._serializer.flush()
        if rest is not None:
            self._hand_out(self._packed(rest))

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
                self._hand_out(self._packed(buffer))
            size += sum(memoryview(part).nbytes for part in parts)
            self.data_frames += 1
        self.sizes.measured(len(batch), size)

    def clear(self) -> None:
        """Drop what is gathered."""
        self._gathered = []

    def _packed(self, data: Part) -> DiskBuffer:
        packed = None if self._compressor is None else self._compressor.compress(data)
        return DiskBuffer(DATA, packed is not None, data if packed is None else packed)

    def _hand_out(self, buffer: DiskBuffer) -> None:
        self.emitted_bytes += HEADER.size + memoryview(buffer.data).nbytes
        self._emit(buffer)


def event_buffer(event: Element) -> DiskBuffer:
    """The buffer of an event. Raises: EngineBug: it is not one."""
    kind, parts = encode_event(event)
    return DiskBuffer(EVENT, False, b"".join((bytes([kind]), *map(bytes, parts))))
