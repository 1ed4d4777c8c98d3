"""Parts of a FileSink, and what a place is asked for that keeps them hidden until their commit. Does not know any file system.

Source: Flink RecoverableWriter, its Committer; differs: every checkpoint closes the files, so that none is continued.
"""

from __future__ import annotations

import hashlib
import io
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

from penstock.engine.runtime.sink import WriterContext

# ---------------------------------------------------------------------- sink names
# Names of a FileSink's files, which show whose files they are.
#
# A file is called `.<attempt prefix>.<token of the
# sink>.s<subtask>.<n>.<attempt>-<writer>.inprogress` while it is being written, and
# `....c<checkpoint>.pending` from its checkpoint on until the checkpoint completes. The token
# separates two sinks on one directory; the prefixes and the attempt show whose leftovers may be
# removed. No two writers share a hidden name, not even when a driver that was taken for dead
# still runs a writer.


IN_PROGRESS: Final = ".inprogress"
PENDING: Final = ".pending"


def unique_name(context: WriterContext, mark: str) -> str:
    """A unique part of final names.

    In BATCH several attempts may run at once and one of them is committed, so all of them get the same name. A job with
    the same id then gives the same names.
    """
    if context.is_batch:
        name = f"{context.job_prefix}/{context.operator_id}/{context.subtask}"
    else:
        name = f"{context.attempt_prefix}/{mark}"
    digest = hashlib.sha256(name.encode()).hexdigest()
    return str(uuid.UUID(hex=digest[:32]))


def in_progress(files: Iterable[str], job_prefix: str, mark: str) -> Iterator[str]:
    """Those of the files that are hidden ones of this job with this mark."""
    for path in files:
        name = path.rpartition("/")[2]
        if name.startswith(f".{job_prefix}") and name.endswith(IN_PROGRESS) and f".{mark}." in name:
            yield path


def leftovers(files: Iterable[str], token: str, context: WriterContext) -> Iterator[str]:
    """Those of the files that are hidden and that nobody will commit, left by this subtask or by subtasks whose work it continues.

    They were begun in an older attempt, or prepared for a checkpoint after the restored one.
    """
    start = f".{context.job_prefix}"
    part = r"s(?P<subtask>\d+)\.\d+\.(?P<attempt>\d+)-\w+"
    # Those of a StreamingFileSink begin with their final name.
    name = re.compile(
        rf"(?:\..*{re.escape(IN_PROGRESS)})?{re.escape(start)}.*\.{token}\.{part}"
        rf"(?:{re.escape(IN_PROGRESS)}|\.c(?P<id>\d+){re.escape(PENDING)})?"
    )
    restored = context.restored_checkpoint_id
    for path in files:
        found = name.fullmatch(path.rpartition("/")[2])
        if found is None:
            continue
        if found["id"] is None:
            is_left = int(found["attempt"]) < context.attempt
        else:
            is_left = restored is None or int(found["id"]) > restored
        if is_left and int(found["subtask"]) % context.parallelism == context.subtask:
            yield path


# ---------------------------------------------------------------------- parts


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload whose parts are all there. `mark`: a text that only this object's name has."""

    upload_id: str
    etags: tuple[str, ...]
    mark: str


@dataclass(frozen=True, slots=True)
class Part:
    """A finished file, its name once it is visible, and the hidden files that it replaces.

    `hidden`: its name until then; '' if it is an `upload`.
    """

    hidden: str
    final: str
    replaces: tuple[str, ...] = ()
    upload: Upload | None = None

    @property
    def folder(self) -> str:
        return (self.hidden or self.final).rpartition("/")[0]

    @property
    def committable(self) -> tuple[object, ...]:
        """The part as plain data."""
        if self.upload is None:
            return (self.hidden, self.final, self.replaces)
        upload = (self.upload.upload_id, self.upload.etags, self.upload.mark)
        return (self.hidden, self.final, self.replaces, upload)

    @staticmethod
    def of(committable: object) -> Part:
        """The part of a committable. Checkpoints from before compaction was supported hold pairs of names."""
        if not isinstance(committable, tuple | list) or len(committable) not in {2, 3, 4}:
            raise TypeError(f"a FileSink commits names of files, got {committable!r}")
        hidden, final, *rest = committable
        upload = Upload(*rest[1]) if len(rest) == 2 else None
        return Part(str(hidden), str(final), tuple(rest[0]) if rest else (), upload)


class PartOutput(Protocol):
    """One file that is being written."""

    file: BinaryIO

    def seal(self) -> int:
        """No more bytes come. Returns how many there are."""

    def finish(self) -> Part:
        """Wait until the bytes are durable; after `seal`."""

    def discard(self, *, is_kept: bool = False) -> None:
        """Remove what was written; `is_kept`: only close it. May be repeated."""


class CountedOutput(io.BufferedIOBase):
    """A file that hands its bytes on, and knows how many there were. To close it closes nothing else."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._send(data)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size


class PartStore(ABC):
    """Keeps the parts of one sink hidden, makes them visible, and removes what nobody will commit. Paths have `/`."""

    base: str
    """The path that buckets are below."""

    @abstractmethod
    def check(self) -> None:
        """Look, at submission, whether files can be written. Raises: ConfigurationError."""

    @abstractmethod
    def unique_name(self, context: WriterContext, mark: str, restored: int) -> str:
        """A unique part of final names.

        `mark`: of the writer. `restored`: the checkpoint for which it has prepared last, or from
        which it was restored; 0: none.
        """

    @abstractmethod
    def create(self, hidden: str, final: str) -> PartOutput:
        """Begin a file. Raises: ExternalError."""

    @abstractmethod
    def kept(self, part: Part, checkpoint_id: int) -> Part:
        """The part as it is from its checkpoint on until the commit."""

    @abstractmethod
    def drop(self, part: Part) -> None:
        """Remove a part that will not be committed."""

    @abstractmethod
    def drop_leftovers(self, context: WriterContext) -> None:
        """Remove the parts that nobody will commit, left by this subtask or by subtasks whose work it continues.

        They were begun in an older attempt, or prepared for a checkpoint after the restored one.
        """

    @abstractmethod
    def commit(self, parts: Sequence[Part]) -> None:
        """Make parts visible. Those that are visible already stay as they are.

        Raises:
            ExternalError: a part is gone, or another file has its name; then no part is made visible.
        """

    @abstractmethod
    def abort(self, job_prefix: str, operator_id: str) -> None:
        """Remove what was begun for this job and is in no checkpoint."""

    def close(self) -> None:
        """End what works outside the task's thread."""

    def size(self, path: str) -> int:
        """Bytes of a hidden file."""
        raise NotImplementedError(f"{type(self).__name__} has no hidden files")

    def readable(self, path: str) -> str:
        """A hidden file as compactors open it: by a path or an address."""
        return path
