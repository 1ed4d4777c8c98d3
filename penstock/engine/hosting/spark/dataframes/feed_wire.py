"""Wire format of feeds: frames of a kind and a payload, after the handshake.

    frame: kind (1 byte), bytes of the payload (4), payload

    reader -> server   OPEN     as JSON: partition, host, port: where the reader accepts the feed
    server -> reader   COUNTED  Spark has counted the task that fed the reader: its end was the partition's
                       FAILED   Spark has given up; the payload says why
    reader -> feeder   RESUME   batches and checksum after which the feed continues
    feeder -> reader   BATCH    one Arrow message
                       END      batches and checksum of the whole partition
                       DIFFERS  the recomputed part is not equal to the first one
    reader -> feeder   DONE

A feeder whose executor is killed may take that for the end of its input and send END too early. So
an END counts only when the driver has confirmed it with COUNTED.
"""

from __future__ import annotations

import socket
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from penstock.engine.hosting.network.wire import dialling
from penstock.engine.hosting.network.wire.handshake import ROLE_FEED, Credentials
from penstock.engine.model.errors import ExternalError

OPEN, COUNTED, FAILED, RESUME, BATCH, END, DIFFERS, DONE = range(1, 9)
_HEAD: Final = struct.Struct("!BI")
_POSITION: Final = struct.Struct("!QI")
_MOST_BYTES: Final = 1 << 30
"""An Arrow message has `spark.sql.execution.arrow.maxRecordsPerBatch` rows, usually less than a megabyte."""
DIAL_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Position:
    """A position after so many batches of a partition. `checksum`: CRC-32 of their messages, one after the other."""

    batches: int = 0
    checksum: int = 0

    def behind(self, message: bytes | bytearray) -> Position:
        return Position(self.batches + 1, zlib.crc32(message, self.checksum))

    def packed(self) -> bytes:
        return _POSITION.pack(self.batches, self.checksum)

    @staticmethod
    def unpacked(data: bytes | bytearray) -> Position:
        return Position(*_POSITION.unpack(data))


class FeedSocket:
    """A mutually authenticated connection. Sends block; `receive` blocks or not, as the socket is set."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._head = bytearray(_HEAD.size)
        self._body: bytearray | None = None
        self._at = 0

    def send(self, kind: int, payload: bytes | bytearray = b"") -> None:
        self.sock.sendall(_HEAD.pack(kind, len(payload)))
        if payload:
            self.sock.sendall(payload)

    def receive(self) -> tuple[int, bytearray]:
        """Return the next frame.

        Raises: BlockingIOError: it is not complete yet. OSError: the peer is gone, or the frame is not what it has sent.
        """
        if self._body is None:
            self._fill(self._head)
            _kind, size = _HEAD.unpack(self._head)
            if size > _MOST_BYTES:
                raise ConnectionAbortedError(
                    f"a feed's frame of {size:,} bytes was announced, but at most {_MOST_BYTES:,} "
                    "are allowed"
                )
            self._body, self._at = bytearray(size), 0
        self._fill(self._body)
        body, self._body, self._at = self._body, None, 0
        return self._head[0], body

    def close(self) -> None:
        self.sock.close()

    def _fill(self, target: bytearray) -> None:
        with memoryview(target) as view:
            while self._at < len(target):
                count = self.sock.recv_into(view[self._at :])
                if not count:
                    raise ConnectionResetError("the peer closed the connection")
                self._at += count


def dial(host: str, port: int, credentials: Credentials) -> FeedSocket:
    """Raises: OSError, AuthenticationError."""
    sock = dialling.dial((host, port), credentials, ROLE_FEED, DIAL_S)
    sock.settimeout(None)
    return FeedSocket(sock)


class FeedDiffers(ExternalError):
    """A recomputed partition differs from the first one, so that a position in it is meaningless."""
