"""Puts the REST API and uvicorn together. Imported on the server's thread only, because its parts take time to import."""

from __future__ import annotations

import atexit
import socket
import sys
import threading
from typing import Any, Final

import uvicorn

from penstock.hosting.observation.observatory import OBSERVATORY
from penstock.hosting.rest.access import Access
from penstock.hosting.rest.answers import Answer, Asked
from penstock.hosting.rest.application import application_of
from penstock.hosting.rest.connections import BoundedListener, BoundedProtocol
from penstock.hosting.rest.live import Live
from penstock.hosting.rest.openapi import document
from penstock.hosting.rest.operations import Operations
from penstock.hosting.rest.requests.handlers import Driver
from penstock.hosting.rest.routes import ROUTES, Route
from penstock.hosting.rest.session_place import SESSION_PLACE
from penstock.hosting.waiting import is_in_a_hurry
from penstock.model.config import Settings
from penstock.model.options.rest import RestOptions

_IDLE_S: Final = 300
_SWITCH_S: Final = 0.001
"""How long a page may keep the interpreter from a job's control loop: a fifth of Python's default."""
_UNREAD_S: Final = 10.0
"""How long the end of the process waits for clients that have not read the results of their operations yet."""
_SENDING_S: Final = 2.0
"""How long it then waits until the answers are sent: a result that is asked for is not sent yet."""


def _is_standby() -> bool:
    session = SESSION_PLACE.session
    return OBSERVATORY.is_standby if session is None else session.is_standby


def _document(_driver: Driver, _asked: Asked) -> Answer:
    return Answer(document(ROUTES))


def server_of(settings: Settings, access: Access, address: str) -> Server:
    """Return a server that answers the REST API; its `run` serves until `should_exit` is set."""
    operations = Operations(settings.get(RestOptions.STORE_DURATION) / 1000)
    sys.setswitchinterval(min(_SWITCH_S, sys.getswitchinterval()))
    driver = Driver(OBSERVATORY, settings, operations, address)
    described = Route("GET", "/openapi.json", _document, "This document.")
    routes = (described, *ROUTES)
    most_bytes = settings.get(RestOptions.MAX_CONTENT)
    live = Live(driver, ROUTES, OBSERVATORY)
    application = application_of(driver, routes, access, most_bytes, _is_standby, live)
    keystore = settings.get(RestOptions.KEYSTORE) if settings.get(RestOptions.SSL) else None
    server = uvicorn_server(application, keystore, settings.get(RestOptions.KEY_PASSWORD), live)
    atexit.register(let_clients_read, operations, server)
    return server


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
    config = uvicorn.Config(
        application,
        http=BoundedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_IDLE_S,
        ssl_certfile=keystore,
        ssl_keyfile=keystore,
        ssl_keyfile_password=password,
    )
    return Server(config, live)
