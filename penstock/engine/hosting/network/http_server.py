"""The HTTP server of all listeners of Penstock: uvicorn, with bounds on what strangers can take from it.

A connection has a place. When all are taken, a newer one gets that of a stranger: of the user or address that has
most of them, first one that waits for no answer. So nobody who proves himself is kept out. Each request has a time
limit, and so has each answer that is not read. Source: Flink sets no such bounds. Needs uvicorn and starlette, and is
imported only where something is served: they take time to import.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.engine.hosting.network.wire.acceptor import Complaints
from penstock.engine.hosting.os.socket_owners import is_this_user, user_of_other_end

MOST_OPEN: Final = 256
"""Connections of one server."""
REQUEST_S: Final = 10.0
"""How long a client may take for its first request, and for each one from its first byte to its last."""
UNREAD_S: Final = 30.0
"""How long a client may read nothing of an answer."""
_IDLE_S: Final = 300
_END_S: Final = 5
"""How long the end of a server waits for answers that are under way."""
_BACKLOG: Final = 128
"""How many connections are accepted before one of them is looked at."""
_ERRORS: Final = logging.getLogger(f"{__name__}.errors")
"""Without warnings: a line for each request that cannot be read would fill the log."""
_ERRORS.setLevel(logging.ERROR)


# ---------------------------------------------------------------------- places


@dataclass(slots=True, eq=False)
class Caller:
    """Who is at the other end of a connection. `origin`: the user if the kernel names one, else the address.

    `is_proven`: it is this process's user, or has shown a token. `protocol`: None: TLS has not begun.
    """

    sock: socket.socket
    address: str
    origin: int | str
    is_own_user: bool
    is_proven: bool
    protocol: BoundedProtocol | None = None

    @property
    def awaits_answer(self) -> bool:
        return self.protocol is not None and self.protocol.awaits_answer

    def end(self) -> None:
        if self.protocol is not None:
            self.protocol.transport.abort()
        else:
            with contextlib.suppress(OSError):  # The peer has reset it already.
                self.sock.shutdown(socket.SHUT_RDWR)  # The event loop closes it, then.


@dataclass(slots=True)
class Places:
    """The connections of one server, the oldest first, by their descriptors. Belongs to its event loop."""

    most: int
    complaints: Complaints = field(default_factory=Complaints)
    _taken: dict[int, Caller] = field(default_factory=dict)

    def take(self, sock: socket.socket, address: str) -> None:
        """Raises: ConnectionAbortedError: there is no place; the connection was closed."""
        self._taken = {at: one for at, one in self._taken.items() if one.sock.fileno() == at}
        try:
            user = user_of_other_end(sock)
        except OSError:  # No descriptor is left to ask with: better not accepted than a stranger.
            sock.close()
            raise
        if len(self._taken) >= self.most:
            self._make_room(sock, address)
        is_own = is_this_user(user)
        origin = address if user is None else user
        self._taken[sock.fileno()] = Caller(sock, address, origin, is_own, is_own)

    def of(self, sock: Any) -> Caller | None:
        """Return who has this connection. None: its place was given to another one."""
        return self._taken.get(sock.fileno())

    def end(self, caller: Caller, cause: str) -> None:
        """Close a connection."""
        self.complaints.of(caller.address, cause)
        self._taken = {at: one for at, one in self._taken.items() if one is not caller}
        caller.end()

    def _make_room(self, newer: socket.socket, address: str) -> None:
        callers = self._taken.values()
        crowd = Counter(one.origin for one in callers)
        cause = f"{self.most} connections are open, and others go first"
        # Of equal ones `min` gives the first, which is the oldest.
        last = min(callers, key=lambda one: (one.is_proven, -crowd[one.origin], one.awaits_answer))
        if last.is_proven and last.awaits_answer:
            newer.close()
            self.complaints.of(address, cause)
            raise ConnectionAbortedError(cause)
        self.end(last, cause)


class BoundedListener(socket.socket):
    """A listening socket whose connections take places."""

    def __init__(self, listening: socket.socket, places: Places) -> None:
        """`listening`: stays open, and its owner's."""
        super().__init__(fileno=os.dup(listening.fileno()))
        self._places = places

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises: ConnectionAbortedError: there is no place; the new one was closed."""
        sock, address = super().accept()
        self._places.take(sock, str(address[0]))
        return sock, address


# ---------------------------------------------------------------------- connections


class BoundedProtocol(H11Protocol):
    """Knows who calls, and ends requests that do not come and answers that are not read.

    The application finds `caller` in its state.
    """

    config: _Config

    # asyncio's streams are Transports.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False
        self.logger = _ERRORS
        transport.set_write_buffer_limits(1)  # What the kernel does not take is not read.
        self._request_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        caller = self.config.places.of(transport.get_extra_info("socket"))
        if caller is None:
            transport.abort()
            return
        caller.protocol = self
        self.caller = caller
        self.app_state = {**self.app_state, "caller": caller}
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_request()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.caller.is_proven:
            self._expect_no_request()  # It has its time anew.
        super().data_received(data)

    def handle_events(self) -> None:
        """Also called when an answer is complete: the next request may be half here."""
        super().handle_events()
        state = self.conn.their_state
        if state is not h11.SEND_BODY and not (state is h11.IDLE and self.conn.trailing_data[0]):
            self._expect_no_request()
        elif self._request_timer is None:
            self._expect_request()

    def send_400_response(self, msg: str) -> None:
        self.config.places.complaints.of(self.caller.address, msg)
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:  # Its answer has begun.
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def shutdown(self) -> None:
        """End when the answer is sent. A request that has not come as a whole gets none."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()
        else:
            super().shutdown()

    @property
    def awaits_answer(self) -> bool:
        """Whether a whole request has come, and its answer has not gone yet."""
        cycle: Any = self.cycle  # None before the first request.
        is_answered = cycle is None or cycle.response_complete
        return not is_answered and self.conn.their_state is not h11.SEND_BODY

    def _expect_request(self) -> None:
        self._expect_no_request()
        limit_s = self.config.request_s
        cause = f"it sent no whole request within {limit_s:g} s"
        self._request_timer = self.loop.call_later(limit_s, self._end, cause)

    def _expect_no_request(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _expect_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(UNREAD_S, self._end_unread, left)

    def _end_unread(self, left: int) -> None:
        if self.transport.get_write_buffer_size() < left:
            self._expect_reading()
        else:
            self._end(f"it read nothing of its answer for {UNREAD_S:g} s")

    def _end(self, cause: str) -> None:
        self.config.places.end(self.caller, cause)


def _of_one_length(application: Any) -> Any:
    """Refuse a request whose end can be seen in two ways: a proxy may take the other one, and then see another next request.

    h11 refuses all others, as two different Content-Lengths. Source: RFC 9112, 6.3.
    """

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            text = "A request has Content-Length or Transfer-Encoding, not both.\n"
            refusal = PlainTextResponse(text, 400, {"Connection": "close"})
            await refusal(scope, receive, send)
        else:
            await application(scope, receive, send)

    return checked


# ---------------------------------------------------------------------- servers


class _Config(uvicorn.Config):
    """Leaves the loggers as the program has them, which may have a uvicorn of its own."""

    def __init__(
        self,
        application: Any,
        places: Places,
        request_s: float,
        context: ssl.SSLContext | None,
        idle_s: int,
    ) -> None:
        super().__init__(
            _of_one_length(application),
            http=BoundedProtocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=idle_s,
            timeout_graceful_shutdown=_END_S,
        )
        self.places = places
        self.request_s = request_s
        self._context = context

    def load(self) -> None:
        super().load()
        self.ssl = self._context

    def configure_logging(self) -> None:
        pass


class HttpServer(uvicorn.Server):
    """`ended`: all answers are sent."""

    config: _Config

    def __init__(
        self,
        application: Any,
        context: ssl.SSLContext | None = None,
        *,
        most_open: int = MOST_OPEN,
        request_s: float = REQUEST_S,
        idle_s: int = _IDLE_S,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`application`: ASGI. `context`: for HTTPS. `request_s`: the time limit of each request.

        `idle_s`: how long a client may be silent between two requests. `at_end`: ends answers that would not end by themselves.
        """
        places = Places(most_open)
        super().__init__(_Config(application, places, request_s, context, idle_s))
        self._at_end = at_end
        self.ended = threading.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set. `sockets`: listen; they are closed at the end."""
        bounded: list[socket.socket] = [
            BoundedListener(one, self.config.places) for one in sockets or ()
        ]
        try:
            super().run(bounded or None)
        finally:
            for one in sockets or ():
                one.close()
            self.ended.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._at_end()
        await super().shutdown(sockets)
        for one in list(self.server_state.connections):
            one.transport.abort()
        await asyncio.sleep(0)  # So that the loop closes them.
