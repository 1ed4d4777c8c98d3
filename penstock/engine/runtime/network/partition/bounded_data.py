"""BoundedData: the bytes of one blocking subpartition, written once by one thread, then read any number of times.

Does not know batches: it keeps buffers, each with 8 bytes before it (2 type, 2 whether compressed, 4
length; native byte order). There are three kinds: a plain file; a file that is mapped for reading; a file that is
mapped for writing and reading. Source: Flink BoundedData, FileChannelBoundedData,
FileChannelMemoryMappedBoundedData, MemoryMappedBoundedData
(docs/spec/exchange.md#files-of-results). Differs: a mapped file's blocks are allocated before they
are written, because otherwise a full disk would kill the process.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.engine.model.errors import EngineBug, ResultDataLost, ResultWriteError
from penstock.engine.runtime.codecs.events import Part

_MOST_PARTS: Final = 1024
"""The system takes no more in one call."""


class ResultFile:
    """A file of a blocking result, made here, and never another one that has its name later.

    Does not know what is in it. It is open only while something is written or read: a process may have more results
    than files that it may open. Source: Flink FileChannelBoundedData, PartitionedFile; differs: the file's identity is
    checked.

    `path`; `size`: bytes that were written.
    """

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


DATA: Final = 0
EVENT: Final = 1
MAX_REGION: Final = (1 << 31) - 1
DEFAULT_MAPPED_REGION: Final = 64 << 20
READ_BUFFERS: Final = 2
HEADER: Final = struct.Struct("=hhi")
_ALLOCATED_AT_ONCE: Final = 4 << 20
_ZEROS: Final = bytes(1 << 16)
_NOT_THIS_FILE_SYSTEM: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@dataclass(slots=True)
class DiskBuffer:
    """One buffer. `code`: DATA or EVENT. `owner`: `recycle` notifies it when `data` is not needed
    any more.
    """

    code: int
    is_compressed: bool
    data: Part
    owner: FileReader | None = None

    def recycle(self) -> None:
        if self.owner is not None:
            self.owner.recycle(self.data)


class BoundedReader(Protocol):
    """One reading from the start. For one thread."""

    def next_buffer(self) -> DiskBuffer | None:
        """The next buffer; None at the end, and while all read buffers are in use. Raises: ResultDataLost."""
        ...

    def close(self) -> None: ...


class BoundedData(ResultFile, ABC):
    """Call `write` repeatedly, `finish_write` once, then `create_reader` any number of times. `close` deletes the file."""

    def __init__(self, path: str) -> None:
        """Creates the file. Raises: ResultWriteError: it exists already, or cannot be created."""
        super().__init__(path)
        self._is_finished = False
        self._is_closed = False

    def write(self, buffer: DiskBuffer) -> None:
        """Append a buffer. Raises: ResultWriteError, for example when the disk is full."""
        if self._is_finished:
            raise EngineBug(f"{self.path} is finished, but was written to again")
        header = HEADER.pack(buffer.code, buffer.is_compressed, memoryview(buffer.data).nbytes)
        try:
            self._write(header, buffer.data)
        except OSError as error:
            raise write_error(self.path, error) from error

    def finish_write(self) -> None:
        """From now on the data can be read. Raises: ResultWriteError."""
        if self._is_finished:
            raise EngineBug(f"{self.path} was finished twice")
        self._is_finished = True
        try:
            self._finish()
        except OSError as error:
            raise write_error(self.path, error) from error

    def create_reader(self, on_data: Callable[[], None] | None = None) -> BoundedReader:
        """`on_data`: called when a read buffer is free again after `next_buffer` found none.

        Raises: EngineBug: it is not finished. ResultDataLost: the file is gone or shorter than it was.
        """
        if not self._is_finished or self._is_closed:
            state = "closed" if self._is_closed else "not finished"
            raise EngineBug(f"{self.path} cannot be read: it is {state}")
        try:
            return self._reader(on_data)
        except OSError as error:
            raise ResultDataLost(f"{self.path} cannot be read: {error}") from error

    def close(self) -> None:
        """Delete the file. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._close()
        self.delete()

    @abstractmethod
    def _write(self, header: bytes, data: Part) -> None: ...
    @abstractmethod
    def _finish(self) -> None: ...
    @abstractmethod
    def _reader(self, on_data: Callable[[], None] | None) -> BoundedReader: ...
    @abstractmethod
    def _close(self) -> None: ...


