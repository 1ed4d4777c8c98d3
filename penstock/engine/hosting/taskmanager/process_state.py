"""What user code may change in a process, and what must not reach the next job: it is restored, or
reported so that the process takes no further job.

Does not undo everything: globals of libraries stay, as in each process that Flink's jobs share.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import threading
import time
import warnings
from importlib.machinery import FileFinder
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.os.heap import trim_heap
from penstock.engine.hosting.taskmanager.user_modules import PREFIX, forget_user_modules

_LEAVES_WITHIN_S: Final = 1.0
"""How long threads of a job may take to end after its tasks."""
_OURS: Final = "penstock"
_SPARE_BYTES: Final = 64 << 20

FileState = tuple[int, int]


class ProcessState:
    """Made before the first job. On the thread that starts and ends TaskManagers; the process must be idle for `put_back`.

    `libraries`: a folder with modules that are no user code: requirements and archives.
    """

    def __init__(self, libraries: str = "") -> None:
        self._libraries = (libraries,)
        self._modules = frozenset(sys.modules)
        self._began_ns = time.time_ns()
        self._files: dict[str, FileState] = {}
        self.note()

    def note(self) -> None:
        """Take what is here now as what each job begins with."""
        self._threads = set(threading.enumerate())
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._streams = sys.stdout, sys.stderr
        self._switch_interval_s = sys.getswitchinterval()
        self._warnings = list(warnings.filters)
        self._loggers = {logger: _settings_of(logger) for logger in _loggers()}

    def left_over(self, *, is_idle: bool) -> str:
        """Return which threads and processes of user code are left; "": none. `is_idle`: no TaskManager is here, so that
        our own threads are to have ended too.
        """
        deadline = time.monotonic() + (_LEAVES_WITHIN_S if is_idle else 0.0)
        found = []
        for thread in threading.enumerate():
            if thread in self._threads or thread is threading.current_thread():
                continue
            if not is_idle and thread.name.startswith(_OURS):
                continue
            if not isinstance(thread, threading._DummyThread):
                thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                found.append(f"thread {thread.name}")
        found += [f"process {pid}" for pid in _children()]
        return ", ".join(found)

    def put_back(self, modules: str | None) -> None:
        """Undo what user code has changed. `modules`: an entry of `sys.path` that stays."""
        os.chdir(self._folder)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        sys.path[:] = [*([modules] if modules else []), *self._path]
        forget_user_modules(self._modules, self._libraries)
        sys.stdout, sys.stderr = self._streams
        sys.setswitchinterval(self._switch_interval_s)
        socket.setdefaulttimeout(None)
        warnings.filters[:] = self._warnings  # type: ignore[index]
        for logger in _loggers():
            _put_back(logger, self._loggers.get(logger))

    # ------------------------------------------------------------------ files of modules

    def note_files(self) -> None:
        """Remember how the files of the imported modules are now."""
        for path in self._imported():
            self._files.setdefault(path, _file_state(path))

    def outdated(self) -> str:
        """Return a module's file that has changed since it was imported, or may have; "": none. Files that were new when they
        were imported count too: nobody knows which state of them was read.
        """
        _forget_folders()
        for path in self._imported() | self._files.keys():
            now = _file_state(path)
            if now[0] > self._began_ns or self._files.get(path, now) != now:
                return path
        return ""

    def _imported(self) -> set[str]:
        """Files of modules that were imported after the beginning, except the shipped ones and Penstock's own, which are in an archive of
        this process.
        """
        shipped = tuple(path for path in sys.path if PREFIX in path)
        names = [name for name in set(sys.modules) - self._modules if not _is_ours(name)]
        later = [sys.modules.get(name) for name in names]
        files: set[Any] = {getattr(module, "__file__", None) for module in later}
        return {
            path
            for path in files
            if isinstance(path, str) and not (shipped and path.startswith(shipped))
        }


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == _OURS


class SpareMemory:
    """The memory that jobs have left. glibc keeps it, by the settings of `child.py`. Linux only."""

    def __init__(self) -> None:
        self._least_bytes = _own_bytes()

    def give_back(self) -> None:
        """Return it to the system, if it is worth the time: all threads of the process wait meanwhile."""
        if _own_bytes() - self._least_bytes < _SPARE_BYTES:
            return
        gc.collect()
        trim_heap()
        self._least_bytes = _own_bytes()


def _own_bytes() -> int:
    """Resident memory without pages of files."""
    try:
        resident, of_files = map(int, Path("/proc/self/statm").read_text("ascii").split()[1:3])
    except OSError:
        return 0
    return (resident - of_files) * os.sysconf("SC_PAGESIZE")


def _forget_folders() -> None:
    """Have Python see files that were added since it has looked into a folder. Importers of zips are left out: each would read
    its zip again, which takes a second for all of them, and Penstock's own does not change.
    """
    for finder in list(sys.path_importer_cache.values()):
        if isinstance(finder, FileFinder):
            finder.invalidate_caches()


def _file_state(path: str) -> FileState:
    """(time of the last change in ns, size). Of a file in an archive: the archive's; of one that is gone: its folder's."""
    while True:
        try:
            status = os.stat(path)
        except OSError:
            above = os.path.dirname(path)
            if above == path:
                return 0, 0
            path = above
        else:
            return status.st_mtime_ns, status.st_size


def _children() -> list[int]:
    """The processes that this one has started and that run. Linux only."""
    found: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found += map(int, listing.read_text("ascii").split())
        except OSError:  # The thread has ended, or the kernel does not list them.
            continue
    return found


_LoggerSettings = tuple[int, list[logging.Handler], bool, bool]


def _loggers() -> list[logging.Logger]:
    known = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(one for one in known if isinstance(one, logging.Logger))]


def _settings_of(logger: logging.Logger) -> _LoggerSettings:
    return logger.level, list(logger.handlers), logger.propagate, logger.disabled


def _put_back(logger: logging.Logger, settings: _LoggerSettings | None) -> None:
    """`settings` None: user code has made the logger."""
    level, handlers, propagate, disabled = settings or (logging.NOTSET, [], True, False)
    for handler in list(logger.handlers):
        if handler not in handlers:
            logger.removeHandler(handler)
            handler.close()
    for handler in handlers:
        logger.addHandler(handler)
    if logger.level != level:
        logger.setLevel(level)
    logger.propagate, logger.disabled = propagate, disabled
