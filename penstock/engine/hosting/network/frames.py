"""Frames of the data connection: their header and types.

    header:   payload bytes (4), type (1), element kind (1), channel (4), sequence (4), backlog (4)
    payload

What crosses a network is inside TLS, which closes the connection if something was changed.

Source: Flink NettyMessage (PartitionRequest, AddCredit, BufferResponse, ErrorResponse). Knows no
socket.

Turns the bytes of a data connection into frames, and copies each payload once. Knows no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from penstock.engine.model.errors import ExternalError

_FIELDS: Final = struct.Struct(
    "!IBBIII"
)  # payload bytes, type, element kind, channel, sequence, backlog
HEADER_BYTES: Final = _FIELDS.size
MAX_PAYLOAD: Final = 1 << 31


class FrameType(IntEnum):
    """Type of a frame. The channel number is always the consumer's.

    BUFFER_SIZE: largest frame that the consumer wants, in bytes. ROW_LIMIT: how many records may wait for the
    consumer at the producer; 0: any number. BACKLOG: number of buffers (in the
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
    ROW_LIMIT = 12


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


def header(size: int, frame_type: int, channel: int, more: tuple[int, ...] = (0, 0, 0)) -> bytes:
    """Args: size: bytes of the payload. more: kind, sequence, backlog."""
    kind, sequence, backlog = more
    return _FIELDS.pack(size, frame_type, kind, channel, sequence, backlog)


def read_header(data: bytes | memoryview) -> tuple[int, ...]:
    """Return the payload's bytes, type, kind, channel, sequence and backlog.

    Raises: ExternalError: the payload has more than `MAX_PAYLOAD`.
    """
    fields = _FIELDS.unpack_from(data)
    if fields[0] > MAX_PAYLOAD:
        raise ExternalError(
            f"a data frame of {fields[0]:,} bytes was announced, which is too large; the "
            "connection is closed"
        )
    return fields


_READ_SIZE: Final = 256 * 1024
_GLANCE: Final = 4096
"""After a long payload there is often another one: only this number of bytes is read, and copied,
to see its length.
"""


@dataclass(slots=True)
class DataFrame:
    """A complete frame. `payload` belongs to the receiver."""

    frame_type: int
    kind: int
    channel: int
    sequence: int
    backlog: int
    payload: bytes | memoryview


class FrameParser:
    """Turns bytes of a socket into frames. Read into `buffer()`, then call `advance(count)`.

    Small frames are cut out of a reused buffer; a long payload is received straight into its own
    memory.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._room = _READ_SIZE
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_fields: tuple[int, ...] = ()

    def buffer(self) -> memoryview:
        """Return the memory to receive into; never empty."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._end : self._end + self._room]

    def advance(self, count: int) -> Iterator[DataFrame]:
        """`count` bytes were received. Raises ExternalError: nothing that follows can be read."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return
            payload, self._large = self._large, None
            self._room = _GLANCE
            yield _frame(self._large_fields, payload)
            return
        self._end += count
        self._room = _READ_SIZE
        yield from self._cut()

    def _cut(self) -> Iterator[DataFrame]:
        while self._end - self._start >= HEADER_BYTES:
            body = self._start + HEADER_BYTES
            fields = read_header(self._view[self._start : body])
            end = body + fields[0]
            if end > len(self._buffer):
                self._begin_large(fields, body)
                return
            if end > self._end:
                break
            self._start = end
            yield _frame(fields, bytes(self._view[body:end]))
        self._compact()

    def _begin_large(self, fields: tuple[int, ...], body: int) -> None:
        have = self._end - body
        # A bytearray would be zeroed first.
        self._large = memoryview(pa.allocate_buffer(fields[0])).cast("B")
        self._large[:have] = self._view[body : self._end]
        self._large_filled = have
        self._large_fields = fields
        self._start = self._end = 0

    def _compact(self) -> None:
        if self._start == 0:
            return
        rest = self._end - self._start
        self._buffer[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest


def _frame(fields: tuple[int, ...], payload: bytes | memoryview) -> DataFrame:
    _size, frame_type, kind, channel, sequence, backlog = fields
    return DataFrame(frame_type, kind, channel, sequence, backlog, payload)
