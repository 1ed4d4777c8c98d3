"""Which files of a database are stored with the checkpoints already.

A file of RocksDB never changes, and its name is used once, so the next checkpoint need not write it again. While one
snapshot is written, the next one of the same database waits, so both refer to the same copy. A file to which a
completed checkpoint does not refer is therefore not needed by any later one. The driver removes files by that rule.
Source: Flink RocksIncrementalSnapshotStrategy, SharedStateRegistry; differs: copies of checkpoints that were aborted are
used too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.engine.model.checkpoints import StateHandle


class Lock(Protocol):
    """A thread lock. One thread holds it from the first file of a snapshot to the snapshot's end."""

    def acquire(self) -> object: ...
    def release(self) -> object: ...


class Uploads:
    """The uploaded files of one database."""

    def __init__(self, new_lock: Callable[[], Lock]) -> None:
        self._lock = new_lock()
        self._known: dict[str, StateHandle] = {}
        self._new: dict[str, StateHandle] = {}

    def restored(self, name: str, handle: StateHandle) -> None:
        """The database started with this file."""
        self._known[name] = handle

    def begin(self) -> None:
        """Begin to write a snapshot; `end` follows on the same thread."""
        self._lock.acquire()

    def handle_of(
        self, name: str, upload: Callable[[], StateHandle], is_ours: Callable[[StateHandle], bool]
    ) -> StateHandle:
        """The handle of a file, which is uploaded if it is stored nowhere yet."""
        known = self._known.get(name)
        if known is None or not is_ours(known):
            known = upload()
        self._new[name] = known
        return known

    def end(self, *, is_kept: bool) -> None:
        """`is_kept`: the uploaded files stay. Files that this snapshot did not have are not needed again."""
        new, self._new = self._new, {}
        if is_kept:
            self._known = new
        self._lock.release()
