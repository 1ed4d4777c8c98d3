"""One multiplexed connection to another TaskManager, and both ends of a remote channel on it.

Source: Flink CreditBasedSequenceNumberingViewReader (RemoteView), RemoteInputChannel (RemoteChannel),
PartitionRequestQueue. A producing mailbox writes to the non-blocking socket itself; only when the socket is
full does the network thread finish the job.

Credit is one data frame. Events are free. The consumer grants `FIRST_CREDIT` with the request and gives back
what it has taken in lots of half of that.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.hosting.closures import dumps_records, loads_records
from penstock.hosting.data_frames import HEADER, FrameType, PartitionRequest
from penstock.model.errors import PartitionConnectionError, UserCodeError
from penstock.model.ids import ResourceId
from penstock.runtime.codec import ChannelDecoder, ChannelEncoder, FrameKind, Parts, size_of
from penstock.runtime.elements import ColumnBatch, Element, RowBatch
from penstock.runtime.result_partition import Subpartition

FIRST_CREDIT: Final = 4
RECORD_ERROR: Final = (
    1  # kind of a FAILED frame: a record could not be encoded; its text names the operator
)
_RETURN_CREDIT_AT: Final = 2
_IOV_MAX: Final = 64


class WriteLoop(Protocol):
    """The network thread: writes on when a full socket drains."""

    def want_write(self, connection: DataConnection) -> None: ...


class DataConnection:
    """A connected, authenticated, non-blocking socket shared by all channels of a pair of TaskManagers."""

    def __init__(self, sock: socket.socket, peer: ResourceId, loop: WriteLoop) -> None:
        self.sock = sock
        self.peer = peer
        self.is_closed = False
        self.channels: dict[int, RemoteChannel] = {}
        self.views: dict[int, RemoteView] = {}
        self._loop = loop
        self._outbox: deque[memoryview] = deque()
        self._is_full = False
        self._lock = threading.Lock()
        self._stalled: deque[RemoteView] = deque()

    # ---------------------------------------------------------------- writing, from any thread

    @property
    def is_congested(self) -> bool:
        """The socket is full: producers leave what they have in their subpartitions.

        Not the same as a filled outbox: another thread may be writing that out right now, and then nobody
        would come back for a view that left.
        """
        return self._is_full

    def send(
        self, frame_type: FrameType, channel: int, parts: Parts, header: tuple[int, ...] = (0, 0, 0)
    ) -> None:
        """Queue one frame and write what the socket takes. `header`: kind, sequence, backlog."""
        kind, sequence, backlog = header
        size = size_of(parts)
        head = HEADER.pack(size, frame_type, kind, channel, sequence, backlog)
        views = [memoryview(head)]
        views.extend(memoryview(part).cast("B") for part in parts if memoryview(part).nbytes)
        self._outbox.extend(views)
        self.write_out()

    def write_out(self) -> None:
        """Write until the socket is full. One writer at a time; who comes second leaves it to the first."""
        while self._outbox and not self.is_closed:
            if not self._lock.acquire(blocking=False):
                return
            try:
                is_full = self._write_some()
            finally:
                self._lock.release()
            if is_full:
                self._is_full = True
                self._loop.want_write(self)
                return

    def _write_some(self) -> bool:
        outbox = self._outbox
        while outbox:
            batch = [outbox[i] for i in range(min(len(outbox), _IOV_MAX))]
            try:
                sent = self.sock.sendmsg(batch)
            except BlockingIOError:
                return True
            except OSError:
                outbox.clear()  # the reading side sees the broken connection and reports it
                return False
            while sent:
                first = outbox[0]
                if sent >= first.nbytes:
                    sent -= first.nbytes
                    outbox.popleft()
                else:
                    outbox[0] = first[sent:]
                    sent = 0
        return False

    def stall(self, view: RemoteView) -> None:
        self._stalled.append(view)

    def resume_stalled(self) -> None:
        """Network thread, the socket takes bytes again: write, then views that met a full one go on."""
        self._is_full = False
        self.write_out()
        for _ in range(len(self._stalled)):
            self._stalled.popleft().pump()

    # ---------------------------------------------------------------- ends

    def fail(self, cause: str) -> None:
        """Every channel on this connection reports the loss to its task."""
        self.is_closed = True
        for channel in list(self.channels.values()):
            channel.fail(f"connection to {self.peer} lost: {cause}")
        self.views.clear()


class RemoteView:
    """Producer's end: takes from a subpartition while the consumer has granted credit."""

    def __init__(self, subpartition: Subpartition, connection: DataConnection, channel: int, credit: int,
                 on_error: Callable[[Exception], None], count_bytes: Callable[[int], None]) -> None:  # fmt: skip
        self._subpartition = subpartition
        self._connection = connection
        self._channel = channel
        self._credit = credit
        self._on_error = on_error
        self._count_bytes = count_bytes
        self._encoder = ChannelEncoder(dumps_records)
        self._encoded: deque[tuple[FrameKind, Parts]] = deque()
        self._sequence = 0
        self._lock = threading.Lock()
        self._again = False
        self._is_broken = False

    def add_credit(self, frames: int) -> None:
        """Network thread only."""
        with self._lock:
            self._credit += frames
        self.pump()

    def pump(self) -> None:
        """Send what may be sent. Any thread; whoever holds the lock takes the others' news along."""
        self._again = True
        while self._again and not self._is_broken and self._lock.acquire(blocking=False):
            try:
                self._again = False
                self._drain()
            except Exception as error:
                self._is_broken = True  # what follows must not arrive as if nothing were missing
                self._on_error(error)
            finally:
                self._lock.release()

    def _drain(self) -> None:
        connection = self._connection
        while not connection.is_closed:
            if connection.is_congested:
                connection.stall(self)
                if connection.is_congested:
                    return
            if not self._encoded and not self._encode_next():
                return
            if self._encoded[0][0].is_data:
                if self._credit <= 0:
                    return
                self._credit -= 1
            kind, parts = self._encoded.popleft()
            self._count_bytes(size_of(parts))
            header = (int(kind), self._sequence, self._subpartition.backlog)
            self._sequence = (self._sequence + 1) & 0xFFFFFFFF
            connection.send(FrameType.DATA, self._channel, parts, header)

    def _encode_next(self) -> bool:
        head = self._subpartition.peek()
        if head is None:
            return False
        if isinstance(head, (RowBatch, ColumnBatch)):
            if self._credit <= 0:
                return False
            self._subpartition.poll()
            frames = self._encoder.encode_to_size(head, self._subpartition.frame_bytes)
            rows = max(1, len(head))
            size = sum(size_of(parts) for _, parts, _ in frames)
            self._subpartition.bytes_per_row = max(1.0, size / rows)
            self._encoded.extend((kind, parts) for kind, parts, _ in frames)
            return True
        self._subpartition.poll()
        self._encoded.append(self._encoder.encode(head))
        return True

    def release(self) -> None:
        """The consumer cancelled or has read the end."""
        self._subpartition.release()


