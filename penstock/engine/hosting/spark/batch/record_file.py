"""Files for records of the shuffle, and for records that a task holds back. Does not know what a
record contains.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final

from penstock.engine.hosting.os import private_files

_SIZE: Final = struct.Struct("!I")


class RecordFile:
    """A file of records that is written once and may then be read several times."""

    def __init__(self, file: int, path: str) -> None:
        """`file`, `path`: of a new file, as `tempfile.mkstemp` returns them."""
        self._path = path
        self._identity = private_files.identity(file)
        self._file: BinaryIO | None = os.fdopen(file, "wb")

    def write(self, record: bytes) -> None:
        assert self._file is not None, "a file that has been read cannot be written again"
        self._file.write(_SIZE.pack(len(record)))
        self._file.write(record)

    def read(self) -> Iterator[bytes]:
        self.finish()
        with os.fdopen(private_files.open_again(self._path, self._identity), "rb") as file:
            while head := file.read(_SIZE.size):
                yield file.read(_SIZE.unpack(head)[0])

    def finish(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.finish()
        os.unlink(self._path)


class IndexedFile:
    """One file with numbered streams of records in any mixture. It is written first and then read."""

    def __init__(self, path: str) -> None:
        """Creates the file. Raises: OSError."""
        self._file: BinaryIO = os.fdopen(private_files.new_file(path), "w+b")
        self._end = 0
        self._places: dict[int, list[tuple[int, int]]] = {}

    def write(self, number: int, record: bytes) -> None:
        """Raises: OSError."""
        self._file.write(record)
        self._places.setdefault(number, []).append((self._end, len(record)))
        self._end += len(record)

    def has(self, number: int) -> bool:
        return number in self._places

    def read(self, number: int) -> Iterator[bytes]:
        for at, size in self._places.get(number, ()):
            self._file.seek(at)
            yield self._file.read(size)

    def close(self) -> None:
        self._file.close()


class HeldRecords:
    """Records that must wait, in order. They are held in memory, and on disk beyond `memory` bytes."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._held: deque[bytes] = deque()
        self._size = 0
        self._file: RecordFile | None = None

    def add(self, record: bytes) -> None:
        """Raises: OSError."""
        self._size += len(record)
        if self._file is None and self._size > self._memory:
            self._file = RecordFile(*tempfile.mkstemp(prefix=f"penstock-{os.getpid()}-held-"))
        if self._file is None:
            self._held.append(record)
        else:
            self._file.write(record)

    def take(self) -> Iterator[bytes]:
        """Return all held records and forget them."""
        while self._held:
            yield self._held.popleft()
        if self._file is not None:
            yield from self._file.read()
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