class FileData(BoundedData):
    """Plain reads and writes. Each reader opens the file for itself and has `read_buffers` buffers."""

    def __init__(self, path: str, read_buffers: int = READ_BUFFERS) -> None:
        super().__init__(path)
        self._read_buffers = read_buffers
        self._largest = 0

    def _write(self, header: bytes, data: Part) -> None:
        self.append((header, data))
        self._largest = max(self._largest, memoryview(data).nbytes)

    def _finish(self) -> None:
        """Nothing to do: everything is in the file."""

    def _reader(self, on_data: Callable[[], None] | None) -> BoundedReader:
        self.check_length(self.path)
        free = [bytearray(self._largest) for _ in range(self._read_buffers)]
        return FileReader(self, free, on_data)

    def _close(self) -> None:
        """Nothing to do: there is only the file."""


class FileReader:
    """Reads in sequence, with a file handle of its own, into buffers that are used again once they are recycled."""

    def __init__(
        self,
        data: BoundedData,
        buffers: list[bytearray],
        on_data: Callable[[], None] | None,
    ) -> None:
        self._path = data.path
        self._size = data.size
        self._at = 0
        self._file = os.fdopen(data.open(), "rb", buffering=0)
        self._free = buffers
        self._out: dict[int, bytearray] = {}
        self._header = bytearray(HEADER.size)
        self._on_data = on_data

    def next_buffer(self) -> DiskBuffer | None:
        if self._at >= self._size or not self._free:
            return None
        self._read_into(memoryview(self._header))
        code, is_compressed, length = HEADER.unpack(self._header)
        buffer = self._free.pop()
        if not 0 <= length <= len(buffer):
            raise ResultDataLost(
                f"{self._path} is damaged: it names a buffer of {length:,} bytes at {self._at:,}"
            )
        data = memoryview(buffer)[:length]
        self._read_into(data)
        self._out[id(data)] = buffer
        return DiskBuffer(code, bool(is_compressed), data, self)

    def recycle(self, data: Part) -> None:
        """A buffer is not needed any more."""
        buffer = self._out.pop(id(data), None)
        if buffer is None:
            return
        was_empty = not self._free
        self._free.append(buffer)
        if was_empty and self._at < self._size and self._on_data is not None:
            self._on_data()

    def close(self) -> None:
        self._file.close()

    def _read_into(self, view: memoryview) -> None:
        at = 0
        while at < view.nbytes:
            try:
                count = self._file.readinto(view[at:])
            except OSError as error:
                raise ResultDataLost(f"{self._path} cannot be read: {error}") from error
            if not count:
                raise truncated(self._path, self._at + at, self._size)
            at += count
        self._at += at


@dataclass(slots=True)
class _Region:
    """A mapped part of the file. `start`: where the data begins in `memory`; `length`: of the data, in bytes."""

    memory: mmap.mmap
    start: int
    length: int


class MappedData(BoundedData):
    """What both mapped kinds share: readers that slice regions. No frame crosses a region's border."""

    def __init__(self, path: str, region_bytes: int) -> None:
        super().__init__(path)
        self._region_bytes = region_bytes
        self._regions: list[_Region] = []

    def _check_fits(self, frame: int) -> None:
        if frame > self._region_bytes:
            raise ResultWriteError(
                f"a buffer of {frame:,} bytes with its header is larger than the maximum region of "
                f"{self._region_bytes:,} bytes ({self.path}). Lower taskmanager.memory.segment-size."
            )

    def _reader(self, on_data: Callable[[], None] | None) -> BoundedReader:
        self.check_length(self.path)
        return MappedReader(self, self._regions)

    def _close(self) -> None:
        for region in self._regions:
            # A buffer that is still in use keeps the region's memory alive until it is dropped.
            with contextlib.suppress(BufferError):
                region.memory.close()
        self._regions = []


class MappedFileData(MappedData):
    """Written through the file. A region is mapped for reading when it is full or everything is written."""

    def __init__(self, path: str, region_bytes: int = MAX_REGION) -> None:
        super().__init__(path, region_bytes)
        self._mapped = 0

    def _write(self, header: bytes, data: Part) -> None:
        frame = len(header) + memoryview(data).nbytes
        self._check_fits(frame)
        if self.size + frame - self._mapped > self._region_bytes:
            self._map()
        self.append((header, data))

    def _finish(self) -> None:
        self._map()

    def _map(self) -> None:
        """Map what is written and not mapped yet. The operating system requires a mapping to begin at a multiple of a page."""
        length = self.size - self._mapped
        if not length:
            return
        start = self._mapped % mmap.ALLOCATIONGRANULARITY
        with self.opened(os.O_RDONLY) as file:
            memory = _map(file, start + length, self._mapped - start, mmap.ACCESS_READ)
        self._regions.append(_Region(memory, start, length))
        self._mapped = self.size


