"""The JobManager's listening side: authenticates peers, reads messages, and reports when a
TaskManager's connection ends.

One asyncio task for each connection, which is TLS from its first byte. Nothing of a peer is unpickled
before its handshake is done. A message that the JobManager does not accept, or a broken frame, closes
only the connection it came on.

Connections of registered TaskManagers and of their supervisors, and which TaskManagers are
fenced off.

Used by the JobManager's loop only. A fenced TaskManager is no longer heard, and no second one may
use its name. Messages to a TaskManager carry the JobManager's fencing token, so that a TaskManager
of another leader drops them.

The JobManager's end of one control connection, to a TaskManager or to its supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, cast

from penstock.engine.hosting.network.wire import messages
from penstock.engine.hosting.network.wire.acceptor import NO_ROOM, RETRY_S, Complaints
from penstock.engine.hosting.network.wire.addresses import CONTROL_PORT, Endpoint, listen
from penstock.engine.hosting.network.wire.dialling import Tickets
from penstock.engine.hosting.network.wire.handshake import (
    LIMIT_BYTES,
    LIMIT_SECONDS,
    ROLE_SUPERVISOR,
    ROLE_TASKMANAGER,
    Credentials,
    ServerHandshake,
    Shown,
)
from penstock.engine.hosting.network.wire.messages import ControlWire, encode
from penstock.engine.hosting.network.wire.tls import server_context
from penstock.engine.model.errors import AuthenticationError, ExternalError
from penstock.engine.model.ids import BlobKey, FencingToken, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import (
    FENCED,
    KillTaskManager,
    MasterHeartbeat,
    PutBlob,
    Shutdown,
)

_TCP_INFO: Final = struct.Struct("=B7x48xI")
"""Of Linux's struct tcp_info: state, and at byte 56 tcpi_last_ack_recv, in ms."""
_ESTABLISHED: Final = 1


class ControlLink:
    """Messages out. On the JobManager's loop only."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    def answers(self, within_ms: int) -> bool:
        """Whether the kernel at the other end has acknowledged something within this time. Linux only.

        A process that gets no processor is silent, but its kernel answers for it. When the process
        has ended, the kernel closes the connection.
        """
        sock = self._writer.get_extra_info("socket")
        if self.is_closing or sock is None or not hasattr(socket, "TCP_INFO"):
            return False
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except OSError:
            return False
        if len(info) < _TCP_INFO.size:
            return False
        state, last_ack_ms = _TCP_INFO.unpack(info)
        return bool(state == _ESTABLISHED and last_ack_ms <= within_ms)

    def send(self, message: object) -> None:
        """Send a message. Dropped when the connection is closing; the loss is reported
        elsewhere.
        """
        if not self.is_closing:
            self._writer.write(messages.frame(message))

    def send_encoded(self, body: bytes) -> None:
        """The same, of a message that goes to many and is encoded once."""
        if not self.is_closing:
            self._writer.write(messages.frame_of(body))

    def close(self) -> None:
        self._writer.close()

    async def drained(self) -> None:
        """Until what was sent has left, or a second is over."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.drain()


@dataclass(slots=True)
class Link:
    """One registered TaskManager."""

    location: TaskManagerLocation
    control: ControlLink
    blobs: set[BlobKey] = field(default_factory=set)


