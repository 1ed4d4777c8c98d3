"""Which files of a database lie with the checkpoints already.

A file of RocksDB never changes and its name is used once, so that the next checkpoint need not write it again. While one
snapshot is written the next one of the same database waits: both refer to the same copy then, so that a file to which a
completed checkpoint does not refer is wanted by no later one either. The driver removes files by that rule.
Source: Flink RocksIncrementalSnapshotStrategy, SharedStateRegistry; differs: copies of checkpoints that were aborted are
used too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.model.checkpoints import StateHandle


class Lock(Protocol):
    """Of threads; held from the first file of a snapshot to its end, by one thread."""

    def acquire(self) -> object: ...
    def release(self) -> object: ...


class Uploads:
    """Of one database."""

    def __init__(self, new_lock: Callable[[], Lock]) -> None:
        self._lock = new_lock()
        self._known: dict[str, StateHandle] = {}
        self._new: dict[str, StateHandle] = {}

    def restored(self, name: str, handle: StateHandle) -> None:
        """The database began with this file."""
        self._known[name] = handle

    def begin(self) -> None:
        """A snapshot is going to be written; `end` follows on the same thread."""
        self._lock.acquire()

    def handle_of(
        self, name: str, upload: Callable[[], StateHandle], is_ours: Callable[[StateHandle], bool]
    ) -> StateHandle:
        """Of a file, which is uploaded if it lies nowhere yet."""
        known = self._known.get(name)
        if known is None or not is_ours(known):
            known = upload()
        self._new[name] = known
        return known

    def end(self, *, is_kept: bool) -> None:
        """`is_kept`: what was uploaded stays. Files that this snapshot did not have are not wanted again."""
        new, self._new = self._new, {}
        if is_kept:
            self._known = new
        self._lock.release()