class MemoryMappedData(MappedData):
    """Written and read through the mapping."""

    def __init__(self, path: str, region_bytes: int = DEFAULT_MAPPED_REGION) -> None:
        """Raises: ResultWriteError: a region smaller than a page."""
        whole = region_bytes - region_bytes % mmap.ALLOCATIONGRANULARITY
        if whole == 0:
            raise ResultWriteError(
                f"a region of {region_bytes:,} bytes is smaller than a page of {mmap.ALLOCATIONGRANULARITY:,}"
            )
        super().__init__(path, whole)
        self._allocated = 0

    def _write(self, header: bytes, data: Part) -> None:
        frame = len(header) + memoryview(data).nbytes
        self._check_fits(frame)
        region = self._regions[-1] if self._regions else None
        if region is None or region.length + frame > self._region_bytes:
            region = self._next_region()
        at = region.length
        self._allocate((len(self._regions) - 1) * self._region_bytes + at + frame)
        region.memory[at : at + len(header)] = header
        region.memory[at + len(header) : at + frame] = memoryview(data).cast("B")
        region.length += frame
        self.size += frame

    def _next_region(self) -> _Region:
        offset = len(self._regions) * self._region_bytes
        with self.opened(os.O_RDWR) as file:
            os.ftruncate(file, offset + self._region_bytes)
            memory = _map(file, self._region_bytes, offset, mmap.ACCESS_WRITE)
        self._regions.append(_Region(memory, 0, 0))
        self._allocated = max(self._allocated, offset)
        return self._regions[-1]

    def _allocate(self, end: int) -> None:
        """Allocate blocks up to `end` and some more: writing to a page without a block would end the process with SIGBUS."""
        if end <= self._allocated:
            return
        most = len(self._regions) * self._region_bytes
        ahead = min(max(end, self._allocated + _ALLOCATED_AT_ONCE), most)
        with self.opened(os.O_RDWR) as file:
            try:
                _reserve(file, self._allocated, ahead)
            except OSError:
                # There is no room for the additional blocks, so allocate only the necessary ones.
                ahead = end
                _reserve(file, self._allocated, ahead)
        self._allocated = ahead

    def _finish(self) -> None:
        """Give back the unused end of the last region."""
        with self.opened(os.O_RDWR) as file:
            os.ftruncate(file, self.file_bytes)

    @property
    def file_bytes(self) -> int:
        if not self._regions:
            return 0
        return (len(self._regions) - 1) * self._region_bytes + self._regions[-1].length


class MappedReader:
    """Slices of the regions, in order, without copies. Read them at once: if the file is cut short afterwards, access to their
    memory fails.
    """

    def __init__(self, data: MappedData, regions: list[_Region]) -> None:
        self._data = data
        self._regions = regions
        self._file = data.open()
        self._views = [memoryview(region.memory) for region in regions]
        self._region = 0
        self._at = 0
        self._is_closed = False

    def next_buffer(self) -> DiskBuffer | None:
        while self._region < len(self._views):
            region = self._regions[self._region]
            if self._at < region.length:
                return self._cut(self._views[self._region], region)
            self._region += 1
            self._at = 0
        return None

    def _cut(self, view: memoryview, region: _Region) -> DiskBuffer:
        # Reading beyond the end of the file would end the process.
        self._data.check_length(self._file)
        at = region.start + self._at
        code, is_compressed, length = HEADER.unpack_from(view, at)
        at += HEADER.size
        self._at += HEADER.size + length
        if length < 0 or self._at > region.length:
            raise ResultDataLost(
                f"{self._data.path} is damaged: it names a buffer of {length:,} bytes"
            )
        return DiskBuffer(code, bool(is_compressed), view[at : at + length])

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        os.close(self._file)
        for view in self._views:
            # This fails while a buffer is still in use.
            with contextlib.suppress(BufferError):
                view.release()
        self._views = []


def _map(file: int, length: int, offset: int, access: int) -> mmap.mmap:
    options: dict[str, Any] = {"access": access, "offset": offset}
    if sys.version_info >= (3, 13):
        # Otherwise each region would keep a file descriptor open.
        options["trackfd"] = False
    return mmap.mmap(file, length, **options)


def _reserve(file: int, start: int, end: int) -> None:
    """Allocate blocks for these bytes, none of which has been written. Raises: OSError: the disk is full."""
    try:
        os.posix_fallocate(file, start, end - start)
    except AttributeError:
        # Not available on this system.
        pass
    except OSError as error:
        if error.errno not in _NOT_THIS_FILE_SYSTEM:
            raise
    else:
        return
    for at in range(start, end, len(_ZEROS)):
        os.pwrite(file, _ZEROS[: end - at], at)