class Links:
    """The connections over which TaskManagers and supervisors can be reached."""

    def __init__(self, fencing_token: FencingToken) -> None:
        """`fencing_token`: of this JobManager."""
        self.fencing_token = fencing_token
        self.by_id: dict[ResourceId, Link] = {}
        self._supervisors: dict[ResourceId, ControlLink] = {}
        self._fenced: set[ResourceId] = set()

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self.by_id

    def register(self, location: TaskManagerLocation, control: ControlLink) -> None:
        """Register a TaskManager. Raises ExternalError if it is fenced or registered already; its
        connection is then closed.
        """
        resource_id = location.resource_id
        if resource_id in self._fenced or resource_id in self.by_id:
            raise ExternalError(
                f"{resource_id} was declared lost; no second one of that name is accepted"
            )
        self.by_id[resource_id] = Link(location, control)

    def location(self, resource_id: ResourceId) -> TaskManagerLocation | None:
        link = self.by_id.get(resource_id)
        return None if link is None else link.location

    def supervise(self, resource_id: ResourceId, control: ControlLink) -> None:
        """Note the connection of a TaskManager's supervisor, unless the TaskManager is fenced: its heartbeat may have crossed the
        order to end, or it connects later than that.
        """
        if resource_id in self._fenced:
            control.send(Shutdown("fenced off"))
        else:
            self._supervisors[resource_id] = control

    def is_supervised(self, resource_id: ResourceId) -> bool:
        """Whether its supervisor is still connected."""
        supervisor = self._supervisors.get(resource_id)
        return supervisor is not None and not supervisor.is_closing

    def answers(self, resource_id: ResourceId, within_ms: int) -> bool:
        """Whether the kernel of its machine has acknowledged something within this time, on its
        connection or its supervisor's.
        """
        link = self.by_id.get(resource_id)
        controls = [self._supervisors.get(resource_id), None if link is None else link.control]
        return any(control is not None and control.answers(within_ms) for control in controls)

    def send(self, resource_id: ResourceId, message: object) -> None:
        """Send a message. It is dropped if the TaskManager is not registered; its loss is reported elsewhere."""
        link = self.by_id.get(resource_id)
        if link is not None:
            link.control.send(self.stamped(message))

    def stamped(self, message: Any) -> object:
        """Return the message with this JobManager's fencing token."""
        if type(message) not in FENCED:
            return message
        return replace(message, fencing_token=self.fencing_token)

    def send_blob_once(self, resource_id: ResourceId, key: BlobKey, data: bytes) -> None:
        link = self.by_id.get(resource_id)
        if link is not None and key not in link.blobs:
            link.blobs.add(key)
            self.send(resource_id, PutBlob(key, data))

    def beat(self) -> None:
        """Send a heartbeat to all."""
        body = encode(MasterHeartbeat())
        controls = [link.control for link in self.by_id.values()]
        for control in (*controls, *self._supervisors.values()):
            control.send_encoded(body)

    def end(self, resource_id: ResourceId, reason: str) -> None:
        """Order a TaskManager to end, and its supervisor to make sure of that."""
        self.send(resource_id, Shutdown(reason))
        supervisor = self._supervisors.pop(resource_id, None)
        if supervisor is not None:
            supervisor.send(Shutdown(reason))

    def kill(self, resource_id: ResourceId, reason: str) -> bool:
        """Have its supervisor kill it. False: the supervisor is not connected."""
        supervisor = self._supervisors.get(resource_id)
        if supervisor is None or supervisor.is_closing:
            return False
        supervisor.send(KillTaskManager(reason))
        return True

    def fence(self, resource_id: ResourceId) -> bool:
        """Fence it off. False: it was not registered."""
        self._fenced.add(resource_id)
        link = self.by_id.pop(resource_id, None)
        if link is not None:
            link.control.close()
        return link is not None

    def is_fenced(self, resource_id: ResourceId) -> bool:
        return resource_id in self._fenced

    def everybody(self) -> set[ResourceId]:
        return {*self.by_id, *self._supervisors}

    async def drained(self) -> None:
        """Wait until all messages have left."""
        await asyncio.gather(*(link.control.drained() for link in self.by_id.values()))

    def close(self) -> None:
        for link in self.by_id.values():
            link.control.close()


MAX_UNPROVEN: Final = 256
"""Hundreds of TaskManagers may dial at once, and their supervisors."""
_MEMBERS: Final = (ROLE_TASKMANAGER, ROLE_SUPERVISOR)
_LOG: Final = logging.getLogger(__name__)


class Listener(Protocol):
    """The owner of the server; it is called on its loop."""

    def received(self, role: int, message: Any, control: ControlLink) -> ResourceId | None:
        """Handle one message. Returns: the sender's id, if the message has it."""

    def disconnected(self, resource_id: ResourceId, cause: str) -> None:
        """The connection of somebody in the reported role has ended."""


