"""Connections of registered TaskManagers and of their supervisors, and who is over for good.

Touched by the JobManager's loop only. A TaskManager that was declared over is fenced: nothing it says counts
any more, and no second one takes its name. What a TaskManager is told carries the JobManager's fencing token, so that a
TaskManager of another leader drops it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.hosting.jobmanager.control_server import drained
from penstock.hosting.wire.messages import encode
from penstock.model.deployment import TaskManagerLocation
from penstock.model.errors import ExternalError
from penstock.model.ids import BlobKey, FencingToken, ResourceId
from penstock.model.messages import (
    FENCED,
    KillTaskManager,
    MasterHeartbeat,
    PutBlob,
    Shutdown,
)


@dataclass(slots=True)
class Link:
    """One registered TaskManager."""

    location: TaskManagerLocation
    writer: asyncio.StreamWriter
    blobs: set[BlobKey] = field(default_factory=set)


class Links:
    """Who can be talked to."""

    def __init__(self, fencing_token: FencingToken) -> None:
        """`fencing_token`: of the JobManager that talks."""
        self.fencing_token = fencing_token
        self._links: dict[ResourceId, Link] = {}
        self._supervisors: dict[ResourceId, asyncio.StreamWriter] = {}
        self._fenced: set[ResourceId] = set()

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self._links

    def register(self, location: TaskManagerLocation, writer: asyncio.StreamWriter) -> None:
        """Raises ExternalError, which costs the peer its connection: that one is over, or there already."""
        resource_id = location.resource_id
        if resource_id in self._fenced or resource_id in self._links:
            raise ExternalError(f"{resource_id} is over; a second one of its name is refused")
        self._links[resource_id] = Link(location, writer)

    def location(self, resource_id: ResourceId) -> TaskManagerLocation | None:
        link = self._links.get(resource_id)
        return None if link is None else link.location

    def supervise(self, resource_id: ResourceId, writer: asyncio.StreamWriter) -> None:
        """How its supervisor is reached."""
        self._supervisors[resource_id] = writer

    def is_supervised(self, resource_id: ResourceId) -> bool:
        """Whether its supervisor can still be heard."""
        supervisor = self._supervisors.get(resource_id)
        return supervisor is not None and not supervisor.is_closing()

    def send(self, resource_id: ResourceId, message: object) -> None:
        """Dropped when it is not registered (any more): its loss is told elsewhere."""
        link = self._links.get(resource_id)
        if link is not None and not link.writer.is_closing():
            link.writer.write(encode(self.stamped(message)))

    def stamped(self, message: Any) -> object:
        """The message as this JobManager says it."""
        if type(message) not in FENCED:
            return message
        return replace(message, fencing_token=self.fencing_token)

    def send_blob_once(self, resource_id: ResourceId, key: BlobKey, data: bytes) -> None:
        link = self._links.get(resource_id)
        if link is not None and key not in link.blobs:
            link.blobs.add(key)
            self.send(resource_id, PutBlob(key, data))

    def beat(self) -> None:
        """Tell everybody that we are there."""
        message = encode(MasterHeartbeat())
        writers = [link.writer for link in self._links.values()]
        for writer in (*writers, *self._supervisors.values()):
            if not writer.is_closing():
                writer.write(message)

    def end(self, resource_id: ResourceId, reason: str) -> None:
        """Ask it to end, and its supervisor to see to it."""
        self.send(resource_id, Shutdown(reason))
        supervisor = self._supervisors.pop(resource_id, None)
        if supervisor is not None and not supervisor.is_closing():
            supervisor.write(encode(Shutdown(reason)))

    def kill(self, resource_id: ResourceId, reason: str) -> bool:
        """Have its supervisor kill it. False: nobody is there to do that."""
        supervisor = self._supervisors.get(resource_id)
        if supervisor is None or supervisor.is_closing():
            return False
        supervisor.write(encode(KillTaskManager(reason)))
        return True

    def fence(self, resource_id: ResourceId) -> bool:
        """From now on it is over. False: it was not registered."""
        self._fenced.add(resource_id)
        link = self._links.pop(resource_id, None)
        if link is not None:
            link.writer.close()
        return link is not None

    def is_fenced(self, resource_id: ResourceId) -> bool:
        return resource_id in self._fenced

    def everybody(self) -> set[ResourceId]:
        return {*self._links, *self._supervisors}

    async def drained(self) -> None:
        """What was sent has left."""
        await asyncio.gather(*(drained(link.writer) for link in self._links.values()))

    def close(self) -> None:
        for link in self._links.values():
            link.writer.close()
