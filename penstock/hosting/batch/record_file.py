"""Records of the shuffle on disk, and those that a task holds back. Knows nothing of what is in them."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final

_SIZE: Final = struct.Struct("!I")


class RecordFile:
    """Written once, then read from its start as often as one likes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = open(path, "wb")  # ruff: ignore[open-file-with-context-handler] - closed in read

    def write(self, record: bytes) -> None:
        assert self._file is not None, "a file that is read is complete"
        self._file.write(_SIZE.pack(len(record)))
        self._file.write(record)

    def read(self) -> Iterator[bytes]:
        self.finish()
        with open(self._path, "rb") as file:
            while head := file.read(_SIZE.size):
                yield file.read(_SIZE.unpack(head)[0])

    def finish(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.finish()
        os.unlink(self._path)


class HeldRecords:
    """Records whose turn has not come, in order: in memory, and beyond `memory` bytes on disk."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._held: list[bytes] = []
        self._size = 0
        self._file: RecordFile | None = None

    def add(self, record: bytes) -> None:
        """Raises: OSError."""
        self._size += len(record)
        if self._file is None and self._size > self._memory:
            number, path = tempfile.mkstemp(prefix=f"penstock-{os.getpid()}-held-")
            os.close(number)
            self._file = RecordFile(path)
        if self._file is None:
            self._held.append(record)
        else:
            self._file.write(record)

    def take(self) -> Iterator[bytes]:
        """All of them; nothing is left then."""
        while self._held:
            yield self._held.pop(0)
        if self._file is not None:
            yield from self._file.read()
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
