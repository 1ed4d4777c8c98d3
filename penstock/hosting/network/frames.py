"""Frames of the data connection: header, types, and a parser that copies each payload once.

Source: Flink NettyMessage (PartitionRequest, AddCredit, BufferResponse, ErrorResponse). Knows no
socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from penstock.model.errors import ExternalError

HEADER: Final = struct.Struct(
    "!IBBIII"
)  # payload bytes, type, element kind, channel, sequence, backlog
MAX_PAYLOAD: Final = 1 << 31
_READ_SIZE: Final = 256 * 1024


class FrameType(IntEnum):
    """Type of a frame. The channel number is always the consumer's.

    BUFFER_SIZE: largest frame that the consumer wants, in bytes. BACKLOG: number of buffers (in the
    header) that a producer without credit has. TASK_EVENT: a pickled TaskEventFor. ALL_READ: the
    consumer has read the last record.
    """

    PEER = 0
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
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_header: tuple[int, ...] = ()

    def buffer(self) -> memoryview:
        """Return the memory to receive into; never empty."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._end :]

    def advance(self, count: int) -> Iterator[DataFrame]:
        """`count` bytes were received."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return
            yield _frame(self._large_header, self._large)
            self._large = None
            return
        self._end += count
        yield from self._cut()

    def _cut(self) -> Iterator[DataFrame]:
        while self._end - self._start >= HEADER.size:
            header = HEADER.unpack_from(self._buffer, self._start)
            size = header[0]
            if size > MAX_PAYLOAD:
                raise ExternalError(
                    f"a data frame of {size:,} bytes was announced, which is too large; the "
                    "connection is closed"
                )
            body = self._start + HEADER.size
            if body + size <= self._end:
                payload = bytes(self._view[body : body + size])
                self._start = body + size
                yield _frame(header, payload)
                continue
            if body + size > len(self._buffer):
                self._begin_large(header, body)
                return
            break
        self._compact()

    def _begin_large(self, header: tuple[int, ...], body: int) -> None:
        have = self._end - body
        # A bytearray would be filled with zeros first.
        self._large = np.empty(header[0], np.uint8).data
        self._large[:have] = self._view[body : self._end]
        self._large_filled = have
        self._large_header = header
        self._start = self._end = 0

    def _compact(self) -> None:
        if self._start == 0:
            return
        rest = self._end - self._start
        self._buffer[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest


def _frame(header: tuple[int, ...], payload: bytes | memoryview) -> DataFrame:
    _size, frame_type, kind, channel, sequence, backlog = header
    return DataFrame(frame_type, kind, channel, sequence, backlog, payload)
