"""Frames of the data connection: header, types, and a parser that copies each payload once.

    header:   payload bytes (4), type (1), element kind (1), channel (4), sequence (4), backlog (4),
              CRC-32 of these (4)
    payload:  so many bytes
    tag:      16 bytes

The tag covers everything before it. The CRC lets a damaged length be noticed at once: otherwise the
reader would wait for that many bytes, perhaps for ever.

Source: Flink NettyMessage (PartitionRequest, AddCredit, BufferResponse, ErrorResponse). Knows no
socket.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from penstock.hosting.wire.sealing import TAG_BYTES, Seal
from penstock.model.errors import DamagedFrame, ExternalError

_FIELDS: Final = struct.Struct(
    "!IBBIII"
)  # payload bytes, type, element kind, channel, sequence, backlog
HEADER_BYTES: Final = _FIELDS.size + 4
MAX_PAYLOAD: Final = 1 << 31
_READ_SIZE: Final = 256 * 1024


class FrameType(IntEnum):
    """Type of a frame. The channel number is always the consumer's.

    BUFFER_SIZE: largest frame that the consumer wants, in bytes. BACKLOG: number of buffers (in the
    header) that a producer without credit has. TASK_EVENT: a pickled TaskEventFor. ALL_READ: the
    consumer has read the last record. PING: has no effect. It is sent every second, so that the peer
    notices when the last bytes before it were lost.
    """

    REQUEST = 1
    CREDIT = 2
    CANCEL = 3
    DATA = 4
    FAILED = 5
    BUFFER_SIZE = 6
    BACKLOG = 7
    RESUME = 8
    TASK_EVENT = 9
    ALL_READ = 10
    PING = 11


class FailureKind(IntEnum):
    """Element kind of a FAILED frame: what failed at the producer's end.

    CONNECTION: this consumer cannot read it. DATA_LOST: no consumer can, so it has to be made
    again.
    """

    CONNECTION = 0
    RECORD = 1
    NOT_FOUND = 2
    PRODUCER = 3
    DATA_LOST = 4


@dataclass(slots=True)
class DataFrame:
    """A complete frame. `payload` belongs to the receiver."""

    frame_type: int
    kind: int
    channel: int
    sequence: int
    backlog: int
    payload: bytes | memoryview


def header(size: int, frame_type: int, channel: int, more: tuple[int, ...] = (0, 0, 0)) -> bytes:
    """Args: size: bytes of the payload. more: kind, sequence, backlog."""
    kind, sequence, backlog = more
    fields = _FIELDS.pack(size, frame_type, kind, channel, sequence, backlog)
    return fields + zlib.crc32(fields).to_bytes(4, "big")


def read_header(data: bytes | memoryview) -> tuple[int, ...]:
    """Return the payload's bytes, type, kind, channel, sequence and backlog.

    Raises: DamagedFrame; ExternalError: the payload has more than `MAX_PAYLOAD`.
    """
    if zlib.crc32(data[: _FIELDS.size]) != int.from_bytes(data[_FIELDS.size :], "big"):
        raise DamagedFrame(
            "the header of a data frame is not what the other end has sent; the connection is "
            "closed"
        )
    fields = _FIELDS.unpack_from(data)
    if fields[0] > MAX_PAYLOAD:
        raise ExternalError(
            f"a data frame of {fields[0]:,} bytes was announced, which is too large; the "
            "connection is closed"
        )
    return fields


class FrameParser:
    """Turns bytes of a socket into frames. Read into `buffer()`, then call `advance(count)`.

    Small frames are cut out of a reused buffer; a long payload is received straight into its own
    memory.
    """

    def __init__(self, seal: Seal) -> None:
        """`seal`: of the direction from the other end."""
        self._seal = seal
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_header = b""

    def buffer(self) -> memoryview:
        """Return the memory to receive into; never empty."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._end :]

    def advance(self, count: int) -> Iterator[DataFrame]:
        """`count` bytes were received. Raises DamagedFrame: nothing that follows can be read."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return
            payload, tag = self._large[:-TAG_BYTES], self._large[-TAG_BYTES:]
            self._large = None
            yield self._checked(self._large_header, payload, tag)
            return
        self._end += count
        yield from self._cut()

    def _cut(self) -> Iterator[DataFrame]:
        while self._end - self._start >= HEADER_BYTES:
            body = self._start + HEADER_BYTES
            head = bytes(self._view[self._start : body])
            size = read_header(head)[0]
            end = body + size + TAG_BYTES
            if end <= self._end:
                payload = bytes(self._view[body : body + size])
                self._start = end
                yield self._checked(head, payload, self._view[body + size : end])
                continue
            if end > len(self._buffer):
                self._begin_large(head, size, body)
                return
            break
        self._compact()

    def _begin_large(self, head: bytes, size: int, body: int) -> None:
        have = self._end - body
        self._large = memoryview(pa.allocate_buffer(size + TAG_BYTES)).cast(
            "B"
        )  # a bytearray would be zeroed first
        self._large[:have] = self._view[body : self._end]
        self._large_filled = have
        self._large_header = head
        self._start = self._end = 0

    def _compact(self) -> None:
        if self._start == 0:
            return
        rest = self._end - self._start
        self._buffer[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest

    def _checked(self, head: bytes, payload: bytes | memoryview, tag: memoryview) -> DataFrame:
        self._seal.check(tag, head, payload)
        _size, frame_type, kind, channel, sequence, backlog = _FIELDS.unpack_from(head)
        return DataFrame(frame_type, kind, channel, sequence, backlog, payload)
