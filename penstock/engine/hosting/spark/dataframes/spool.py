"""A partition in a file, for DataFrames whose rows come in another order each time they are
computed.

Spark computes it once; readers may read it repeatedly. A file contains messages, each preceded by
its length, and at the end a length of 0 with the position that is reached there.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.engine.hosting.os.file_systems import CheckpointDamaged, joined, open_files
from penstock.engine.hosting.spark.dataframes.feed_reader import Position

_LENGTH: Final = struct.Struct("!I")
_BLOCK: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """`bytes`: length of the file."""

    folder: str
    name: str
    bytes: int


def write_partition(folder: str, partition: int, messages: Iterable[bytes]) -> SpoolFile:
    """Write the file, under a name that no other attempt uses. Raises: CheckpointIoError."""
    name = f"partition-{partition:06d}-{secrets.token_hex(6)}"
    files, path = open_files(joined(folder, name))
    sink = files.create(path)
    try:
        at, size = Position(), 0
        for message in messages:
            sink.write(_LENGTH.pack(len(message)))
            sink.write(message)
            at = at.after(message)
            size += _LENGTH.size + len(message)
        end = _LENGTH.pack(0) + at.packed()
        sink.write(end)
    finally:
        sink.close()
    return SpoolFile(folder, name, size + len(end))


class SpoolStream:
    """Reads one partition from a position on, as `feed_reader.FeedStream` does."""

    def __init__(self, file: SpoolFile, begin: Position) -> None:
        """Raises: CheckpointDamaged: the file is missing or has changed."""
        self._files, self._path = open_files(joined(file.folder, file.name))
        self._file = file
        self._block = memoryview(b"")
        self._at = 0
        self._offset = 0
        self.position = Position()
        self.is_over = False
        while self.position.batches < begin.batches and self.next() is not None:
            pass
        if self.position != begin:
            self._damaged(begin)

    def next(self) -> bytes | None:
        """Return the next message; None: there are no more. Raises: CheckpointDamaged."""
        if self.is_over:
            return None
        (size,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if not size:
            self.is_over = True
            stated = Position.unpacked(self._take(len(self.position.packed())))
            if stated != self.position:
                self._damaged(stated)
            return None
        message = self._take(size)
        self.position = self.position.after(message)
        return message

    def close(self) -> None:
        self._block = memoryview(b"")

    def _take(self, size: int) -> bytes:
        if len(self._block) - self._at < size:
            self._read(size)
        begin, self._at = self._at, self._at + size
        return bytes(self._block[begin : self._at])

    def _read(self, least: int) -> None:
        """Read the next block of at least `least` bytes, and append it to the rest of the one
        before.
        """
        rest = bytes(self._block[self._at :])
        wanted = min(max(_BLOCK, least - len(rest)), self._file.bytes - self._offset)
        read = self._files.read(self._path, self._offset, wanted)
        self._offset += wanted
        self._block, self._at = memoryview(rest + read), 0
        if len(self._block) < least:
            self._damaged(self.position)

    def _damaged(self, expected: Position) -> None:
        raise CheckpointDamaged(
            f"the file {self._file.name} with a partition of the DataFrame has changed since "
            f"it was written: expected checksum {expected.checksum:08x} after "
            f"{expected.batches} batches, found {self.position.checksum:08x} after "
            f"{self.position.batches}"
        )