class RemoteChannel:
    """Consumer's end: frames wait as bytes until the mailbox decodes them."""

    def __init__(
        self, connection: DataConnection, channel: int, notify: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._notify = notify
        self._frames: deque[tuple[int, bytes | bytearray]] = deque()
        self._decoder = ChannelDecoder(loads_records)
        self._expected = 0
        self._to_return = 0
        self._failure: PartitionConnectionError | UserCodeError | None = None
        self.bytes_in = 0

    def request(self, request: PartitionRequest) -> None:
        self._connection.channels[self._channel] = self
        body = pickle.dumps(request, protocol=5)
        self._connection.send(FrameType.REQUEST, self._channel, [body])

    def on_frame(self, kind: int, sequence: int, payload: bytes | bytearray) -> None:
        """Network thread."""
        if sequence != self._expected:
            self.fail(f"frame {sequence} came where {self._expected} was due (reordered)")
            return
        self._expected = (self._expected + 1) & 0xFFFFFFFF
        self.bytes_in += len(payload)
        self._frames.append((kind, payload))
        self._notify()

    def fail(self, cause: str, *, is_user_code: bool = False) -> None:
        """Network thread: the task finds it at its next poll, after what had come in order."""
        if self._failure is None:
            self._failure = (
                UserCodeError(cause) if is_user_code else PartitionConnectionError(cause)
            )
        self._notify()

    def poll(self) -> Element | None:
        """Mailbox thread."""
        try:
            kind, payload = self._frames.popleft()
        except IndexError:
            if self._failure is not None:
                raise self._failure from None
            return None
        if kind <= FrameKind.COLUMNS:
            self._to_return += 1
            if self._to_return >= _RETURN_CREDIT_AT:
                credit = self._to_return.to_bytes(4, "big")
                self._to_return = 0
                self._connection.send(FrameType.CREDIT, self._channel, [credit])
        return self._decoder.decode(kind, payload)

    def release(self) -> None:
        """Mailbox thread: nothing more is wanted."""
        if self._connection.channels.pop(self._channel, None) is not None:
            self._frames.clear()
            if not self._connection.is_closed:
                self._connection.send(FrameType.CANCEL, self._channel, [])


class LocalChannel:
    """Consumer's end of a subpartition in the same TaskManager: batches pass as they are."""

    def __init__(self, subpartition: Subpartition, notify: Callable[[], None]) -> None:
        self._subpartition = subpartition
        subpartition.attach(notify)

    def poll(self) -> Element | None:
        return self._subpartition.poll()

    def release(self) -> None:
        self._subpartition.release()
