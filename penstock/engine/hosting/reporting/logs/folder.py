"""Reads and writes the log files of one folder.

Readers get the list of files, and pieces of them: of the log and of what was printed, and of those that
were rolled away from them. Links are not followed, and another user's files are not read. Source: Flink's
log handlers of JobManager and TaskManager; differs: Flink gives every file of the folder, which may be
somebody's home.

RollingFile: a file that lines are appended to, and that a new one replaces when it is large.

    x.log  ->  x.log.1  ->  x.log.2 ...

A line is one write to a file that is opened to append, so writers wait for nobody: a finalizer may
log in the middle of another write, and a thread that ends with the interpreter holds no lock.
Source: log4j's RollingFileAppender as Flink configures it: it rolls at a size and when a process
starts. Differs: the number of kept files bounds the space, and nothing is raised where a disk is
full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from typing import Final

from penstock.engine.hosting.os.interrupts import UninterruptibleLock
from penstock.engine.hosting.reporting.logs.settings import stdout_path
from penstock.engine.model import messages
from penstock.engine.model.errors import ExternalError

_APPEND_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
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
    file = _Opened(os.open(path, _APPEND_FLAGS, _FILE_MODE))
    if not _is_own(file.status()):
        raise PermissionError(errno.EPERM, "another user owns the log file", path)
    return file


def _is_own(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid == os.geteuid()


LAST_LINES: Final = 1000
"""How many lines of a log survive its TaskManager."""
MOST_OF_LAST_LINES: Final = 512 << 10
"""Bytes of these lines."""
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class NoSuchLog(ExternalError):
    """There is no such file, or no log at all."""


class LogFolder:
    """The folder of one log. `log_path` "": the process writes none."""

    def __init__(self, log_path: str) -> None:
        self._path = log_path
        names = map(os.path.basename, (log_path, stdout_path(log_path)))
        self._own = re.compile(rf"(?:{'|'.join(map(re.escape, names))})(?:\.\d+)?")

    def answer(
        self, question: messages.ListLogs | messages.ReadLog
    ) -> messages.LogList | messages.LogPiece:
        """Raises: NoSuchLog, OSError."""
        return self.list() if isinstance(question, messages.ListLogs) else self.read(question)

    def list(self) -> messages.LogList:
        """Return the files that the process writes, and those rolled away, by name; none if there is no log."""
        found: list[messages.LogFile] = []
        if self._path:
            with contextlib.suppress(OSError), os.scandir(os.path.dirname(self._path)) as entries:
                known = (one for one in entries if self._own.fullmatch(one.name))
                statuses = [(one.name, one.stat(follow_symlinks=False)) for one in known]
                found = [_file(name, one) for name, one in statuses if _is_readable(one)]
        return messages.LogList(tuple(sorted(found, key=lambda file: file.name)))

    def read(self, question: messages.ReadLog) -> messages.LogPiece:
        """Return a piece of a file; empty after its end. Raises: NoSuchLog, OSError."""
        path = self._path_of(question)
        try:
            file = _opener(path, _FLAGS)
        except OSError as error:
            raise _missing(path) from error
        try:
            status = os.fstat(file)
            offset = question.offset
            if offset < 0:
                offset = max(0, status.st_size + offset)
            data = os.pread(file, max(0, min(question.length, messages.MOST_OF_PIECE)), offset)
        finally:
            os.close(file)
        return messages.LogPiece(_file(os.path.basename(path), status), offset, data)

    def last_lines(self) -> bytes:
        """Return the last lines of the log; those before its last roll complete them. Empty: there are none."""
        data = b""
        for path in (self._path, f"{self._path}.1"):
            with contextlib.suppress(OSError), open(path, "rb", opener=_opener) as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - MOST_OF_LAST_LINES))
                data = file.read() + data
            if data.count(b"\n") > LAST_LINES or len(data) >= MOST_OF_LAST_LINES:
                break
        return b"".join(data[-MOST_OF_LAST_LINES:].splitlines(keepends=True)[-LAST_LINES:])

    def _path_of(self, question: messages.ReadLog) -> str:
        if not self._path:
            raise NoSuchLog("this process writes no log files")
        if not question.name:
            return stdout_path(self._path) if question.is_stdout else self._path
        name = question.name.replace("\\", "/").rpartition("/")[2]
        if not self._own.fullmatch(name):
            raise NoSuchLog(f"{question.name!r} is no log file of this process")
        return os.path.join(os.path.dirname(self._path), name)


def _opener(path: str, _flags: int) -> int:
    """Raises: OSError: it is not there, a link, no plain file, or of another user."""
    file = os.open(path, _FLAGS)
    if not _is_readable(os.fstat(file)):
        os.close(file)
        raise PermissionError(errno.EPERM, "it is no plain file of this user", path)
    return file


def _is_readable(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and _is_own(status)


def _file(name: str, status: os.stat_result) -> messages.LogFile:
    return messages.LogFile(name, status.st_size, status.st_mtime_ns // 1_000_000)


def _missing(path: str) -> NoSuchLog:
    return NoSuchLog(f"there is no file {os.path.basename(path)!r} in the folder of the log")
