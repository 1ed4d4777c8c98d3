"""A TaskManager's own directories for files of results, made when the first file is needed, removed
when it ends.

A lock on a file in the directory protects it, and ends with the process that holds it, however that
ends. So a starting TaskManager removes the directories of dead ones, and never those in use, even
by another TaskManager of its process. Source: Flink IOManager, FileChannelManagerImpl; differs:
Flink leaves the files of a killed process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from typing import Final

from penstock.hosting.interrupts import UninterruptibleLock
from penstock.model.errors import ResultWriteError

PREFIX: Final = "penstock-io-"
_MAKING: Final = "penstock-new-"
_LOCK_NAME: Final = "lock"
_MADE_WITHIN_S: Final = 3600.0


class IoDirectories:
    """Thread-safe. `roots`: directories to use, in turn for each file."""

    def __init__(self, roots: Sequence[str], name: str) -> None:
        """`name`: of the TaskManager, for people who look. Removes what dead TaskManagers have left in `roots`."""
        self._roots = tuple(roots) or (tempfile.gettempdir(),)
        self._name = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]
        self._numbers = count()
        self._lock = UninterruptibleLock()
        self._made: list[tuple[str, int]] = []
        self._is_closed = False
        for root in self._roots:
            sweep(root)

    def new_path(self) -> str:
        """Return the path of a new file. Raises: ResultWriteError: no directory can be made."""
        with self._lock:
            if self._is_closed:
                raise ResultWriteError("this TaskManager is ending and writes no more results")
            if not self._made:
                try:
                    self._made = [_make(root, self._name) for root in self._roots]
                except OSError as error:
                    raise ResultWriteError(
                        f"no directory can be made in {', '.join(self._roots)}: {error}. Set "
                        "io.tmp.dirs to directories that this process can write to."
                    ) from error
            number = next(self._numbers)
            folder, _ = self._made[number % len(self._made)]
        return os.path.join(folder, f"{number:06}.result")

    @property
    def paths(self) -> list[str]:
        """The directories that were made."""
        with self._lock:
            return [folder for folder, _ in self._made]

    def close(self) -> None:
        """Remove them with their content. May be called twice."""
        with self._lock:
            self._is_closed = True
            made, self._made = self._made, []
        for folder, lock in made:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def sweep(root: str) -> None:
    """Remove directories of this user whose TaskManager has ended."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith((PREFIX, _MAKING)) and _is_left(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _make(root: str, name: str) -> tuple[str, int]:
    """Make a directory, under another name until it is locked. So a sweep finds it locked, or finds a leftover."""
    os.makedirs(root, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=_MAKING, dir=root)
    lock = os.open(os.path.join(folder, _LOCK_NAME), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    _try_lock(lock)
    final = os.path.join(root, f"{PREFIX}{name}-{os.path.basename(folder)[len(_MAKING) :]}")
    os.rename(folder, final)
    return final, lock


def _is_left(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if entry.name.startswith(_MAKING):
            return time.time() - found.st_mtime > _MADE_WITHIN_S
        lock = os.open(os.path.join(entry.path, _LOCK_NAME), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # Its removal was interrupted after the lock was released.
        return entry.name.startswith(PREFIX)
    except OSError:
        return False
    try:
        return _try_lock(lock)
    finally:
        os.close(lock)


def _try_lock(file: int) -> bool:
    """Try to lock. Where files cannot be locked, no directory counts as a leftover."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
