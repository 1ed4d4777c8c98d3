"""Parts as multipart uploads of S3, which the commit completes. Before that nobody sees them, and no object has to be copied.

The parts of an upload are sent outside the task's thread, while it writes on. A checkpoint waits for them; what it holds is the id of each
upload with the tags of its parts. The last part of an upload may be small, so that a checkpoint closes a file of any size.
An upload that nobody will commit is recognized by its key: see `UploadKey`.
Source: Flink S3RecoverableWriter, S3RecoverableMultipartUpload; differs: no upload goes on after a checkpoint, so no tail lies in
an object next to it. S3's rules: parts of at least 5 MiB but the last one, at most 10,000.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from penstock.connectors.files.parts import CountedOutput, Part, PartOutput, PartStore, Upload
from penstock.engine.hosting.os.s3_objects import S3Objects
from penstock.engine.model.errors import ExternalError
from penstock.engine.runtime.sink import WriterContext
from penstock.formats.file_access import Address, reached

# ---------------------------------------------------------------------- upload keys
# Keys of a FileSink's objects in S3, which tell whose uploads they are.
#
# Servers list uploads by their keys and nothing else. So the UUID in the name of a part holds, as
# hexadecimal digits, what the hidden names of files say in letters: the sink (12), the subtask
# (4), the attempt (3), the checkpoint that its writer had prepared for last when it began the
# file (7), and the writer (6). An upload of an older attempt that was begun behind checkpoint 7
# belongs to checkpoint 8 or a later one, so that nobody will commit it if the job goes on from
# checkpoint 7. In a BATCH job all attempts of a subtask give the same names, of which one is
# committed. Their attempt is `fff`.


_MOST_SUBTASKS: Final = 0xFFFF
_OF_BATCH: Final = 0xFFF
_MOST_CHECKPOINTS: Final = 0xFFFFFFF
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class UploadKey:
    """`sink`: of a job and the uid of its operator. `behind`: a checkpoint."""

    sink: str
    subtask: int
    attempt: int
    behind: int
    writer: str

    @staticmethod
    def of(context: WriterContext, behind: int) -> UploadKey:
        """The key of files that this writer begins behind a checkpoint."""
        sink = sink_of(context.job_prefix, context.operator_id)
        subtask = min(context.subtask, _MOST_SUBTASKS)
        if context.is_batch:
            return UploadKey(sink, subtask, _OF_BATCH, 0, "0" * 6)
        # Uploads with a number that is cut are never taken for leftovers.
        attempt = min(context.attempt, _OF_BATCH - 1)
        return UploadKey(
            sink, subtask, attempt, min(behind, _MOST_CHECKPOINTS), uuid.uuid4().hex[:6]
        )

    @staticmethod
    def in_name(name: str) -> UploadKey | None:
        """The key in the name of an object; None: there is none."""
        found = _UUID.findall(name)
        if not found:
            return None
        digits = found[-1].replace("-", "")
        return UploadKey(
            digits[:12],
            int(digits[12:16], 16),
            int(digits[16:19], 16),
            int(digits[19:26], 16),
            digits[26:],
        )

    def __str__(self) -> str:
        digits = f"{self.sink}{self.subtask:04x}{self.attempt:03x}{self.behind:07x}{self.writer}"
        return str(uuid.UUID(hex=digits))

    def is_left(self, context: WriterContext) -> bool:
        """Whether the subtask, or one whose work it continues, began it in an older attempt, and nobody will commit it."""
        restored = context.restored_checkpoint_id or 0
        return (
            self.sink == sink_of(context.job_prefix, context.operator_id)
            and self.attempt < min(context.attempt, _OF_BATCH - 1)
            and restored <= self.behind < _MOST_CHECKPOINTS
            and self.subtask % context.parallelism == context.subtask
        )

    def is_of_batch_job(self, job_prefix: str, operator_id: str) -> bool:
        return self.attempt == _OF_BATCH and self.sink == sink_of(job_prefix, operator_id)


def sink_of(job_prefix: str, operator_id: str) -> str:
    """Twelve hexadecimal digits."""
    return hashlib.sha256(f"{job_prefix}/{operator_id}".encode()).hexdigest()[:12]


# ---------------------------------------------------------------------- uploads


PART_BYTES: Final = 8 * 1024 * 1024
PARTS_OF_A_SIZE: Final = 1000
"""After so many parts they become twice as large, so that the 10,000 of an upload suffice for 5 TiB."""
SENT_AT_ONCE: Final = 4
COMMITTED_AT_ONCE: Final = 8
_LOG: Final = logging.getLogger(__name__)


class UploadParts(PartStore):
    """In a bucket. Paths are `bucket/key`."""

    def __init__(self, address: Address, objects: S3Objects) -> None:
        self._address = address
        self._objects = objects
        self.base = f"{address.netloc.rpartition('@')[2]}/{address.path}".rstrip("/")
        self._threads: ThreadPoolExecutor | None = None

    def check(self) -> None:
        """Begin an upload, and drop it."""
        path = f"{self.base}/.penstock-check"

        def tried() -> None:
            upload_id = self._objects.begin_upload(path, "")
            with contextlib.suppress(OSError):
                self._objects.drop_upload(path, upload_id)

        reached("FileSink: cannot write to", self._address, tried)

    def unique_name(self, context: WriterContext, mark: str, behind: int) -> str:
        return str(UploadKey.of(context, behind))

    def create(self, hidden: str, final: str) -> PartOutput:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SENT_AT_ONCE, "s3-upload")
        return UploadOutput(self._objects, final, self._threads)

    def kept(self, part: Part, checkpoint_id: int) -> Part:
        return part

    def drop(self, part: Part) -> None:
        if part.upload is not None:
            with told():
                self._objects.drop_upload(part.final, part.upload.upload_id)

    def drop_leftovers(self, context: WriterContext) -> None:
        self._drop_where(lambda key: key.is_left(context))

    def commit(self, parts: Sequence[Part]) -> None:
        with told(), ThreadPoolExecutor(COMMITTED_AT_ONCE, "s3-commit") as threads:
            visible = [one for one in threads.map(self._checked, parts) if one is not None]
            for _ in threads.map(self._complete, visible):
                """Each one raises its error here."""

    def abort(self, job_prefix: str, operator_id: str) -> None:
        """Those of streaming jobs stay: a retained checkpoint may have them."""
        self._drop_where(lambda key: key.is_of_batch_job(job_prefix, operator_id))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _checked(self, part: Part) -> Part | None:
        """The part, if it has still to be made visible. Raises: ExternalError: another object has its name."""
        if part.upload is None:
            raise ExternalError(
                f"FileSink: the checkpoint has the hidden file {part.hidden} for {part.final}, "
                "which a sink with enable_compact wrote. Restore it with enable_compact, or with "
                "disable_compact once the parts are merged."
            )
        mark = self._objects.mark_of(part.final)
        if mark is None:
            return part
        if mark == part.upload.mark:
            return None
        raise ExternalError(
            f"FileSink: {part.final} exists already and was not written by this run. Another run "
            "with the same pipeline.fixed-job-id may have written it: give each run its own "
            "id or directory."
        )

    def _complete(self, part: Part) -> None:
        upload = part.upload
        assert upload is not None, "it was checked"
        try:
            if self._objects.complete_upload(part.final, upload.upload_id, upload.etags):
                return
        except OSError:
            # The answer to an earlier try may have been lost.
            if self._objects.mark_of(part.final) != upload.mark:
                raise
            return
        if self._objects.mark_of(part.final) != upload.mark:
            raise ExternalError(
                f"FileSink: the upload of {part.final} is gone, so the part cannot be committed. "
                "Check that no lifecycle rule of the bucket drops uploads that a checkpoint or "
                "savepoint still needs."
            )

    def _drop_where(self, is_dropped: Callable[[UploadKey], bool]) -> None:
        """Uploads that stay cost money, but harm nobody: a server that does not list them fails no job."""
        try:
            for path, upload_id in self._objects.uploads(f"{self.base}/"):
                key = UploadKey.in_name(path.rpartition("/")[2])
                if key is not None and is_dropped(key):
                    self._objects.drop_upload(path, upload_id)
        except OSError as error:
            _LOG.warning("sink=%s uploads=KEPT cause=%s", self._address.shown, error)


class UploadOutput:
    """One upload. It begins with its first part."""

    def __init__(self, objects: S3Objects, path: str, threads: ThreadPoolExecutor) -> None:
        self._objects = objects
        self._path = path
        self._threads = threads
        self._mark = uuid.uuid4().hex
        self._upload: Future[str] | None = None
        self._waiting = bytearray()
        self._sent: list[Future[str]] = []
        self._under_way: deque[Future[str]] = deque()
        self.file: BinaryIO = cast("BinaryIO", CountedOutput(self._take))

    def seal(self) -> int:
        with told():
            if self._waiting or not self._sent:
                self._send(bytes(self._waiting))
                self._waiting = bytearray()
        return self.file.tell()

    def finish(self) -> Part:
        assert self._upload is not None, "it was sealed"
        with told():
            etags = tuple(one.result() for one in self._sent)
            return Part("", self._path, (), Upload(self._upload.result(), etags, self._mark))

    def discard(self, *, is_kept: bool = False) -> None:
        upload, self._upload = self._upload, None
        if upload is None or is_kept:
            return
        for one in self._sent:
            one.cancel()
        for one in self._sent:
            if not one.cancelled():
                one.exception()  # waits: a part that comes behind the drop would stay
        with contextlib.suppress(OSError):
            self._objects.drop_upload(self._path, upload.result())

    def _take(self, data: bytes) -> None:
        self._waiting += data
        most = PART_BYTES << (len(self._sent) // PARTS_OF_A_SIZE)
        while len(self._waiting) >= most:
            with told():
                self._send(bytes(memoryview(self._waiting)[:most]))
            del self._waiting[:most]

    def _send(self, data: bytes) -> None:
        """Wait where the network is slower than the task, and raise what earlier parts raised."""
        if self._upload is None:
            self._upload = self._threads.submit(self._objects.begin_upload, self._path, self._mark)
        while len(self._under_way) >= SENT_AT_ONCE:
            self._under_way.popleft().result()
        upload, number = self._upload, len(self._sent) + 1

        def send() -> str:
            return self._objects.send_part(self._path, upload.result(), number, data)

        self._sent.append(self._threads.submit(send))
        self._under_way.append(self._sent[-1])


@contextlib.contextmanager
def told() -> Generator[None]:
    """Raises: ExternalError for any OSError within."""
    try:
        yield
    except OSError as error:
        raise ExternalError(f"FileSink: {error}") from error
