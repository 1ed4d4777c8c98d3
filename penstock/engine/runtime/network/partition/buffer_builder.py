"""BufferBuilder: what one subpartition of a blocking result gets, as buffers of a file.

Does not know files or locks. Batches are joined to frames, frames are encoded and cut into buffers, buffers are
compressed. An event has a buffer of its own. Source: Flink BufferWritingResultPartition, BufferCompressor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.engine.model.errors import ConfigurationError, EngineBug, ResultDataLost
from penstock.engine.runtime.codecs.codec import ChannelEncoder, can_join, concat
from penstock.engine.runtime.codecs.events import Part, Parts, encode_event
from penstock.engine.runtime.elements import Batch, Element
from penstock.engine.runtime.network.partition.bounded_data import DATA, EVENT, DiskBuffer
from penstock.engine.runtime.network.partition.subpartition import RowSize

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


_SIZE: Final = struct.Struct("=i")
_CODECS: Final = {"LZ4": "lz4_raw", "ZSTD": "zstd"}


class BufferCompressor:
    """Compression of single buffers, each independent of the others. Source: Flink BufferCompressor, BufferDecompressor.

    The first four bytes hold the uncompressed size.

    `codec`: LZ4 or ZSTD.
    """

    def __init__(self, codec: str) -> None:
        """Raises: ConfigurationError: the codec is unknown, or not available in this pyarrow."""
        name = _CODECS.get(codec.upper())
        if name is None or not pa.Codec.is_available(name):
            raise ConfigurationError(
                f"option 'taskmanager.network.compression.codec' is {codec!r}, but it takes one of "
                f"{', '.join(_CODECS)}. Change it, or set "
                "'taskmanager.network.batch-shuffle.compression.enabled' to false."
            )
        self._codec = pa.Codec(name)

    def compress(self, data: Part) -> bytes | None:
        """The compressed buffer; None if it would not become smaller."""
        size = memoryview(data).nbytes
        packed: bytes = self._codec.compress(data, asbytes=True)
        return _SIZE.pack(size) + packed if len(packed) + _SIZE.size < size else None

    def decompress(self, data: Part) -> bytes:
        """The uncompressed buffer. Raises: ResultDataLost: it is damaged."""
        view = memoryview(data)
        try:
            size: int = _SIZE.unpack_from(view)[0]
            unpacked: bytes = self._codec.decompress(view[_SIZE.size :], size, asbytes=True)
        except (OSError, ValueError, struct.error) as error:
            raise ResultDataLost(f"a compressed buffer of a result is damaged: {error}") from error
        return unpacked


_LENGTH: Final = struct.Struct("!I")


class RecordSerializer:
    """Serialized records in buffers of one size. A record, and even its length, may begin and end anywhere in a buffer.

    Does not know files. Source: Flink SpanningRecordSerializer, SpillingAdaptiveSpanningRecordDeserializer
    (docs/spec/exchange.md#records-in-buffers). A record is 4 bytes of length, big-endian, and that many
    bytes. What Flink calls a record is a whole encoded batch here.

    Fills buffers of `buffer_size` bytes. A buffer is handed out when it is full; `flush` hands out the last one.
    """

    def __init__(self, buffer_size: int) -> None:
        self._buffer_size = buffer_size
        self._buffer = bytearray()

    def add(self, parts: Sequence[Part]) -> Iterator[bytearray]:
        """Add one record made of these parts. Yields the buffers that become full; take them all before the next call."""
        views = [memoryview(part).cast("B") for part in parts]
        length = _LENGTH.pack(sum(view.nbytes for view in views))
        for view in (memoryview(length), *views):
            at, size = 0, view.nbytes
            while at < size:
                room = self._buffer_size - len(self._buffer)
                self._buffer += view[at : at + room]
                at += room
                if len(self._buffer) == self._buffer_size:
                    yield self._take()

    def limit(self, buffer_size: int) -> None:
        """Make the buffers no larger than this. Called while there is no unfinished one."""
        self._buffer_size = min(self._buffer_size, buffer_size)

    def flush(self) -> bytearray | None:
        """The unfinished buffer, if it holds anything."""
        return self._take() if self._buffer else None

    def _take(self) -> bytearray:
        full, self._buffer = self._buffer, bytearray()
        return full


class RecordDeserializer:
    """Takes buffers in order and gives records.

    A record inside one buffer is a view of the buffer if that is `bytes`. From any other buffer the record is copied, because
    such a buffer may be reused, or be a mapped file that somebody cuts short.
    """

    def __init__(self) -> None:
        self._rest: bytearray | None = None

    def feed(self, buffer: Part) -> Iterator[Part]:
        """The records that end in this buffer; take them all before the next call."""
        view = memoryview(buffer).cast("B")
        is_stable = type(buffer) is bytes
        at, size = 0, view.nbytes
        while at < size:
            if self._rest is not None:
                at += self._go_on(self._rest, view[at:])
                if self._is_whole(self._rest):
                    record, self._rest = memoryview(self._rest)[_LENGTH.size :], None
                    yield record
                continue
            end = self._end_of(view, at)
            if end is None or end > size:
                self._rest = bytearray(view[at:])
                return
            record = view[at + _LENGTH.size : end]
            yield record if is_stable else bytes(record)
            at = end

    @staticmethod
    def _end_of(view: memoryview, at: int) -> int | None:
        """Where the record that begins there ends; None if its length is cut off by the end of the buffer."""
        if at + _LENGTH.size > view.nbytes:
            return None
        length: int = _LENGTH.unpack_from(view, at)[0]
        return at + _LENGTH.size + length

    def _go_on(self, rest: bytearray, view: memoryview) -> int:
        """Complete the unfinished record, its length first. Returns how many bytes were used."""
        wanted = _LENGTH.size
        if len(rest) >= _LENGTH.size:
            wanted += _LENGTH.unpack_from(rest)[0]
        taken = min(wanted - len(rest), view.nbytes)
        rest += view[:taken]
        return taken

    @staticmethod
    def _is_whole(rest: bytearray) -> bool:
        if len(rest) < _LENGTH.size:
            return False
        length: int = _LENGTH.unpack_from(rest)[0]
        return len(rest) == _LENGTH.size + length

    def finish(self) -> None:
        """Raises: EngineBug: the buffers ended inside a record."""
        if self._rest is not None:
            raise EngineBug(f"the buffers end inside a record, after {len(self._rest)} bytes of it")
