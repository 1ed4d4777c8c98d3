"""Connections of registered TaskManagers and of their supervisors, and which TaskManagers are
fenced off.

Used by the JobManager's loop only. A fenced TaskManager is no longer heard, and no second one may
use its name. Messages to a TaskManager carry the JobManager's fencing token, so that a TaskManager
of another leader drops them.

The JobManager's end of one control connection, to a TaskManager or to its supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.engine.hosting.network.wire import messages
from penstock.engine.hosting.network.wire.messages import encode
from penstock.engine.model.errors import ExternalError
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
            told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except OSError:
            return False
        if len(told) < _TCP_INFO.size:
            return False
        state, last_ack_ms = _TCP_INFO.unpack(told)
        return bool(state == _ESTABLISHED and last_ack_ms <= within_ms)

    def send(self, message: object) -> None:
        """Dropped when the connection is closing: its end is told elsewhere."""
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
        self._links: dict[ResourceId, Link] = {}
        self._supervisors: dict[ResourceId, ControlLink] = {}
        self._fenced: set[ResourceId] = set()

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self._links

    def register(self, location: TaskManagerLocation, control: ControlLink) -> None:
        """Register a TaskManager. Raises ExternalError if it is fenced or registered already; its
        connection is then closed.
        """
        resource_id = location.resource_id
        if resource_id in self._fenced or resource_id in self._links:
            raise ExternalError(
                f"{resource_id} was declared lost; no second one of that name is accepted"
            )
        self._links[resource_id] = Link(location, control)

    def location(self, resource_id: ResourceId) -> TaskManagerLocation | None:
        link = self._links.get(resource_id)
        return None if link is None else link.location

    def supervise(self, resource_id: ResourceId, control: ControlLink) -> None:
        """Note the connection of a TaskManager's supervisor."""
        self._supervisors[resource_id] = control

    def is_supervised(self, resource_id: ResourceId) -> bool:
        """Whether its supervisor is still connected."""
        supervisor = self._supervisors.get(resource_id)
        return supervisor is not None and not supervisor.is_closing

    def answers(self, resource_id: ResourceId, within_ms: int) -> bool:
        """Whether the kernel of its machine has acknowledged something within this time, on its
        connection or its supervisor's.
        """
        link = self._links.get(resource_id)
        controls = [self._supervisors.get(resource_id), None if link is None else link.control]
        return any(control is not None and control.answers(within_ms) for control in controls)

    def send(self, resource_id: ResourceId, message: object) -> None:
        """Send a message. It is dropped if the TaskManager is not registered; its loss is reported elsewhere."""
        link = self._links.get(resource_id)
        if link is not None:
            link.control.send(self.stamped(message))

    def stamped(self, message: Any) -> object:
        """Return the message with this JobManager's fencing token."""
        if type(message) not in FENCED:
            return message
        return replace(message, fencing_token=self.fencing_token)

    def send_blob_once(self, resource_id: ResourceId, key: BlobKey, data: bytes) -> None:
        link = self._links.get(resource_id)
        if link is not None and key not in link.blobs:
            link.blobs.add(key)
            self.send(resource_id, PutBlob(key, data))

    def beat(self) -> None:
        """Send a heartbeat to all."""
        body = encode(MasterHeartbeat())
        controls = [link.control for link in self._links.values()]
        for control in (*controls, *self._supervisors.values()):
            control.send_encoded(body)

    def end(self, resource_id: ResourceId, reason: str) -> None:
        """Tell it to end, and its supervisor to make sure of that."""
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
        link = self._links.pop(resource_id, None)
        if link is not None:
            link.control.close()
        return link is not None

    def is_fenced(self, resource_id: ResourceId) -> bool:
        return resource_id in self._fenced

    def everybody(self) -> set[ResourceId]:
        return {*self._links, *self._supervisors}

    async def drained(self) -> None:
        """Wait until all messages have left."""
        await asyncio.gather(*(link.control.drained() for link in self._links.values()))

    def close(self) -> None:
        for link in self._links.values():
            link.control.close()
