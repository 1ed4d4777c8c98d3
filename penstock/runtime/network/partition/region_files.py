"""RegionFiles: a sort-merge result on disk. One file has the data of all subpartitions, another one says where each lies.

Does not know batches. The data is a sequence of regions. In a region each subpartition has one slice, a sequence of buffers with
their headers as in `bounded_data.py`. The index has the offset and the length of each slice (two int64 in native byte order). A
region that all subpartitions share has one slice, which is known without the index. No file is open between two reads: thousands
of results are read in turns, so descriptors that are kept would be others than those that are wanted next.
Source: Flink PartitionedFile, PartitionedFileWriter, PartitionedFileReader (docs/spec/exchange.md#sort-merge-results). Differs: what
is shared has no entries in the index; a reader reads for itself, without a scheduler for all readers.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from penstock.model.errors import ResultDataLost
from penstock.runtime.codecs.events import Part
from penstock.runtime.network.partition.bounded_data import HEADER, DiskBuffer
from penstock.runtime.network.partition.result_file import ResultFile, truncated, write_error
from penstock.runtime.network.partition.subpartition import Lock

Slice: TypeAlias = tuple[int, list[DiskBuffer]]
"""The subpartition, and its buffers in order."""

WRITTEN_AT_ONCE: Final = 4 << 20
READ_AT_ONCE: Final = 256 << 10
_LEAST_READ: Final = 64 << 10
_ENTRY: Final = struct.Struct("=qq")
_BY_SUBPARTITION: Final = -1


class RegionFiles:
    """`append`: the producer's thread. `close`: any thread. Readers read when everything is written."""

    def __init__(self, new_path: Callable[[], str], subpartitions: int, lock: Lock) -> None:
        """`new_path`: gives the path of a new file. Raises: ResultWriteError: a file cannot be made."""
        self._subpartitions = subpartitions
        self._lock = lock
        # Of each region two numbers: offset and length if it is shared, else -1 and where its entries begin in the index.
        self._regions = array("q")
        self._is_closed = False
        self.data = RegionFile(new_path())
        try:
            self.index = RegionFile(new_path())
        except BaseException:
            self.data.delete()
            raise

    @property
    def regions(self) -> int:
        return len(self._regions) // 2

    def append(self, slices: Iterable[Slice]) -> None:
        """Write a region, in the order of the slices. Subpartitions that are left out get nothing of it. Raises: ResultWriteError."""
        entries = array("q", bytes(_ENTRY.size * self._subpartitions))
        for index, start, length in self._written(slices):
            entries[2 * index : 2 * index + 2] = array("q", (start, length))
        self._regions.extend((_BY_SUBPARTITION, self.index.size))
        self._append(self.index, [entries.tobytes()])

    def append_shared(self, buffers: list[DiskBuffer]) -> None:
        """Write a region that each subpartition gets. Raises: ResultWriteError."""
        ((_, start, length),) = self._written([(0, buffers)])
        self._regions.extend((start, length))

    def _written(self, slices: Iterable[Slice]) -> list[tuple[int, int, int]]:
        """Write the slices in large pieces. Returns: subpartition, offset and length of each."""
        places: list[tuple[int, int, int]] = []
        parts: list[Part] = []
        at, waiting = self.data.size, 0
        for index, buffers in slices:
            length = 0
            for buffer in buffers:
                size = memoryview(buffer.data).nbytes
                parts += (HEADER.pack(buffer.code, buffer.is_compressed, size), buffer.data)
                length += HEADER.size + size
            places.append((index, at, length))
            at += length
            waiting += length
            if waiting >= WRITTEN_AT_ONCE:
                self._append(self.data, parts)
                parts, waiting = [], 0
        self._append(self.data, parts)
        return places

    def _append(self, file: RegionFile, parts: list[Part]) -> None:
        # A release from outside deletes the files.
        with self._lock:
            if parts and not self._is_closed:
                file.write(parts)

    def slice_of(self, region: int, index: int) -> tuple[int, int]:
        """Offset and length of a slice. Raises: ResultDataLost."""
        start, length = self._regions[2 * region : 2 * region + 2]
        if start != _BY_SUBPARTITION:
            return start, length
        at = length + index * _ENTRY.size
        entry = bytearray(_ENTRY.size)
        self.index.read_into(memoryview(entry), at)
        start, length = _ENTRY.unpack(entry)
        if not 0 <= start <= start + length <= self.data.size:
            raise ResultDataLost(
                f"{self.index.path} is damaged: it names {length:,} bytes at {start:,} of "
                f"{self.data.size:,}"
            )
        return start, length

    def close(self) -> None:
        """Delete the files. May be called twice."""
        with self._lock:
            self._is_closed = True
        self.data.delete()
        self.index.delete()


