"""RollingFile: a file that lines are added to, and that a new one replaces when it is large.

    x.log  ->  x.log.1  ->  x.log.2 ...

A line is one write to a file that is opened to append, so writers wait for nobody: a finalizer may log in the middle of another
write, and a thread that ends with the interpreter leaves no lock behind. Source: log4j's RollingFileAppender as Flink configures
it: it rolls at a size and when a process starts. Differs: the number of kept files bounds the space, and nothing is raised
where a disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Final

from penstock.engine.hosting.os.interrupts import UninterruptibleLock

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class _Opened:
    """A descriptor, closed when nobody writes to it any more: not while a writer is about to, who would write elsewhere then."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.close(self._number)

    def status(self) -> os.stat_result:
        return os.fstat(self._number)

    def write(self, data: bytes) -> None:
        os.write(self._number, data)


class RollingFile:
    """Any thread, finalizers too. What is written is in the file when `write` returns."""

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        """The file that an earlier process left is rolled. Raises: OSError: the file cannot be made."""
        self.path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._rolling = UninterruptibleLock()
        self._is_over = False
        os.makedirs(os.path.dirname(path), _FOLDER_MODE, exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path):
            self._shift()
        self._file: _Opened | None = _opened(path)

    def write(self, text: str) -> None:
        """Add whole lines; `text` ends with a line feed. Dropped if the disk does not take it."""
        data = text.encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):
            file = self._file
            if file is None or 0 < file.status().st_size > self._max_bytes - len(data):
                file = self._rolled(file)
            if file is not None:
                file.write(data)

    def close(self) -> None:
        self._is_over = True
        self._file = None

    def _rolled(self, full: _Opened | None) -> _Opened | None:
        """Begin a new file, unless another writer is about to. If it cannot be made, the next write tries again."""
        if self._is_over or not self._rolling.acquire(blocking=False):
            return full
        try:
            if self._file is full:
                if full is not None:
                    with contextlib.suppress(OSError):
                        self._shift()
                self._file = _opened(self.path)
        except OSError:
            self._file = None
            raise
        finally:
            self._rolling.release()
        return self._file

    def _shift(self) -> None:
        """Give each file the next number; the oldest goes."""
        if not self._max_files:
            os.unlink(self.path)
            return
        for number in range(self._max_files - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
        os.replace(self.path, f"{self.path}.1")


def _opened(path: str) -> _Opened:
    """Open a file for more lines. Raises: OSError, also if another user has made it, who could read it then."""
    file = _Opened(os.open(path, _FLAGS, _FILE_MODE))
    if sys.platform != "win32" and file.status().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "another user owns the log file", path)
    return file
