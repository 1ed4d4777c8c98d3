"""What can be asked of a log and of the folder that it lies in: the list of files, and pieces of them.

Only plain files of the folder itself are given. Of a name the last component counts, and links are not followed, so that
nothing outside of the folder can be read. Source: Flink's log handlers of JobManager and TaskManager.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from penstock.engine.hosting.reporting.logs.settings import stdout_path
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.messages import (
    MOST_OF_PIECE,
    ListLogs,
    LogFile,
    LogList,
    LogPiece,
    ReadLog,
)

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

    def answer(self, question: ListLogs | ReadLog) -> LogList | LogPiece:
        """Raises: NoSuchLog, OSError."""
        return self.list() if isinstance(question, ListLogs) else self.read(question)

    def list(self) -> LogList:
        """Return all plain files of the folder by name; none if there is no log."""
        found: list[LogFile] = []
        if self._path:
            with contextlib.suppress(OSError), os.scandir(os.path.dirname(self._path)) as entries:
                plain = (one for one in entries if one.is_file(follow_symlinks=False))
                found = [_file(one.name, one.stat(follow_symlinks=False)) for one in plain]
        return LogList(tuple(sorted(found, key=lambda file: file.name)))

    def read(self, question: ReadLog) -> LogPiece:
        """Return a piece of a file; empty behind its end. Raises: NoSuchLog, OSError."""
        path = self._path_of(question)
        try:
            file = os.open(path, _FLAGS)
        except OSError as error:
            raise _missing(path) from error
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise _missing(path)
            offset = question.offset
            if offset < 0:
                offset = max(0, status.st_size + offset)
            data = os.pread(file, max(0, min(question.length, MOST_OF_PIECE)), offset)
        finally:
            os.close(file)
        return LogPiece(_file(os.path.basename(path), status), offset, data)

    def last_lines(self) -> bytes:
        """Return the last lines of the log; those before its last roll complete them. Empty: there are none."""
        data = b""
        for path in (self._path, f"{self._path}.1"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - MOST_OF_LAST_LINES))
                data = file.read() + data
            if data.count(b"\n") > LAST_LINES or len(data) >= MOST_OF_LAST_LINES:
                break
        return b"".join(data[-MOST_OF_LAST_LINES:].splitlines(keepends=True)[-LAST_LINES:])

    def _path_of(self, question: ReadLog) -> str:
        if not self._path:
            raise NoSuchLog("this process writes no log files")
        if not question.name:
            return stdout_path(self._path) if question.is_stdout else self._path
        name = question.name.replace("\\", "/").rpartition("/")[2]
        if name in {"", ".", ".."} or "\0" in name:
            raise NoSuchLog(f"{question.name!r} names no file in the folder of the log")
        return os.path.join(os.path.dirname(self._path), name)


def _file(name: str, status: os.stat_result) -> LogFile:
    return LogFile(name, status.st_size, status.st_mtime_ns // 1_000_000)


def _missing(path: str) -> NoSuchLog:
    return NoSuchLog(f"there is no file {os.path.basename(path)!r} in the folder of the log")
