"""Puts the REST API and uvicorn together. Imported on the server's thread only, because its parts take time to import."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import socket
import threading
import weakref
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.engine.hosting.network.wire.acceptor import Complaints
from penstock.engine.hosting.os.socket_owners import is_of_this_user
from penstock.engine.hosting.os.waiting import is_in_a_hurry
from penstock.engine.model.config import Settings
from penstock.engine.model.options.rest import RestOptions
from penstock.ops.registry.job_registry import JOB_REGISTRY
from penstock.ops.rest.access import Access
from penstock.ops.rest.application import application_of
from penstock.ops.rest.live import Live
from penstock.ops.rest.operations import Operations
from penstock.ops.rest.requests.handlers import Driver
from penstock.ops.rest.routes import ROUTES, Route, document
from penstock.ops.rest.session_place import SESSION_PLACE

# ---------------------------------------------------------------------- connections
# Bounds on the connections of a server of HTTP: whoever connects and says nothing costs a place
# for a moment, and no descriptor that the job needs. Source: Flink sets no such bounds; they are
# those of `wire.acceptor`.


MOST_OPEN: Final = 256
"""Connections of one server. For a newer one the oldest is closed whose client waits for no answer."""
MOST_ACCEPTED: Final = 2 * MOST_OPEN
"""With those whose TLS has not begun yet. A newer one is closed."""
SILENT_S: Final = 10.0
"""How long a client may take for its first request."""
_NUMBERS: Final = itertools.count()


class BoundedProtocol(H11Protocol):
    """Gives the application a way to ask the kernel who is at the other end, and makes room for others."""

    complaints = Complaints()

    # asyncio's streams are Transports.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False
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


# ---------------------------------------------------------------------- serving


_IDLE_S: Final = 300
_UNREAD_S: Final = 10.0
"""How long the end of the process waits for clients that have not read the results of their operations yet."""
_SENDING_S: Final = 2.0
"""How long it then waits until the answers are sent: a result that is asked for is not sent yet."""


def _is_standby() -> bool:
    session = SESSION_PLACE.session
    return JOB_REGISTRY.is_standby if session is None else session.is_standby


def server_of(settings: Settings, access: Access, address: str) -> Server:
    """Return a server that answers the REST API; its `run` serves until `should_exit` is set."""
    operations = Operations(settings.get(RestOptions.STORE_DURATION) / 1000)
    driver = Driver(JOB_REGISTRY, settings, operations, address, access.token)
    described = Route("GET", "/openapi.json", lambda *_: document(ROUTES), "This document.")
    routes = (described, *ROUTES)
    most_bytes = settings.get(RestOptions.MAX_CONTENT)
    live = Live(driver, ROUTES, JOB_REGISTRY)
    application = application_of(driver, routes, access, most_bytes, _is_standby, live)
    keystore = settings.get(RestOptions.KEYSTORE) if settings.get(RestOptions.SSL) else None
    server = uvicorn_server(application, keystore, settings.get(RestOptions.KEY_PASSWORD), live)
    atexit.register(let_clients_read, operations, server)
    return server


class _Config(uvicorn.Config):
    """Leaves the loggers as the program has them, which may have a uvicorn of its own."""

    def configure_logging(self) -> None:
        pass


class Server(uvicorn.Server):
    """Ends its live streams first, for they would not end by themselves. `ended`: all answers are sent."""

    def __init__(self, config: uvicorn.Config, live: Live | None) -> None:
        super().__init__(config)
        self.live = live
        self.ended = threading.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        bounded: list[socket.socket] = [BoundedListener(one) for one in sockets or ()]
        try:
            super().run(bounded or None)
        finally:
            for one in sockets or ():
                one.close()
            self.ended.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.live is not None:
            self.live.close()
        await super().shutdown(sockets)


def let_clients_read(operations: Operations, server: Server) -> None:
    """At the end of the process: let clients get the results of their operations, and their answers to the last byte.

    Without operations nothing is waited for.
    """
    if is_in_a_hurry() or not operations.is_any_known:
        return
    operations.wait_until_read(_UNREAD_S)
    server.should_exit = True
    server.ended.wait(_SENDING_S)


def uvicorn_server(
    application: Any,
    keystore: str | None = None,
    password: str | None = None,
    live: Live | None = None,
) -> Server:
    """Return a server for an ASGI application; its `run` serves until `should_exit` is set.

    `keystore`: for HTTPS. `live`: the streams of the application.
    """
    config = _Config(
        application,
        http=BoundedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        server_header=False,
        timeout_keep_alive=_IDLE_S,
        ssl_certfile=keystore,
        ssl_keyfile=keystore,
        ssl_keyfile_password=password,
    )
    return Server(config, live)
