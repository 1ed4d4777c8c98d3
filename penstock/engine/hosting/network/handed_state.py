"""State of a handover that goes from one TaskManager to another without the checkpoint directory.

A TaskManager keeps the bytes of the snapshots that it wrote for the handover, as far as there is
room. The task that starts from them asks for one part of a file after the other, by the file's
path, which is random and never reused. The files are written anyway: whatever goes wrong here, they
are read. Source: none; Flink reads the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Final

from penstock.engine.hosting.network.connection import DataConnection
from penstock.engine.hosting.network.frames import FailureKind, FrameType
from penstock.engine.model.checkpoints import FileHandle
from penstock.engine.model.messages.control import StateRequest
from penstock.engine.runtime.codecs.events import FrameKind

KEPT_MS: Final = 60_000
"""Nobody asks for it later, except after a failure, and then there are the files."""
FRAME_BYTES: Final = 1 << 20
_CHECK_S: Final = 0.05


class HandedState:
    """What a TaskManager keeps. Any thread. `call_later`: calls after a number of ms, on any
    thread.
    """

    def __init__(self, call_later: Callable[[int, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        self._lock = threading.Lock()
        self._checkpoint_id = 0
        self._parts: dict[tuple[str, int], bytes] = {}
        self._bytes = 0

    def keep(self, checkpoint_id: int, handle: FileHandle, data: bytes, most_bytes: int) -> bool:
        """Keep what was written to this handle. False: there is no room. Drops what belongs to checkpoints before."""
        with self._lock:
            if checkpoint_id > self._checkpoint_id:
                self._clear()
                self._checkpoint_id = checkpoint_id
                self._call_later(KEPT_MS, lambda: self.forget(lambda one: one == checkpoint_id))
            if checkpoint_id < self._checkpoint_id or self._bytes + len(data) > most_bytes:
                return False
            self._parts[handle.path, handle.offset] = data
            self._bytes += len(data)
            return True

    def find(self, path: str, offset: int) -> bytes | None:
        """Return what was written there; None: it is not kept."""
        with self._lock:
            return self._parts.get((path, offset))

    def forget(self, is_over: Callable[[int], bool]) -> None:
        """Drop it if the checkpoint that it belongs to is over."""
        with self._lock:
            if is_over(self._checkpoint_id):
                self._clear()

    def _clear(self) -> None:
        self._parts.clear()
        self._bytes = 0


class StateSender:
    """Answers one request. Network thread only."""

    def __init__(self, connection: DataConnection, channel: int, data: bytes) -> None:
        self._connection = connection
        self._channel = channel
        self._rest = memoryview(data)
        self._numbers = count()

    def pump(self) -> None:
        """Send frames until the socket is full, so that frames of others come in between."""
        connection = self._connection
        while self._rest and not connection.is_closed:
            if connection.is_congested:
                connection.stall(self)
                if connection.is_congested:
                    return
            part, self._rest = self._rest[:FRAME_BYTES], self._rest[FRAME_BYTES:]
            # The tags of frames of rows cover every byte.
            more = (int(FrameKind.ROWS), next(self._numbers), 0)
            connection.send(FrameType.DATA, self._channel, [part], more)


def answer(
    connection: DataConnection, channel: int, request: StateRequest, kept: HandedState
) -> None:
    """Send what was asked for, or that it is not here. Network thread."""
    data = kept.find(request.path, request.offset)
    if data is None:
        more = (int(FailureKind.NOT_FOUND), 0, 0)
        connection.send(FrameType.FAILED, channel, [b"this state is not kept here"], more)
        return
    StateSender(connection, channel, data).pump()


class StateReceiver:
    """The asking end: a channel of a connection, fed by the network thread. `take` is for the task
    that needs the state.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._filled = 0
        self._frames: list[bytes | memoryview] = []
        self._has_failed = False
        self._changed = threading.Condition()
        self._close: Callable[[], object] = bool

    def on_connected(self, close: Callable[[], object]) -> bool:
        """`close`: ends the channel. Returns whether the state is still wanted."""
        with self._changed:
            self._close = close
            return not self._has_failed

    def on_frame(
        self, _kind: int, _sequence: int, payload: bytes | memoryview, _backlog: int
    ) -> None:
        if self._has_failed:
            return
        self._frames.append(payload)
        self._filled += len(payload)
        if self._filled > self._size:
            self._fail()  # It is not what was asked for.
        elif self._filled == self._size:
            with self._changed:
                self._changed.notify_all()

    def on_backlog(self, backlog: int) -> None:
        """No backlog is announced."""

    def on_not_found(self) -> None:
        self._fail()

    def on_error(self, error: Exception) -> None:
        self._fail()

    def _fail(self) -> None:
        with self._changed:
            self._has_failed = True
            self._frames = []
            self._changed.notify_all()

    def take(self, patience_s: float, check_continues: Callable[[], None]) -> bytes | None:
        """Wait, and return the bytes, which nobody has checked yet; None: they are not kept there, or nothing came for so long.

        Raises: what `check_continues` raises, which is called again and again.
        """
        try:
            with self._changed:
                left_s, before = patience_s, 0
                while self._filled < self._size and not self._has_failed and left_s > 0:
                    check_continues()
                    if not self._changed.wait(_CHECK_S):
                        left_s -= _CHECK_S
                    if self._filled > before:
                        left_s, before = patience_s, self._filled
                is_whole = self._filled == self._size and not self._has_failed
                return b"".join(self._frames) if is_whole else None
        finally:
            self._fail()
            self._close()
