"""State that one attempt leaves to others, and takes from others, without the checkpoint directory.

At a handover each task writes its snapshot to the checkpoint directory. Its TaskManager keeps the same bytes in memory, as far
as there is room, and the handles say so. A task that begins with such a handle takes them from its own TaskManager, or asks
the other one, and checks them like those of a file. If that one is gone, does not keep them any more or does not answer
in time, the file is read (docs/spec/elasticity.md#handover). The file is read, too, if it has a path and was written on
this machine: what was just written is in memory still, and costs a third of what a connection costs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.engine.hosting.network.handed_state import StateReceiver
from penstock.engine.hosting.os.file_systems import local_path
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.checkpoints import FileHandle, StateHandle
from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.model.messages.control import StateRequest
from penstock.engine.runtime.elements import CheckpointBarrier

PATIENCE_S: Final = 2.0
"""So long without a byte, connecting included, and the file is read."""


class Handover:
    """Of one attempt."""

    def __init__(self, attempt: TaskAttempt) -> None:
        self._attempt = attempt
        self._silent: set[ResourceId] = set()

    def keeper(self, barrier: CheckpointBarrier) -> Callable[[FileHandle, bytes], FileHandle]:
        """Return what keeps the parts of a snapshot, if it is that of a handover."""
        settings = self._attempt.host.task_settings.checkpointing
        if not barrier.options.is_held or settings is None:
            return lambda handle, _data: handle
        plane, most_bytes = self._attempt.host.data_plane, settings.kept_bytes
        here = TaskManagerLocation(plane.resource_id, self._attempt.host.host_name, plane.port)

        def keep(handle: FileHandle, data: bytes) -> FileHandle:
            is_kept = plane.handed_state.keep(barrier.checkpoint_id, handle, data, most_bytes)
            return replace(handle, kept_by=here) if is_kept else handle

        return keep

    def forget(self, is_over: Callable[[int], bool]) -> None:
        """Have the TaskManager drop what it keeps of these checkpoints."""
        self._attempt.host.data_plane.handed_state.forget(is_over)

    def read(self, handle: StateHandle) -> bytes | None:
        """Return the checked bytes; None: they must be read elsewhere. Raises: CancelSignal."""
        if not isinstance(handle, FileHandle) or handle.kept_by is None:
            return None
        holder, plane = handle.kept_by, self._attempt.host.data_plane
        if holder.resource_id == plane.resource_id:
            return plane.handed_state.find(handle.path, handle.offset)
        settings = self._attempt.host.task_settings.checkpointing
        has_path = settings is not None and local_path(settings.directory) is not None
        is_near = has_path and holder.host == self._attempt.host.host_name
        if is_near or holder.resource_id in self._silent:
            return None
        receiver = StateReceiver(handle.size)
        request = StateRequest(handle.path, handle.offset)
        plane.consumers.request_state(holder, request, receiver)
        data = receiver.take(PATIENCE_S, self._attempt.check_goes_on)
        if data is not None and zlib.crc32(data) == handle.checksum:
            return data
        # The next part would most likely cost the same time.
        self._silent.add(holder.resource_id)
        return None
