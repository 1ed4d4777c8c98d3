"""The JobManager's listening side: authenticates peers, reads messages, and reports when a
TaskManager's connection ends.

One asyncio task for each connection. Nothing of a peer is unpickled before its handshake is done. A
message that the JobManager does not accept, or a broken frame, closes only the connection it came
on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any, Final, Protocol

from penstock.hosting.jobmanager.control_link import ControlLink
from penstock.hosting.wire.addresses import CONTROL_PORT, Endpoint, listen
from penstock.hosting.wire.control_wire import ControlWire
from penstock.hosting.wire.handshake import (
    LIMIT_SECONDS,
    NONCE_BYTES,
    ROLE_SUPERVISOR,
    ROLE_TASKMANAGER,
    Credentials,
    ServerHandshake,
)
from penstock.model.errors import ExternalError
from penstock.model.ids import ResourceId

_LOG: Final = logging.getLogger(__name__)


class Listener(Protocol):
    """The owner of the server; it is called on its loop."""

    def received(self, role: int, message: Any, control: ControlLink) -> ResourceId | None:
        """Handle one message. Returns: the sender's id, if the message tells it."""

    def disconnected(self, resource_id: ResourceId, cause: str) -> None:
        """A TaskManager's connection has ended."""


class ControlServer:
    """Call `open` on the listener's loop. `close` stops listening; open connections stay with their owner."""

    def __init__(self, credentials: Credentials, listener: Listener) -> None:
        self._credentials = credentials
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def open(self, endpoint: Endpoint) -> int:
        """Listen. Returns the port that peers dial. Raises: ExternalError: none of the ports is free."""
        sock = listen(endpoint, CONTROL_PORT)
        self._server = await asyncio.start_server(self._on_connection, sock=sock)
        port: int = sock.getsockname()[1]
        return endpoint.port or port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection.

        An error of ours while a message is handled goes to the loop's exception handler. Then the
        job ends with that error; the peer is not blamed and replaced.
        """
        try:
            handshake = await self._authenticate(reader, writer)
            if handshake is not None:
                await self._serve(handshake, reader, writer)
        except asyncio.CancelledError:
            pass  # The job is over.
        finally:
            writer.close()

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ServerHandshake | None:
        """Return the peer's handshake; None: the peer did not prove itself, and is dropped."""
        handshake = ServerHandshake(self._credentials, secrets.token_bytes(NONCE_BYTES))
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while not handshake.is_done:
                    data = await reader.read(4096)
                    if not data:
                        return None
                    writer.write(handshake.feed(data))
        except (ExternalError, TimeoutError, OSError) as error:
            peer = writer.get_extra_info("peername")
            _LOG.warning("peer=%s REFUSED cause=%s: %s", peer, type(error).__name__, error)
            return None
        return handshake if handshake.role in (ROLE_TASKMANAGER, ROLE_SUPERVISOR) else None

    async def _serve(
        self,
        handshake: ServerHandshake,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        wire = ControlWire(handshake.session)
        control = ControlLink(writer, wire)
        resource_id: ResourceId | None = None
        cause = "connection closed"
        data = handshake.leftover
        try:
            while True:
                try:
                    for message in wire.feed(data):
                        named = self._listener.received(handshake.role, message, control)
                        resource_id = named or resource_id
                except ExternalError as error:
                    cause = f"a message was refused: {error}"
                    return
                try:
                    data = await reader.read(1 << 18)
                except OSError as error:
                    cause = f"connection broke: {error}"
                    return
                if not data:
                    return
        finally:
            if resource_id is not None and handshake.role == ROLE_TASKMANAGER:
                self._listener.disconnected(resource_id, cause)
