"""Makes keyed state backends on a TaskManager: of the job's kind, with memory that the tasks of a
slot share.

Source: Flink StateBackendLoader, RocksDBSharedResources.

A TaskManager's own directories for files of results, made when the first file is needed, removed
when it ends.

A lock on a file in the directory protects it, and ends with the process that holds it, however that
ends. So a starting TaskManager removes the directories of dead ones, and never those in use, even
by another TaskManager of its process. The directories are this user's alone. Source: Flink IOManager,
FileChannelManagerImpl; differs: Flink leaves the files of a killed process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.interrupts import UninterruptibleLock
from penstock.engine.hosting.os.private_files import try_lock
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.shipping.main_classes import unreadable_state
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_state
from penstock.engine.model.errors import PenstockError, ResultWriteError
from penstock.engine.model.ids import AllocationId
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.state.contract import MakeKeyedStateBackend
from penstock.engine.runtime.state.heap import CheckedKeyedStateBackend, HeapKeyedStateBackend
from penstock.engine.runtime.state.rocks.backend import RocksKeyedStateBackend, RocksSettings
from penstock.engine.runtime.state.rocks.database import SlotMemory, slot_memory
from penstock.engine.runtime.state.settings import StateBackendSettings

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


class StateBackends:
    """The backends of a TaskManager. Any thread."""

    def __init__(self, settings: StateBackendSettings, directories: IoDirectories) -> None:
        self._settings = settings
        self._directories = directories
        self._lock = UninterruptibleLock()
        self._memories: weakref.WeakValueDictionary[AllocationId, SlotMemory] = (
            weakref.WeakValueDictionary()
        )

    def of_slot(
        self, allocation_id: AllocationId, check: Callable[[], None] | None = None
    ) -> MakeKeyedStateBackend:
        """Return the backend for tasks of a slot. `check`: called whenever state on the heap is
        used.

        Raises: UserError: the backend's package is missing on this machine.
        """
        if not self._settings.is_rocks:
            if check is None:
                return HeapKeyedStateBackend
            return functools.partial(CheckedKeyedStateBackend, check=check)
        settings = RocksSettings(
            self._directories.new_directory,
            self._memory_of(allocation_id),
            dumps_records,
            _loads_stored,
            UninterruptibleLock,
            self._settings.has_rocks_timers,
            self._directories.remove,
        )
        return functools.partial(RocksKeyedStateBackend, settings=settings)

    @property
    def memory_used(self) -> int:
        """Bytes that the databases of all slots use of their memory. Any thread."""
        with self._lock:
            memories = list(self._memories.values())
        return sum(int(memory.cache.get_usage()) for memory in memories)

    @property
    def memory_of_slot(self) -> int:
        """The most bytes that the databases of a slot use; 0: state is on the heap."""
        return self._settings.rocks_memory_bytes if self._settings.is_rocks else 0

    def _memory_of(self, allocation_id: AllocationId) -> SlotMemory:
        """Return the slot's shared memory. It lives as long as a database that uses it."""
        with self._lock:
            memory = self._memories.get(allocation_id)
            if memory is None:
                memory = slot_memory(self._settings.rocks_memory_bytes)
                self._memories[allocation_id] = memory
            return memory


def _loads_stored(data: bytes | bytearray | memoryview) -> Any:
    """Read a value of a database, which may be that of a checkpoint. Raises: UserError: it cannot be unpickled."""
    try:
        return loads_state(data)
    except PenstockError:
        raise
    except Exception as error:  # Classes of users may raise anything.
        raise unreadable_state("a value of the state in RocksDB", error) from error