class RegionFile(ResultFile):
    """The data or the index."""

    def write(self, parts: list[Part]) -> None:
        """Append. Raises: ResultWriteError, for example when the disk is full."""
        try:
            self.append(parts)
        except OSError as error:
            raise write_error(self.path, error) from error

    def read_into(self, memory: memoryview, at: int) -> None:
        """Fill `memory` from there on. Any thread. Raises: ResultDataLost: the file is shorter, gone, or another one."""
        try:
            file = self.open()
            try:
                if os.preadv(file, [memory], at) < memory.nbytes:
                    raise truncated(self.path, os.fstat(file).st_size, self.size)
            finally:
                os.close(file)
        except OSError as error:
            raise ResultDataLost(f"{self.path} cannot be read: {error}") from error


class RegionReader:
    """Reads one subpartition from the start. For one thread. A buffer is valid until the next one is asked for."""

    __slots__ = (
        "_at",
        "_end",
        "_files",
        "_memory",
        "_read_to",
        "_region",
        "_start",
        "_subpartition",
    )

    def __init__(self, files: RegionFiles, subpartition: int) -> None:
        self._files = files
        self._subpartition = subpartition
        self._region = 0
        self._at = self._end = 0
        # What lies between these two offsets of the file is in memory.
        self._start = self._read_to = 0
        self._memory = memoryview(b"")

    def next_buffer(self) -> DiskBuffer | None:
        """The next buffer; None at the end. Raises: ResultDataLost."""
        while self._at >= self._end:
            if self._region >= self._files.regions:
                return None
            self._at, length = self._files.slice_of(self._region, self._subpartition)
            self._end = self._at + length
            self._region += 1
        code, is_compressed, length = HEADER.unpack(self._take(HEADER.size))
        if length < 0:
            raise self._damaged(length)
        return DiskBuffer(code, bool(is_compressed), self._take(length))

    def _take(self, length: int) -> memoryview:
        if self._at + length > self._end:
            raise self._damaged(length)
        if not self._start <= self._at <= self._at + length <= self._read_to:
            # Of a large slice one buffer, with the header that follows: what is read beyond it
            # would be read again.
            rest = self._end - self._at
            self._read(rest if rest <= READ_AT_ONCE else max(length + HEADER.size, _LEAST_READ))
        inside = self._at - self._start
        self._at += length
        return self._memory[inside : inside + length]

    def _read(self, length: int) -> None:
        length = min(length, self._end - self._at)
        if self._memory.nbytes < length:
            self._memory = memoryview(bytearray(length))
        self._start = self._read_to = self._at
        self._files.data.read_into(self._memory[:length], self._at)
        self._read_to += length

    def _damaged(self, length: int) -> ResultDataLost:
        return ResultDataLost(
            f"{self._files.data.path} is damaged: it names a buffer of {length:,} bytes at "
            f"{self._at:,}"
        )

    def close(self) -> None:
        """Give the memory back."""
        self._start = self._read_to = 0
        self._memory = memoryview(b"")
