"""One multiplexed connection to another TaskManager: sending on it, and the ends of the channels
that share it.

Source: Flink PartitionRequestQueue, NettyPartitionRequestClient. A producing mailbox writes to the
non-blocking socket itself; the network thread continues only when the socket is full.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from itertools import islice
from typing import Final, Protocol

from penstock.engine.hosting.network.frames import FrameType, header
from penstock.engine.model.errors import PartitionConnectionError
from penstock.engine.model.ids import ResourceId
from penstock.engine.runtime.codecs.codec import size_of
from penstock.engine.runtime.codecs.events import Parts

_IOV_MAX: Final = 64
_ROOM_MS: Final = 1


class WriteLoop(Protocol):
    """The network thread: continues writing when a full socket has room again."""

    def want_write(self, connection: DataConnection) -> None: ...
    def is_own_thread(self) -> bool:
        """Whether the caller is the network thread, which must not wait."""


class ConsumerEnd(Protocol):
    """A remote channel."""

    def on_frame(
        self, kind: int, sequence: int, payload: bytes | memoryview, backlog: int, /
    ) -> None: ...
    def on_backlog(self, backlog: int) -> None: ...
    def on_not_found(self) -> None: ...
    def on_error(self, error: Exception) -> None: ...


class Pumped(Protocol):
    """Sends as long as the socket is not full."""

    def pump(self) -> None: ...


class ProducerEnd(Pumped, Protocol):
    """Sends a subpartition to a remote channel."""

    def add_credit(self, frames: int) -> None: ...
    def new_buffer_size(self, frame_bytes: int) -> None: ...
    def limit_rows(self, rows: int | None) -> None: ...
    def resume(self) -> None: ...
    def acknowledge_all_records(self) -> None: ...
    def release(self) -> None: ...
    def disconnect(self) -> None:
        """The consumer can no longer be reached."""


class DataConnection:
    """A connected, authenticated, non-blocking socket shared by all channels of a pair of TaskManagers."""

    def __init__(self, sock: socket.socket, peer: ResourceId, loop: WriteLoop) -> None:
        self.sock = sock
        self.peer = peer
        self.is_closed = False
        self.channels: dict[int, ConsumerEnd] = {}
        self.views: dict[int, ProducerEnd] = {}
        self._loop = loop
        self._outbox: deque[tuple[bytes, Parts]] = deque()
        self._leaving: deque[memoryview] = deque()
        self._is_full = False
        self._lock = threading.Lock()
        self._stalled: deque[Pumped] = deque()

    # ---------------------------------------------------------------- writing, from any thread

    @property
    def is_congested(self) -> bool:
        """Whether the socket is full. Producers then leave their data in the subpartitions.

        This is not the same as a filled outbox: another thread may be emptying that right now, and
        then no thread would resume a view that has stopped.
        """
        return self._is_full

    def send(
        self, frame_type: FrameType, channel: int, parts: Parts, more: tuple[int, ...] = (0, 0, 0)
    ) -> None:
        """Queue one frame and write what the socket takes. `more`: kind, sequence, backlog."""
        self._outbox.append((header(size_of(parts), frame_type, channel, more), parts))
        self.write_out()

    def write_out(self) -> None:
        """Write until the socket is full. There is one writer at a time; a second one returns, and
        the first writes its frames.
        """
        while (self._outbox or self._leaving) and not self.is_closed:
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
        leaving = self._leaving
        while self._fill_leaving():
            batch = list(islice(leaving, _IOV_MAX))
            try:
                sent = self.sock.sendmsg(batch)
            except BlockingIOError:
                if self._loop.is_own_thread() or not self._has_room_soon():
                    return True
                continue
            except OSError:
                self._outbox.clear()
                leaving.clear()  # The reading side notices the broken connection and reports it.
                return False
            while sent:
                first = leaving[0]
                if sent >= first.nbytes:
                    sent -= first.nbytes
                    leaving.popleft()
                else:
                    leaving[0] = first[sent:]
                    sent = 0
        return False

    def _fill_leaving(self) -> bool:
        """Take frames apart into what `sendmsg` takes. False: nothing is left to write."""
        leaving = self._leaving
        while self._outbox and len(leaving) < _IOV_MAX:
            head, parts = self._outbox.popleft()
            leaving.append(memoryview(head))
            views = (memoryview(part) for part in parts)
            leaving.extend(view.cast("B") for view in views if view.nbytes)
        return bool(leaving)

    def _has_room_soon(self) -> bool:
        """Wait briefly for room. The peer reads all the time, so this costs less than handing over
        to the network thread.
        """
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        return bool(poll.poll(_ROOM_MS))

    def stall(self, view: Pumped) -> None:
        self._stalled.append(view)

    def resume_stalled(self) -> None:
        """Write, then resume the views that met a full socket. On the network thread, when the
        socket has room again.
        """
        self._is_full = False
        self.write_out()
        for _ in range(len(self._stalled)):
            self._stalled.popleft().pump()

    # ---------------------------------------------------------------- ends

    def fail(self, cause: str) -> None:
        """Report the loss to every channel on this connection."""
        self.is_closed = True
        for channel in list(self.channels.values()):
            channel.on_error(PartitionConnectionError(f"connection to {self.peer} lost: {cause}"))
        self.drop_views()

    def drop_views(self) -> None:
        """Disconnect all producers' ends, because their consumers are gone."""
        views, self.views = list(self.views.values()), {}
        for view in views:
            view.disconnect()
