"""Copies of snapshots on the TaskManager's own disk, so that a task that restarts in its slot reads
nothing over the network.

A copy is identified by the path of its file in the checkpoint directory, which is never reused. If
a copy is missing, damaged, or no longer the file that was written, the file in the checkpoint directory is read instead. Source: Flink
TaskLocalStateStoreImpl, LocalRecoveryConfig
(docs/spec/checkpoints.md#local-recovery-and-shared-files).

Threads of a TaskManager that write snapshots while the tasks continue.

Source: Flink's async operations thread pool of a StreamTask; differs: few threads that all tasks
share.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from penstock.engine.hosting.checkpoints.storage import StateWriter
from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.model.checkpoints import FileHandle, StateHandle
from penstock.engine.model.ids import AllocationId, ExecutionVertexId

MAX_WAITING: Final = 256
"""How many snapshots of one TaskManager may wait to be written; each holds a copy of a task's state."""
MAX_THREADS: Final = 4
_CLOSE_TIMEOUT_S: Final = 1.0


class SnapshotWriters:
    """Threads that write for all tasks of a TaskManager."""

    def __init__(self, threads: int) -> None:
        """`threads`: the maximum; started as they are needed."""
        most = max(1, min(threads, MAX_THREADS))
        self._workers = WorkerThreads("penstock-snapshots", most, capacity=MAX_WAITING + most)

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a write. False: too many wait, or this is closed. Any thread."""
        return self._workers.put(job)

    def close(self) -> None:
        """Stop. Writes that have begun may end; waiting ones are dropped."""
        self._workers.close(_CLOSE_TIMEOUT_S, drops=True)


class Owner(NamedTuple):
    """A subtask in its slot, for all attempts there."""

    allocation_id: AllocationId
    vertex_id: ExecutionVertexId


@dataclass(slots=True)
class _Copy:
    """`users`: snapshots that contain it. `identity`: of its file; None: it is not written yet."""

    path: Path
    identity: private_files.Identity | None = None
    size: int = 0
    users: set[tuple[Owner, int]] = field(default_factory=set)


class LocalCopies:
    """The copies of a TaskManager. Any thread. Never raises: without a copy the file itself is read."""

    def __init__(self, new_path: Callable[[], str]) -> None:
        self._new_path = new_path
        self._lock = threading.Lock()
        self._copies: dict[str, _Copy] = {}

    # ------------------------------------------------------------------ writing

    def write(self, handle: StateHandle, data: bytes) -> None:
        """Copy what was just written to this handle."""
        if not isinstance(handle, FileHandle):
            return
        with self._lock:
            copy = self._copies.get(handle.path)
            if copy is None:
                try:
                    copy = self._copies[handle.path] = _Copy(Path(self._new_path()))
                except Exception:
                    # There is no directory. A full disk, for example, is no reason to fail the
                    # checkpoint.
                    return
        if copy.size != handle.offset:
            return  # A part of the file before it was not copied.
        with contextlib.suppress(OSError, private_files.NotPrivate), _to_append(copy) as file:
            file.write(data)
            copy.size += len(data)

    def keep(self, owner: Owner, checkpoint_id: int, handles: Iterable[StateHandle]) -> None:
        """Keep the copies of a snapshot, including those of earlier snapshots that it shares, until it is over."""
        with self._lock:
            for handle in handles:
                copy = self._copies.get(handle.path) if isinstance(handle, FileHandle) else None
                if copy is not None:
                    copy.users.add((owner, checkpoint_id))

    def abandon(self, paths: Iterable[str]) -> None:
        """Remove copies of files that became part of no checkpoint."""
        with self._lock:
            for path in paths:
                copy = self._copies.get(path)
                if copy is not None and not copy.users:
                    self._remove(path)

    # ------------------------------------------------------------------ what becomes of checkpoints

    def forget(self, owner: Owner, is_over: Callable[[int], bool]) -> None:
        """Remove the copies of these checkpoints; no attempt begins with them."""
        self._drop(lambda user: user[0] == owner and is_over(user[1]))

    def release(self, allocation_id: AllocationId) -> None:
        """Remove the copies of a slot that is free now; no task returns to it."""
        self._drop(lambda user: user[0].allocation_id == allocation_id)

    def _drop(self, is_meant: Callable[[tuple[Owner, int]], bool]) -> None:
        with self._lock:
            for path, copy in list(self._copies.items()):
                left = {user for user in copy.users if not is_meant(user)}
                if copy.users and not left:
                    self._remove(path)
                copy.users = left

    def _remove(self, path: str) -> None:
        copy = self._copies.pop(path)
        with contextlib.suppress(OSError):
            copy.path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ reading

    def read(self, handle: StateHandle) -> bytes | None:
        """Return the content; None: there is no copy, or it is damaged."""
        if not isinstance(handle, FileHandle):
            return None
        with self._lock:
            copy = self._copies.get(handle.path)
        if copy is None or copy.identity is None:
            return None
        data = b""
        with (
            contextlib.suppress(OSError, private_files.NotPrivate),
            os.fdopen(private_files.open_again(copy.path, copy.identity), "rb") as file,
        ):
            file.seek(handle.offset)
            data = file.read(handle.size)
        is_whole = len(data) == handle.size and zlib.crc32(data) == handle.checksum
        return data if is_whole else None


def _to_append(copy: _Copy) -> BinaryIO:
    """Open the file of a copy, and create it if this is its first part."""
    if copy.identity is not None:
        return os.fdopen(private_files.open_again(copy.path, copy.identity, appends=True), "ab")
    file = private_files.new_file(copy.path)
    copy.identity = private_files.identity(file)
    return os.fdopen(file, "ab")


@dataclass(eq=False, repr=False)
class SnapshotFiles:
    """Writes one snapshot to the checkpoint's directory, and a copy next to it. `written_bytes`: without the copy.

    `_check_wanted`: raises when the snapshot is no longer needed. `_kept`: may keep what was written, and says so in the handle.
    """

    _writer: StateWriter
    _copies: LocalCopies | None
    _check_wanted: Callable[[], None]
    _kept: Callable[[FileHandle, bytes], FileHandle]
    _paths: set[str] = field(default_factory=set)
    written_bytes: int = 0

    def add(self, data: bytes) -> StateHandle:
        """Raises: CheckpointIoError; what `check_wanted` raises."""
        self._check_wanted()
        return self._copied(self._writer.add(data), data)

    def share(self, data: bytes) -> StateHandle:
        """As `add`, for a file to which later checkpoints may refer."""
        self._check_wanted()
        return self._copied(self._writer.share(data), data)

    def close(self) -> None:
        """Make everything durable. Raises: as `add`."""
        self._writer.close()
        self._check_wanted()

    def abandon(self) -> None:
        """Remove what was written. Raises: CheckpointIoError: something may be left."""
        if self._copies is not None:
            self._copies.abandon(self._paths)
        self._writer.abandon()

    def _copied(self, handle: StateHandle, data: bytes) -> StateHandle:
        self.written_bytes += len(data)
        if not isinstance(handle, FileHandle):
            return handle
        if self._copies is not None:
            self._paths.add(handle.path)
            self._copies.write(handle, data)
        return self._kept(handle, data)
