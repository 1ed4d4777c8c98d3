"""The JobManager's listening side: authenticates peers, reads messages, and reports when a
TaskManager's connection ends.

One asyncio task for each connection. Nothing of a peer is unpickled before its handshake is done. A
message that the JobManager does not accept, or a broken frame, closes only the connection it came
on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Generator
from typing import Any, Final, Protocol, cast

from penstock.hosting.jobmanager.control_link import ControlLink
from penstock.hosting.wire.addresses import CONTROL_PORT, Endpoint, listen
from penstock.hosting.wire.control_wire import ControlWire
from penstock.hosting.wire.enrolment import admission
from penstock.hosting.wire.greeter import MAX_UNPROVEN, NO_ROOM, RETRY_S, Complaints
from penstock.hosting.wire.handshake import (
    LIMIT_BYTES,
    LIMIT_SECONDS,
    NONCE_BYTES,
    ROLE_GUEST,
    ROLE_SUPERVISOR,
    ROLE_TASKMANAGER,
    Credentials,
    ServerHandshake,
)
from penstock.hosting.wire.invitations import Invitations
from penstock.hosting.wire.tls import server_context
from penstock.model.errors import AuthenticationError, ExternalError
from penstock.model.ids import ResourceId

_MEMBERS: Final = (ROLE_TASKMANAGER, ROLE_SUPERVISOR)
_GUESTS: Final = (ROLE_GUEST,)
_LOG: Final = logging.getLogger(__name__)


class Listener(Protocol):
    """The owner of the server; it is called on its loop."""

    def received(self, role: int, message: Any, control: ControlLink) -> ResourceId | None:
        """Handle one message. Returns: the sender's id, if the message tells it."""

    def disconnected(self, resource_id: ResourceId, cause: str) -> None:
        """The connection of somebody in the reported role has ended."""


class ControlServer:
    """Call `open` and `close` on the listener's loop. Connections that have proved themselves stay with their owner."""

    def __init__(
        self,
        credentials: Credentials,
        listener: Listener,
        invitations: Invitations | None = None,
        *,
        reports: int = ROLE_TASKMANAGER,
    ) -> None:
        """`invitations`: whom else to give the credentials. `reports`: the role whose lost connections are told."""
        self._reports = reports
        self._credentials = credentials
        self._invitations = invitations
        self._listener = listener
        self._socket: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._accepted: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._complaints = Complaints()
        self._unproven: dict[asyncio.Task[None], str] = {}

    async def open(self, endpoint: Endpoint) -> int:
        """Listen. Returns the port that peers dial. Raises: ExternalError: none of the ports is free."""
        self._socket = listen(endpoint, CONTROL_PORT)
        self._socket.setblocking(False)
        self._listen()
        port: int = self._socket.getsockname()[1]
        return endpoint.port or port

    async def close(self) -> None:
        """Stop listening, and close the connections that have not proved themselves: whoever dials would wait for an answer."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        while unproven := [*self._accepted, *self._unproven]:
            for task in unproven:
                task.cancel()
            await asyncio.wait(unproven)

    # ------------------------------------------------------------------ accepting

    def _listen(self) -> None:
        assert self._socket is not None, "`open` was called"
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Take one connection. asyncio's own server would tell the loop of an error if no descriptor is free, and that ends the job."""
        assert self._socket is not None, "`open` was called"
        loop = asyncio.get_running_loop()
        try:
            sock, _ = self._socket.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                _LOG.warning("server=ACCEPTS_NOBODY for_s=%s cause=%s", RETRY_S, error)
                loop.remove_reader(self._socket)
                self._retry = loop.call_later(RETRY_S, self._listen)
            return  # Otherwise the peer is gone already.
        sock.setblocking(False)
        task = loop.create_task(self._begin(sock))
        self._accepted.add(task)

        def begun(task: asyncio.Task[None]) -> None:
            self._accepted.discard(task)
            if task.cancelled():  # Perhaps before its first step.
                sock.close()

        task.add_done_callback(begun)

    async def _begin(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._on_connection)
        try:
            await loop.connect_accepted_socket(lambda: protocol, sock)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):  # Otherwise the peer is gone already.
                raise

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one connection.

        An error of ours while a message is handled goes to the loop's exception handler. Then the
        job ends with that error; the peer is not blamed and replaced.
        """
        try:
            if self._is_closed:
                return
            handshake = await self._authenticate(reader, writer)
            if handshake is not None and handshake.is_guest:
                writer.write(admission(self._credentials, handshake.session))
            elif handshake is not None:
                await self._serve(handshake, reader, writer)
        except asyncio.CancelledError:
            pass  # The job is over, or a newer connection took the place of one without a proof.
        finally:
            writer.close()

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ServerHandshake | None:
        """Return the peer's handshake; None: the peer did not prove itself, and is dropped."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        handshake = ServerHandshake(self._credentials, nonce, self._invitations)
        peer = writer.get_extra_info("peername")
        address = str(peer[0] if peer else "unknown")
        cause: str | BaseException
        try:
            with self._place_of_unproven(address):
                async with asyncio.timeout(LIMIT_SECONDS):
                    await _shake_hands(handshake, reader, writer)
            if handshake.role in (_GUESTS if handshake.is_guest else _MEMBERS):
                return handshake
            cause = f"it connected in role {handshake.role}"
        except TimeoutError:
            cause = f"it did not prove itself within {LIMIT_SECONDS:g} s"
        except (ExternalError, OSError) as error:
            cause = error
        self._complaints.of(address, str(cause))
        return None

    @contextlib.contextmanager
    def _place_of_unproven(self, address: str) -> Generator[None]:
        """One of `MAX_UNPROVEN` places. When all are taken, the connection that has one longest is closed."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._unproven) >= MAX_UNPROVEN:
            oldest = next(iter(self._unproven))
            why = f"{MAX_UNPROVEN} connections are in handshakes, this one longest"
            self._complaints.of(self._unproven.pop(oldest), why)
            oldest.cancel()
        self._unproven[task] = address
        try:
            yield
        finally:
            self._unproven.pop(task, None)

    async def _serve(
        self,
        handshake: ServerHandshake,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        session = handshake.session
        wire = ControlWire(session if handshake.identity is None else session.within_tls())
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
            if resource_id is not None and handshake.role == self._reports:
                self._listener.disconnected(resource_id, cause)


async def _shake_hands(
    handshake: ServerHandshake, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Do the handshake, and that of TLS if the job's connections are encrypted.

    Raises: AuthenticationError, OSError.
    """
    is_done = False
    while not is_done:
        data = await reader.read(LIMIT_BYTES)
        if not data:
            raise AuthenticationError("it closed the connection before its proof")
        answer = handshake.feed(data)
        is_done = handshake.is_done
        if is_done and handshake.identity is not None:
            # The peer speaks TLS as soon as it has this answer. Nothing of that must be read here.
            cast("asyncio.Transport", writer.transport).pause_reading()
        writer.write(answer)
    if handshake.identity is not None:
        if handshake.leftover:
            raise AuthenticationError("it sent data before the connection was encrypted")
        await writer.start_tls(server_context(handshake.identity))