class ControlServer:
    """Call `open` and `close` on the listener's loop. Connections that have proved themselves stay with their owner."""

    def __init__(
        self,
        credentials: Credentials,
        listener: Listener,
        tickets: Tickets | None = None,
        *,
        reports: int = ROLE_TASKMANAGER,
    ) -> None:
        """`tickets`: of processes that may register. `reports`: the role whose lost connections are reported."""
        self._reports = reports
        self._credentials = credentials
        self._tickets = tickets
        self._context = server_context(credentials.identity, admits_tickets=tickets is not None)
        self._listener = listener
        self.listening: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._complaints = Complaints()
        self._unproven: dict[asyncio.Task[None], str] = {}
        self._proven: set[asyncio.Task[None]] = set()

    async def open(self, endpoint: Endpoint) -> int:
        """Listen. Returns the port that peers dial. Raises: ExternalError: none of the ports is free."""
        self.listening = listen(endpoint, CONTROL_PORT)
        self.listening.setblocking(False)
        self._listen()
        port: int = self.listening.getsockname()[1]
        return endpoint.port or port

    async def close(self) -> None:
        """Stop listening, and close the connections that have not proved themselves: whoever dials would wait for an answer."""
        if self._retry is not None:
            self._retry.cancel()
        if self.listening is not None:
            asyncio.get_running_loop().remove_reader(self.listening)
            self.listening.close()
        while unproven := [*self._unproven]:
            for task in unproven:
                task.cancel()
            await asyncio.wait(unproven)

    # ------------------------------------------------------------------ accepting

    def _listen(self) -> None:
        assert self.listening is not None, "`open` was called"
        asyncio.get_running_loop().add_reader(self.listening, self.accept)

    def accept(self) -> None:
        """Accept one connection. If no descriptor is free, asyncio's own server would report an
        error to the loop, and that ends the job.
        """
        assert self.listening is not None, "`open` was called"
        loop = asyncio.get_running_loop()
        try:
            sock, (address, *_) = self.listening.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                _LOG.warning("server=ACCEPTS_NOBODY for_s=%s cause=%s", RETRY_S, error)
                loop.remove_reader(self.listening)
                self._retry = loop.call_later(RETRY_S, self._listen)
            return  # Otherwise the peer is gone already.
        sock.setblocking(False)
        if len(self._unproven) >= MAX_UNPROVEN:
            oldest = next(iter(self._unproven))
            why = f"{MAX_UNPROVEN} connections are in handshakes, this one longest"
            self._complaints.of(self._unproven.pop(oldest), why)
            oldest.cancel()
        task = loop.create_task(self._on_connection(sock, address))
        self._unproven[task] = address

        def ended(task: asyncio.Task[None]) -> None:
            self._unproven.pop(task, None)
            self._proven.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                loop.call_exception_handler({"message": "control connection", "exception": error})
            if task.cancelled():  # Perhaps before its first step.
                sock.close()

        task.add_done_callback(ended)

    async def _on_connection(self, sock: socket.socket, address: str) -> None:
        """Serve one connection.

        An error of ours while a message is handled goes to the loop's exception handler. Then the
        job ends with that error; the peer is not blamed and replaced.
        """
        cause: str | BaseException
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                reader, writer = await self._encrypted(sock)
                handshake = await self.authenticate(reader, writer)
        except TimeoutError:
            cause = f"it did not prove itself within {LIMIT_SECONDS:g} s"
        except (ExternalError, OSError) as error:
            cause = error
        else:
            task = cast("asyncio.Task[None]", asyncio.current_task())
            self._unproven.pop(task, None)
            self._proven.add(task)
            try:
                if not handshake.registers:
                    await self._serve(handshake, reader, writer)
            finally:
                # Not `close`: that waits for TLS's goodbye of the other end, and the loop may end before.
                writer.transport.abort()
            return
        self._complaints.of(address, str(cause))
        sock.close()

    async def _encrypted(
        self, sock: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Begin TLS. Raises: OSError; the socket is closed then."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = _Protocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            sock,
            ssl=self._context,
            ssl_handshake_timeout=LIMIT_SECONDS,
            ssl_shutdown_timeout=LIMIT_SECONDS,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ServerHandshake:
        """Return the peer's handshake. Raises: OSError; AuthenticationError: it did not prove itself."""
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        shown = Shown.NOTHING if certificate is None else Shown.CERTIFICATE
        handshake = ServerHandshake(self._credentials, _MEMBERS, shown, self._tickets)
        try:
            await _shake_hands(handshake, reader, writer)
        except BaseException:  # Also when its time is over.
            writer.transport.abort()
            raise
        return handshake

    async def _serve(
        self,
        handshake: ServerHandshake,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on messages as they come, without a step of this task for each. Only the end wakes it."""
        wire, control = ControlWire(), ControlLink(writer)
        resource_id: ResourceId | None = None
        ours: list[Exception] = []

        def take(data: bytes) -> None:
            nonlocal resource_id
            try:
                for message in wire.feed(data):
                    named = self._listener.received(handshake.role, message, control)
                    resource_id = named or resource_id
            except Exception as error:  # It goes to who waits for the end, as if he had read.
                if not isinstance(error, ExternalError):
                    ours.append(error)
                protocol.take = _ignore
                reader.set_exception(error)

        protocol = cast("_Protocol", writer.transport.get_protocol())
        protocol.take = take
        cause = "connection closed"
        try:
            await reader.read(1)
        except ExternalError as error:
            cause = f"a message was refused: {error}"
        except OSError as error:
            if ours:
                raise
            cause = f"connection broke: {error}"
        finally:
            if resource_id is not None and handshake.role == self._reports:
                self._listener.disconnected(resource_id, cause)


def _ignore(_data: bytes) -> None:
    """The connection is over."""


class _Protocol(asyncio.StreamReaderProtocol):
    """Gives the error that ended a connection to who reads, and to nobody else. `take`: gets what comes; None: who reads does.

    asyncio would keep it for `wait_closed`, too. If nobody calls that, asyncio may report the error to the
    loop, and that would end the job.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._reader = reader
        self.take: Callable[[bytes], None] | None = None

    def data_received(self, data: bytes) -> None:
        if self.take is None:
            super().data_received(data)
        else:
            self.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reader.set_exception(exc)
        super().connection_lost(None)


async def _shake_hands(
    handshake: ServerHandshake, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while not handshake.is_done:
        data = await reader.read(LIMIT_BYTES)
        if not data:
            raise AuthenticationError("it closed the connection before its proof")
        writer.write(handshake.feed(data))
