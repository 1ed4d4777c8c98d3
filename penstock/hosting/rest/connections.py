"""Bounds on the connections of a server of HTTP: whoever connects and says nothing costs a place for a moment, and no descriptor that
the job needs. Source: Flink sets no such bounds; they are those of `wire.greeter`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import weakref
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.hosting.wire.greeter import Complaints
from penstock.hosting.wire.local_peer import is_of_this_user

MOST_OPEN: Final = 256
"""Connections of one server. For a newer one the oldest is closed whose client waits for no answer."""
MOST_ACCEPTED: Final = 2 * MOST_OPEN
"""With those whose TLS has not begun yet. A newer one is closed."""
SILENT_S: Final = 10.0
"""How long a client may take for its first request."""
_NUMBERS: Final = itertools.count()


class BoundedProtocol(H11Protocol):
    """Tells the application how to ask the kernel who is at the other end, and makes room for others."""

    complaints = Complaints()

    # asyncio's streams are Transports.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock: Any = transport.get_extra_info("socket")
        self.app_state = {**self.app_state, "is_own_user": lambda: is_of_this_user(sock)}
        self.number = next(_NUMBERS)
        self._silence = self.loop.call_later(SILENT_S, self._end_silent)
        if len(self.connections) > MOST_OPEN:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence.cancel()
        super().connection_lost(exc)

    @property
    def awaits_answer(self) -> bool:
        """Whether a whole request has come, and its answer has not gone yet."""
        cycle: Any = self.cycle  # None before the first request.
        is_answered = cycle is None or cycle.response_complete
        return not is_answered and self.conn.their_state is not h11.SEND_BODY

    def _make_room(self) -> None:
        others: list[BoundedProtocol] = [
            one
            for one in self.connections
            if isinstance(one, BoundedProtocol) and one is not self and not one.awaits_answer
        ]
        oldest = min(others, key=lambda one: one.number, default=self)
        oldest._end(f"{MOST_OPEN} connections are open, and this one waits for no answer longest")

    def _end_silent(self) -> None:
        cycle: Any = self.cycle
        if cycle is None:
            self._end(f"it asked nothing within {SILENT_S:g} s")

    def _end(self, cause: str) -> None:
        self.complaints.of(str(self.client[0] if self.client else "unknown"), cause)
        self.connections.discard(self)
        self.transport.abort()


class BoundedListener(socket.socket):
    """A listening socket that has at most `MOST_ACCEPTED` open connections."""

    def __init__(self, listening: socket.socket) -> None:
        """`listening`: stays open, and its owner's."""
        super().__init__(fileno=os.dup(listening.fileno()))
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises: ConnectionAbortedError: there are too many; the new one was closed."""
        sock, address = super().accept()
        if sum(one.fileno() >= 0 for one in self._accepted) >= MOST_ACCEPTED:
            sock.close()
            raise ConnectionAbortedError(f"{MOST_ACCEPTED} connections are open")
        self._accepted.add(sock)
        return sock, address
