"""Puts the REST API and uvicorn together. Imported on the server's thread only, because its parts take time to import."""

from __future__ import annotations

import atexit
import ssl
from typing import Final

from penstock.engine.hosting.network.http_server import HttpServer
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

_UNREAD_S: Final = 10.0
"""How long the end of the process waits for clients that have not read the results of their operations yet."""
_SENDING_S: Final = 2.0
"""How long it then waits until the answers are sent: a result that is asked for is not sent yet."""


def _is_standby() -> bool:
    session = SESSION_PLACE.session
    return JOB_REGISTRY.is_standby if session is None else session.is_standby


def server_of(
    settings: Settings, access: Access, address: str, context: ssl.SSLContext | None = None
) -> HttpServer:
    """Return a server that answers the REST API. `context`: for HTTPS."""
    operations = Operations(settings.get(RestOptions.STORE_DURATION) / 1000)
    driver = Driver(JOB_REGISTRY, settings, operations, address, access.token)
    described = Route("GET", "/openapi.json", lambda *_: document(ROUTES), "This document.")
    routes = (described, *ROUTES)
    most_bytes = settings.get(RestOptions.MAX_CONTENT)
    live = Live(driver, ROUTES, JOB_REGISTRY)
    application = application_of(driver, routes, access, most_bytes, _is_standby, live)
    server = HttpServer(application, context, at_end=live.close)
    atexit.register(let_clients_read, operations, server)
    return server


def let_clients_read(operations: Operations, server: HttpServer) -> None:
    """At the end of the process: let clients get the results of their operations, and their answers to the last byte.

    Without operations nothing is waited for.
    """
    if is_in_a_hurry() or not operations.is_any_known:
        return
    operations.wait_until_read(_UNREAD_S)
    server.should_exit = True
    server.ended.wait(_SENDING_S)
