"""ResultFile: a file of a blocking result, made here, and never another one that has its name later.

Does not know what is in it. It is open only while something is written or read: a process may have more results than
files that it may open. Source: Flink FileChannelBoundedData, PartitionedFile; differs: the file's identity is checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator, Sequence
from typing import Final

from penstock.engine.model.errors import ResultDataLost, ResultWriteError
from penstock.engine.runtime.codecs.events import Part

_MOST_PARTS: Final = 1024
"""The system takes no more in one call."""


class ResultFile:
    """`path`; `size`: bytes that were written."""

    def __init__(self, path: str) -> None:
        """Creates the file. Raises: ResultWriteError: it exists already, or cannot be created."""
        self.path = path
        self.size = 0
        self._identity: tuple[int, int, int] | None = None
        try:
            with self.opened(os.O_CREAT | os.O_EXCL | os.O_RDWR) as file:
                self._identity = _identity(os.fstat(file))
        except OSError as error:
            raise write_error(path, error) from error

    @property
    def file_bytes(self) -> int:
        """The length of the finished file."""
        return self.size

    def check_length(self, file: str | int) -> None:
        """Check that the file is not shorter than what was written. `file`: path or descriptor. Raises: ResultDataLost. OSError."""
        found = os.stat(file).st_size
        if found < self.file_bytes:
            raise truncated(self.path, found, self.file_bytes)

    def open(self, flags: int = os.O_RDONLY) -> int:
        """Open the file. Returns: a descriptor. Raises: OSError, also if another file has its name now.

        Whoever can rename its directory could put other records there, and records are unpickled.
        """
        file = os.open(self.path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if self._identity not in {None, _identity(os.fstat(file))}:
            os.close(file)
            raise OSError(errno.ESTALE, "it is not the file any more that was written here")
        return file

    @contextlib.contextmanager
    def opened(self, flags: int) -> Generator[int, None, None]:
        """Open the file for one write only: a task may have more subpartitions than a process may have open files."""
        file = self.open(flags)
        try:
            yield file
        finally:
            os.close(file)

    def append(self, parts: Sequence[Part]) -> None:
        """Write at the end. Raises: OSError."""
        with self.opened(os.O_WRONLY | os.O_APPEND) as file:
            self.size += _write_all(file, parts)

    def delete(self) -> None:
        """Somebody else may have deleted it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    """The owner is part of it: the number of a file that was deleted is used again."""
    return found.st_dev, found.st_ino, found.st_uid


def _write_all(file: int, parts: Sequence[Part]) -> int:
    views = [memoryview(part).cast("B") for part in parts]
    total = sum(view.nbytes for view in views)
    at = 0
    while at < len(views):
        written = os.writev(file, views[at : at + _MOST_PARTS])
        while at < len(views) and written >= views[at].nbytes:
            written -= views[at].nbytes
            at += 1
        if written:
            views[at] = views[at][written:]
    return total


def truncated(path: str, found: int, expected: int) -> ResultDataLost:
    """The error of a file that is shorter than what was written."""
    return ResultDataLost(
        f"{path} is truncated: it has {found:,} bytes where {expected:,} were written. The result "
        "is computed again."
    )


def write_error(path: str, error: OSError) -> ResultWriteError:
    """The error of a file that cannot be made or written."""
    return ResultWriteError(
        f"a blocking result cannot be written to {path}: {error.strerror or error}. Free space "
        "there, or set io.tmp.dirs to directories with more space."
    )
