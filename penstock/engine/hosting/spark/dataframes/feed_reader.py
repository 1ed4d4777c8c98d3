"""Reads a partition directly from the Spark task that computes it, on the fetcher's thread of a
source subtask.

The reader listens, gives the driver its address, and accepts the newest feeder that dials. If Spark
loses the executor, it runs the task again, and the new feeder continues where the former one
stopped. A slow reader fills the socket, which stops the feeder.

Wire format of feeds: frames of a kind and a payload, after the handshake.

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

import contextlib
import json
import selectors
import socket
import struct
import zlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.engine.hosting.network.wire import dialling
from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.addresses import (
    DATA_PORT,
    Addresses,
    Endpoint,
    data_endpoint,
    listen,
)
from penstock.engine.hosting.network.wire.dialling import Proven, Ticket, closed_on_error, register
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
    """A position after a number of batches of a partition. `checksum`: CRC-32 of their messages,
    one after the other.
    """

    batches: int = 0
    checksum: int = 0

    def after(self, message: bytes | bytearray) -> Position:
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


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """Where the driver accepts orders for feeds. `ticket`: for one reader, once. `readers`: where
    readers are to listen.
    """

    host: str
    port: int
    ticket: Ticket
    readers: Addresses

    def registered(self) -> Credentials:
        """Return what this reader proves itself with. Raises OSError, ExternalError."""
        return register((self.host, self.port), self.ticket, DIAL_S)


@dataclass(frozen=True, slots=True)
class FeedHosts:
    """Where the driver and the readers of a DataFrame listen. Each has a port next to the job's own ports."""

    driver: Endpoint
    readers: Addresses


class FeedFailed(ExternalError):
    """Spark could not compute a partition."""


def _hand_over(came: deque[Proven], knock: socket.socket, proven: Proven) -> None:
    """Hand a feeder to the reader's thread. On the acceptor's thread.

    No method of the stream: the stream and its acceptor would keep each other, with the buffers of
    their sockets, until a full collection, and a reader of a thousand partitions makes few objects.
    """
    came.append(proven)
    knock.send(b"\0")


class FeedStream:
    """One partition from a position on. `next` blocks until a message arrives or `wake` is readable."""

    def __init__(
        self,
        place: FeedPlace,
        credentials: Credentials,
        partition: int,
        begin: Position,
        wake: socket.socket,
    ) -> None:
        """`credentials`: from `place.registered`. `wake`: becomes readable when `next` is to return.

        Raises: OSError, ExternalError.
        """
        self._partition = partition
        self.position = begin
        self._feeder: FeedSocket | None = None
        self._driver = dial(place.host, place.port, credentials)
        with closed_on_error(self._driver):
            own = self._driver.sock.getsockname()[0]
            endpoint = data_endpoint((place.host, place.port), place.readers, bind_host=own)
            listener = listen(endpoint, DATA_PORT)
        self._selector = selectors.DefaultSelector()
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._knock, self._knocked = socket.socketpair()
        self._selector.register(self._knocked, selectors.EVENT_READ, self._accept)
        self._selector.register(self._driver.sock, selectors.EVENT_READ, self._hear_driver)
        self.is_over = False
        self._has_end = False
        port = listener.getsockname()[1]
        self._came = deque[Proven]()
        accepted = partial(_hand_over, self._came, self._knock)
        self._acceptor = Acceptor(
            [listener], credentials, ROLE_FEED, accepted, name="penstock-feeders"
        ).start()
        request = {"partition": partition, "host": endpoint.dialled_host, "port": port}
        with closed_on_error(self):
            self._driver.send(OPEN, json.dumps(request).encode())

    def next(self) -> bytearray | None:
        """Return the next message. None: the partition has ended (`is_over`), or `wake` is readable."""
        while not self.is_over:
            if self._feeder is not None:
                with contextlib.suppress(BlockingIOError):
                    message = self._receive(self._feeder)
                    if message is not None:
                        return message
                    continue
            for key, _ in self._selector.select():
                if key.data is None:
                    return None
                if key.data != self._ready:
                    key.data()
        return None

    def close(self) -> None:
        self._drop_feeder()
        self._selector.close()
        self._acceptor.close()
        for one in self._came:
            one.sock.close()
        self._knock.close()
        self._knocked.close()
        self._driver.close()

    # ------------------------------------------------------------------ driver and feeders

    def _ready(self) -> None:
        """Does nothing: `next` itself receives the feeder's frames."""

    def _receive(self, feeder: FeedSocket) -> bytearray | None:
        try:
            kind, payload = feeder.receive()
        except BlockingIOError:
            raise
        except OSError:  # Either Spark runs its task again, or the driver reports that it gives up.
            self._drop_feeder()
            return None
        if kind == BATCH:
            self.position = self.position.after(payload)
            return payload
        if kind == END and Position.unpacked(payload) == self.position:
            self._finish(feeder)
            return None
        assert kind in {END, DIFFERS}
        stated = Position.unpacked(payload)
        raise FeedDiffers(
            f"partition {self._partition} of the DataFrame has changed since it was first "
            f"read: after {self.position.batches} batches the checksum was "
            f"{self.position.checksum:08x}, now it is {stated.checksum:08x} after "
            f"{stated.batches} batches. Its rows come in another order each time, or its files "
            "have changed. Write it with df.write.parquet(...) and read that, or set "
            "execution.checkpointing.dir, so that partitions are kept there."
        )

    def _finish(self, feeder: FeedSocket) -> None:
        """The feeder has sent its end. Only the driver knows that the whole partition was sent."""
        self._has_end = True
        with contextlib.suppress(OSError):
            feeder.sock.setblocking(True)
            feeder.send(DONE)
        self._drop_feeder()

    def _accept(self) -> None:
        """Take a feeder. The newest one counts, because an older one may be on a machine that is lost."""
        self._knocked.recv(1)
        feeder = FeedSocket(self._came.popleft().sock)
        feeder.sock.setblocking(True)
        try:
            feeder.send(RESUME, self.position.packed())
        except OSError:  # Spark has ended its task.
            feeder.close()
            return
        feeder.sock.setblocking(False)
        self._drop_feeder()
        self._has_end = False
        self._feeder = feeder
        self._selector.register(feeder.sock, selectors.EVENT_READ, self._ready)

    def _drop_feeder(self) -> None:
        if self._feeder is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._feeder.sock)
            self._feeder.close()
            self._feeder = None

    def _hear_driver(self) -> None:
        """Handle the driver's message, which comes when Spark's job is over."""
        try:
            kind, payload = self._driver.receive()
        except OSError as error:
            raise FeedFailed(
                f"the driver no longer answers for partition {self._partition} of the "
                f"DataFrame: {error}"
            ) from error
        if kind == FAILED:
            raise FeedFailed(payload.decode())
        if not self._has_end:
            raise FeedFailed(
                f"the connection to the Spark task that fed partition {self._partition} of "
                "the DataFrame broke before the partition's end had come"
            )
        self.is_over = True
