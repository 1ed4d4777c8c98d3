"""RollingFile: a file that lines are added to, and that a new one replaces when it is large.

    x.log  ->  x.log.1  ->  x.log.2 ...

Source: log4j's RollingFileAppender as Flink configures it: it rolls at a size and when a process starts. Differs: the
number of kept files bounds the space, and nothing is raised where a disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Final

from penstock.hosting.interrupts import UninterruptibleLock

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
_CLOSED: Final = -1
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class RollingFile:
    """Any thread. What is written is in the file when `write` returns."""

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        """The file that an earlier process left is rolled. Raises: OSError: the file cannot be made."""
        self.path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._lock = UninterruptibleLock()
        self._is_over = False
        os.makedirs(os.path.dirname(path), _FOLDER_MODE, exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path):
            self._shift()
        self._file = _opened(path)
        self._size = 0

    def write(self, text: str) -> None:
        """Add whole lines; `text` ends with a line feed. Dropped if the disk does not take it."""
        data = text.encode("utf-8", "backslashreplace")
        with self._lock, contextlib.suppress(OSError):
            is_full = self._size > 0 and self._size + len(data) > self._max_bytes
            if not self._is_over and (is_full or self._file == _CLOSED):
                self._roll()
            self._size += os.write(self._file, data)

    def close(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._is_over = True
            self._let_go()

    def _let_go(self) -> None:
        """Close the descriptor. Somebody else gets its number then, so it is forgotten first."""
        file, self._file = self._file, _CLOSED
        if file != _CLOSED:
            os.close(file)

    def _roll(self) -> None:
        """Begin a new file. If it cannot be made, the next write tries again."""
        self._let_go()
        if self._size:
            with contextlib.suppress(OSError):
                self._shift()
        self._size = 0
        self._file = _opened(self.path)
        self._size = os.fstat(self._file).st_size

    def _shift(self) -> None:
        """Give each file the next number; the oldest goes."""
        if not self._max_files:
            os.unlink(self.path)
            return
        for number in range(self._max_files - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
        os.replace(self.path, f"{self.path}.1")


def _opened(path: str) -> int:
    """Open a file for more lines. Raises: OSError, also if another user has made it, who could read it then."""
    file = os.open(path, _FLAGS, _FILE_MODE)
    if sys.platform != "win32" and os.fstat(file).st_uid != os.geteuid():
        os.close(file)
        raise PermissionError(errno.EPERM, "another user owns the log file", path)
    return file
