"""The blocks of an Avro object container file, found so that the file can be read in parts. Does not know the schema.

A file is a header (magic, metadata, a sync marker of 16 bytes) and blocks (count, size, bytes, the marker again).
Source: Avro 1.12, "Object Container Files".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, TypeAlias

from penstock.engine.model.errors import UserCodeError
from penstock.formats.file_access import open_input, shown, size_of
from penstock.formats.file_listing import FilePiece

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
BLOCK_BYTES: Final = 64_000
"""A block of at least so many bytes is written. Source: Avro's Java DataFileWriter."""

Encoded: TypeAlias = "tuple[int, bytes]"
"""So many records, and their bytes."""


class BlockWriter:
    """Writes encoded records as uncompressed blocks after a header that is written already."""

    def __init__(self, file: BinaryIO, mark: bytes) -> None:
        self._file = file
        self._mark = mark
        self._waiting: list[bytes] = []
        self._count = self._size = 0

    def add(self, count: int, data: bytes) -> None:
        self._waiting.append(data)
        self._count += count
        self._size += len(data)
        if self._size >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._count:
            head = _long_bytes(self._count) + _long_bytes(self._size)
            self._file.write(b"".join([head, *self._waiting, self._mark]))
        self._waiting.clear()
        self._count = self._size = 0


def _long_bytes(number: int) -> bytes:
    """A number from 0 up as Avro's long: zigzag, seven bits in a byte, the lowest first."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def header_bytes(file: BinaryIO, path: str) -> bytes:
    """Reads the header at the start of a file. Raises: UserCodeError: the file has none."""
    if file.read(len(MAGIC)) != MAGIC:
        raise UserCodeError(
            f"{shown(path)}: not an Avro object container file, because it does not begin with "
            f"{MAGIC!r}. "
            "Remove it from the source's directory, or read it with its own format."
        )
    while count := _long(file, path):
        if count < 0:
            _long(file, path)  # their size in bytes
        for _ in range(2 * abs(count)):
            _skip(file, _long(file, path), path)
    _skip(file, SYNC_BYTES, path)
    stop = file.tell()
    file.seek(0)
    return file.read(stop)


def pieces_of(path: str, split_bytes: int) -> Iterator[FilePiece]:
    """Yields runs of blocks of about `split_bytes`; none for a file without records."""
    size = size_of(path)
    with open_input(path) as file:
        start = len(header_bytes(file, path))
        while (stop := file.tell()) < size:
            _long(file, path)
            _skip(file, _long(file, path) + SYNC_BYTES, path)
            if file.tell() > size:
                raise _cut_off(path)
            if stop > start and file.tell() - start > split_bytes:
                yield FilePiece(path, start, stop, stop - start)
                start = stop
        if stop > start:
            yield FilePiece(path, start, stop, stop - start)


def spliced(file: BinaryIO, header: bytes, piece: FilePiece) -> _Spliced:
    """A file with the same header that has only the blocks of `piece`, complete enough for a reader."""
    file.seek(max(piece.start, len(header)))
    return _Spliced(file, header, piece.stop)


def block_behind(
    file: BinaryIO, piece: FilePiece, header_size: int, number: int
) -> tuple[int, FilePiece | None]:
    """How many records block `number` of the piece has, counted from 0, and the part of the piece behind it; None: there is none, or
    the blocks before cannot be told apart.
    """
    size = size_of(piece.path)
    stop = size if piece.stop is None else piece.stop
    try:
        file.seek(max(piece.start, header_size))
        records = 0
        for _ in range(number + 1):
            records = _long(file, piece.path)
            _skip(file, _long(file, piece.path) + SYNC_BYTES, piece.path)
    except UserCodeError:
        return 0, None
    start = file.tell()
    if start >= stop:
        return records, FilePiece(piece.path, stop, stop, 0)
    return records, FilePiece(piece.path, start, stop, stop - start)


class _Spliced:
    def __init__(self, file: BinaryIO, header: bytes, stop: int | None) -> None:
        self._file = file
        self._header = memoryview(header)
        self._stop = stop

    def read(self, size: int) -> bytes:
        """Reads bytes; fewer only at the end."""
        first = bytes(self._header[:size])
        self._header = self._header[size:]
        left = size - len(first)
        if self._stop is not None:
            left = min(left, self._stop - self._file.tell())
        return first + self._file.read(left) if left else first

    def tell(self) -> int:
        """The position in the file, which fastavro keeps with each block."""
        return self._file.tell()


def _long(file: BinaryIO, path: str) -> int:
    """Reads a number in zigzag coding, with seven bits per byte."""
    number = shift = 0
    while True:
        byte = file.read(1)
        if not byte:
            raise _cut_off(path)
        number |= (byte[0] & 0x7F) << shift
        if not byte[0] & 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7


def _skip(file: BinaryIO, size: int, path: str) -> None:
    if size < 0:
        raise UserCodeError(
            f"{shown(path)}: the file is damaged: a length of {size} bytes at byte {file.tell()}."
        )
    file.seek(size, os.SEEK_CUR)


def _cut_off(path: str) -> UserCodeError:
    return UserCodeError(
        f"{shown(path)}: ends in the middle of a block, at byte {size_of(path)}. Check whether it "
        "is still being written, or was copied only in part."
    )
