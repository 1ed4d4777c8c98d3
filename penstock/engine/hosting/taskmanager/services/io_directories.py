"""A TaskManager's own directories for files of results, made when the first file is needed, removed
when it ends.

A lock on a file in the directory protects it, and ends with the process that holds it, however that
ends. So a starting TaskManager removes the directories of dead ones, and never those in use, even
by another TaskManager of its process. The directories are this user's alone. Source: Flink IOManager,
FileChannelManagerImpl; differs: Flink leaves the files of a killed process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.interrupts import UninterruptibleLock
from penstock.engine.hosting.os.own_folder import try_lock
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.model.errors import ResultWriteError
from penstock.engine.runtime.interruption import uninterruptible

PREFIX: Final = "penstock-io-"
_MAKING: Final = "penstock-new-"
_LOCK_NAME: Final = "lock"
_MADE_WITHIN_S: Final = 3600.0
_NAMES: Final = count()


class _Made(NamedTuple):
    """A directory. `lock`: descriptor of its lock; `held`: of itself."""

    folder: str
    lock: int
    held: int


class IoDirectories:
    """Thread-safe. `roots`: directories to use, in turn for each file."""

    def __init__(self, roots: Sequence[str], name: str) -> None:
        """`name`: of the TaskManager, for people who look. Removes what dead TaskManagers have left in `roots`."""
        self._roots = tuple(roots) or (tempfile.gettempdir(),)
        self._name = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]
        self._numbers = count()
        self._lock = UninterruptibleLock()
        self._made: list[_Made] = []
        self._removed: list[_Made] = []
        self._is_closed = False
        self._removals = WorkerThreads("penstock-removals")
        for root in self._roots:
            sweep(root)

    def new_path(self) -> str:
        """Return the path of a new file. Raises: ResultWriteError: no directory can be made."""
        number, made = self._next()
        return os.path.join(made.folder, f"{number:06}.result")

    def new_directory(self) -> str:
        """Return the path of a new directory, for a database that opens its files by their paths.

        The path begins at the open directory, where the system has such paths. So it leads to our
        files even if somebody may rename what is in the root. Its name is used once in the process,
        because the number of an open directory is used again. Raises: as `new_path`.
        """
        _, made = self._next()
        folder = private_files.held_path(made.held, made.folder)
        return os.path.join(folder, f"{next(_NAMES):06}.db")

    @uninterruptible()
    def remove(self, directory: str) -> None:
        """Remove one with its content, on a thread of its own. `close` removes what is left then."""
        self._removals.put(partial(shutil.rmtree, directory, ignore_errors=True))

    def _next(self) -> tuple[int, _Made]:
        with self._lock:
            if self._is_closed:
                raise ResultWriteError("this TaskManager is ending and writes no more results")
            number = next(self._numbers)
            at = number % len(self._roots)
            try:
                if not self._made:
                    self._made = [_make(root, self._name) for root in self._roots]
                elif os.fstat(self._made[at].held).st_nlink == 0:
                    # Somebody has removed it. Databases reach their files by the descriptor, which may not become another's.
                    anew = _make(self._roots[at], self._name)
                    self._removed.append(self._made[at])
                    self._made[at] = anew
            except OSError as error:
                raise ResultWriteError(
                    f"no directory can be made in {', '.join(self._roots)}: {error}. Set "
                    "io.tmp.dirs to directories that this process can write to."
                ) from error
            return number, self._made[at]

    @property
    def paths(self) -> list[str]:
        """The directories that were made."""
        with self._lock:
            return [made.folder for made in self._made]

    def close(self) -> None:
        """Remove them with their content. May be called twice."""
        with self._lock:
            self._is_closed = True
            made, self._made, self._removed = [*self._made, *self._removed], [], []
        # A removal goes by the descriptor of a directory, which is closed below.
        self._removals.close(drops=True)
        for folder, lock, held in made:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
            os.close(lock)


def sweep(root: str) -> None:
    """Remove directories of this user whose TaskManager has ended."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith((PREFIX, _MAKING)) and _is_left(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _make(root: str, name: str) -> _Made:
    """Make a directory, under another name until it is locked. So a sweep finds it locked, or finds a leftover."""
    os.makedirs(root, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=_MAKING, dir=root)
    held = private_files.hold(folder)
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        lock = os.open(_LOCK_NAME, flags, 0o600, dir_fd=held)
    except BaseException:
        os.close(held)
        raise
    try_lock(lock)
    final = os.path.join(root, f"{PREFIX}{name}-{os.path.basename(folder)[len(_MAKING) :]}")
    os.rename(folder, final)
    return _Made(final, lock, held)


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
        return try_lock(lock)
    finally:
        os.close(lock)
