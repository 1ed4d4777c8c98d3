"""Frames of the data connection: their header and types.

    header:   payload bytes (4), type (1), element kind (1), channel (4), sequence (4), backlog (4)
    payload

What crosses a network is inside TLS, which closes the connection if something was changed.

Source: Flink NettyMessage (PartitionRequest, AddCredit, BufferResponse, ErrorResponse). Knows no
socket.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

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
