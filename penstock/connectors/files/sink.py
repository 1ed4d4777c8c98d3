"""FileSink: part files in a directory or an object store, visible when the job commits.

Source: Flink FileSink; differs: every checkpoint rolls. Where parts lie before their commit, and what a commit does, is the matter
of a PartStore.
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
from typing import Any, BinaryIO, Final, Self, cast

from penstock.common.extras import extra
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.connectors.api.base import (
    Accepts,
    Committer,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterContext,
)
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.files.hidden_parts import ArrowParts, LocalParts
from penstock.connectors.files.parts import CountedOutput, Part, PartOutput, PartStore, Upload
from penstock.connectors.files.settings import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
    _SinkSettings,
)
from penstock.connectors.files.writer import FileWriter
from penstock.engine.hosting.os.s3_objects import KNOWN, S3Objects, s3_objects
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.setting_checks import check_kind
from penstock.formats.file_access import Address, is_remote, reached
from penstock.formats.file_format import local_path

# ---------------------------------------------------------------------- upload keys
# Keys of a FileSink's objects in S3, which show whose uploads they are.
#
# Servers list uploads by their keys and nothing else. So the UUID in the name of a part holds, as
# hexadecimal digits, what the hidden names of files say in letters: the sink (12), the subtask
# (4), the attempt (3), the checkpoint that its writer had prepared for last when it began the
# file (7), and the writer (6). An upload of an older attempt that was begun after checkpoint 7
# belongs to checkpoint 8 or a later one, so no job that restores checkpoint 7 commits it.
# In a BATCH job all attempts of a subtask give the same names, of which one is
# committed. Their attempt is `fff`.


_MOST_SUBTASKS: Final = 0xFFFF
_OF_BATCH: Final = 0xFFF
_MOST_CHECKPOINTS: Final = 0xFFFFFFF
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class UploadKey:
    """`sink`: of a job and the uid of its operator. `restored_id`: a checkpoint."""

    sink: str
    subtask: int
    attempt: int
    restored_id: int
    writer: str

    @staticmethod
    def of(context: WriterContext, restored_id: int) -> UploadKey:
        """Return the key of files that this writer begins after a checkpoint."""
        sink = sink_of(context.job_prefix, context.operator_id)
        subtask = min(context.subtask, _MOST_SUBTASKS)
        if context.is_batch:
            return UploadKey(sink, subtask, _OF_BATCH, 0, "0" * 6)
        # Uploads with a number that is cut are never taken for leftovers.
        attempt = min(context.attempt, _OF_BATCH - 1)
        return UploadKey(
            sink, subtask, attempt, min(restored_id, _MOST_CHECKPOINTS), uuid.uuid4().hex[:6]
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
        digits = (
            f"{self.sink}{self.subtask:04x}{self.attempt:03x}{self.restored_id:07x}{self.writer}"
        )
        return str(uuid.UUID(hex=digits))

    def is_left(self, context: WriterContext) -> bool:
        """Whether the subtask, or one whose work it continues, began it in an older attempt, and nobody will commit it."""
        restored = context.restored_checkpoint_id or 0
        return (
            self.sink == sink_of(context.job_prefix, context.operator_id)
            and self.attempt < min(context.attempt, _OF_BATCH - 1)
            and restored <= self.restored_id < _MOST_CHECKPOINTS
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
"""After this number of parts they become twice as large, so that the 10,000 of an upload suffice
for 5 TiB.
"""
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

    def unique_name(self, context: WriterContext, mark: str, restored_id: int) -> str:
        return str(UploadKey.of(context, restored_id))

    def create(self, hidden: str, final: str) -> PartOutput:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SENT_AT_ONCE, "s3-upload")
        return UploadOutput(self._objects, final, self._threads)

    def kept(self, part: Part, checkpoint_id: int) -> Part:
        return part

    def drop(self, part: Part) -> None:
        if part.upload is not None:
            with clear_errors():
                self._objects.drop_upload(part.final, part.upload.upload_id)

    def drop_leftovers(self, context: WriterContext) -> None:
        self._drop_where(lambda key: key.is_left(context))

    def commit(self, parts: Sequence[Part]) -> None:
        with clear_errors(), ThreadPoolExecutor(COMMITTED_AT_ONCE, "s3-commit") as threads:
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
        with clear_errors():
            if self._waiting or not self._sent:
                self._send(bytes(self._waiting))
                self._waiting = bytearray()
        return self.file.tell()

    def finish(self) -> Part:
        assert self._upload is not None, "it was sealed"
        with clear_errors():
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
                one.exception()  # waits: a part that comes after the drop would stay
        with contextlib.suppress(OSError):
            self._objects.drop_upload(self._path, upload.result())

    def _take(self, data: bytes) -> None:
        self._waiting += data
        most = PART_BYTES << (len(self._sent) // PARTS_OF_A_SIZE)
        while len(self._waiting) >= most:
            with clear_errors():
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
def clear_errors() -> Generator[None]:
    """Raises: ExternalError for any OSError within."""
    try:
        yield
    except OSError as error:
        raise ExternalError(f"FileSink: {error}") from error


# ---------------------------------------------------------------------- hidden uploads
# Parts as hidden objects of S3, for a sink that reads them again: one that compacts. The commit
# renames, which copies.
#
# boto3 writes, renames and removes them: Arrow leaves empty objects where it removes some,
# copies no object of more than 5 GiB, and writes in a way that some servers take for the content.


class HiddenUploads(ArrowParts):
    """In a bucket. Arrow lists it."""

    def __init__(self, address: Address, token: str, objects: S3Objects) -> None:
        super().__init__(address, token)
        self._at = address
        self._objects = objects
        self._threads: ThreadPoolExecutor | None = None

    def check(self) -> None:
        UploadParts(self._at, self._objects).check()

    def create(self, hidden: str, final: str) -> PartOutput:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SENT_AT_ONCE, "s3-upload")
        return _ObjectOutput(self._objects, hidden, final, self._threads)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _rename(self, source: str, target: str) -> None:
        with clear_errors():
            self._objects.rename(source, target)

    def _remove(self, path: str) -> None:
        with clear_errors():
            self._objects.remove(path)


class _ObjectOutput:
    """An object that is there, under its hidden name, when it is finished."""

    def __init__(
        self, objects: S3Objects, hidden: str, final: str, threads: ThreadPoolExecutor
    ) -> None:
        self._objects = objects
        self._part = Part(hidden, final)
        self._upload = UploadOutput(objects, hidden, threads)
        self._is_there = False
        self.file: BinaryIO = self._upload.file

    def seal(self) -> int:
        return self._upload.seal()

    def finish(self) -> Part:
        upload = self._upload.finish().upload
        assert upload is not None, "it is one"
        with clear_errors():
            self._objects.complete_upload(self._part.hidden, upload.upload_id, upload.etags)
        self._is_there = True
        return self._part

    def discard(self, *, is_kept: bool = False) -> None:
        if not self._is_there:
            self._upload.discard(is_kept=is_kept)
        elif not is_kept:
            with clear_errors():
                self._objects.remove(self._part.hidden)


# ---------------------------------------------------------------------- sink


__all__ = [
    "DefaultRollingPolicy",
    "FileSink",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
]


def store_of(settings: _SinkSettings) -> PartStore:
    """Return the store of a sink. A sink that compacts writes hidden objects: the parts that wait have to be read, and an
    upload cannot be read before it is completed.

    Raises: ConfigurationError: there is no store for its path, or this Python has no client for it.
    """
    if not is_remote(settings.base_path):
        return LocalParts(settings.base_path, settings.token)
    address = Address.of(settings.base_path)
    if address.scheme != "s3":
        return ArrowParts(address, settings.token)
    extra("boto3", "s3", "FileSink to 's3:'")
    objects = s3_objects(str(address))
    if objects is None:
        raise ConfigurationError(
            f"FileSink: the query of {address.shown!r} has parameters that boto3 does not take "
            f"from it. Expected only {', '.join(sorted(KNOWN))}. Set others by the environment or "
            "the file of AWS's settings."
        )
    if not address.netloc.rpartition("@")[2]:
        raise ConfigurationError(
            f"FileSink: {address.shown!r} names no bucket. Expected s3://bucket/path."
        )
    if settings.compaction is not None:
        return HiddenUploads(address, settings.token, objects)
    return UploadParts(address, objects)


class FileSink(Sink, SupportsPreprocessing):
    """Writes files. Build it: `FileSink.for_row_format(path, encoder).build()`."""

    def __init__(self, settings: _SinkSettings) -> None:
        self.settings = settings
        self.accepts = Accepts.ROWS if settings.bulk is None else settings.bulk.accepts
        self.is_converting = settings.bulk is None or settings.bulk.is_converting

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Return a builder of a sink that encodes value by value."""
        check_kind("for_row_format", encoder, Encoder, "Encoder.simple_string_encoder()")
        return FileSink.RowFormatBuilder(base_path, encoder, None)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> FileSink.BulkFormatBuilder:
        """Return a builder of a sink that writes whole batches, as in Parquet."""
        example = "ParquetBulkWriters.for_row_type(row_type)"
        check_kind("for_bulk_format", writer_factory, BulkWriterFactory, example)
        return FileSink.BulkFormatBuilder(base_path, None, writer_factory)

    class BaseBuilder(SettingsBuilder):
        """Builds a FileSink; the setters return the builder."""

        def __init__(
            self, base_path: str, encoder: Encoder | None, bulk: BulkWriterFactory | None
        ) -> None:
            rolling = RollingPolicy.default_rolling_policy() if bulk is None else RollingPolicy()
            super().__init__(
                _SinkSettings(
                    base_path=local_path(str(base_path)),
                    encoder=encoder,
                    bulk=bulk,
                    token=uuid.uuid4().hex[:8],
                    buckets=BucketAssigner.date_time_bucket_assigner(),
                    rolling=rolling,
                    names=OutputFileConfig(),
                )
            )

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Accept an interval, and ignore it: the rolling policy is checked with every batch."""
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Set what chooses the directory; by default one per hour."""
            example = "BucketAssigner.base_path_bucket_assigner()"
            check_kind("with_bucket_assigner", bucket_assigner, BucketAssigner, example)
            return self._with(buckets=bucket_assigner)

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Set prefix and suffix of the files."""
            example = "OutputFileConfig.builder().build()"
            check_kind("with_output_file_config", output_file_config, OutputFileConfig, example)
            return self._with(names=output_file_config)

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Set when a part file is closed and another one started."""
            example = "RollingPolicy.default_rolling_policy()"
            check_kind("with_rolling_policy", rolling_policy, RollingPolicy, example)
            return self._with(rolling=rolling_policy)

        def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
            """Merge a subtask's part files as the strategy says; until then they are hidden."""
            bulk = self.settings.bulk
            if bulk is not None and compactor.concatenates and not bulk.can_be_concatenated:
                raise ConfigurationError(
                    f"FileSink: files of {type(bulk).__name__} are damaged when they are "
                    "concatenated. Make the parts larger with a longer checkpoint interval, or "
                    "write a row format."
                )
            return self._with(compaction=(strategy, compactor))

        def disable_compact(self) -> Self:
            """Make part files visible that wait, in a restored checkpoint, for compaction."""
            return self._with(compaction=None)

        def build(self) -> FileSink:
            """Return the sink."""
            return FileSink(self.settings)

    class RowFormatBuilder(BaseBuilder):
        """Builds a sink that rolls by the default policy."""

    class BulkFormatBuilder(BaseBuilder):
        """Builds a sink that rolls at each checkpoint."""

    def validate(self) -> None:
        store_of(self.settings).check()

    def validate_input(self, input_type: Any) -> None:
        buckets, bulk = self.settings.buckets, self.settings.bulk
        buckets.check_input(input_type)
        if bulk is not None:
            bulk.check_input(buckets.written_type(input_type))

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the writers compact their files themselves."""
        return None

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return FileWriter(self.settings, context, store_of(self.settings))

    def create_committer(self) -> Committer:
        return _FileCommitter(self.settings)


class _FileCommitter(Committer):
    """Makes parts visible in the store of the sink."""

    def __init__(self, settings: _SinkSettings) -> None:
        self.settings = settings

    def commit(self, committables: Sequence[object]) -> None:
        """Make the parts visible.

        Raises:
            ExternalError: a part is gone, or another file has its name; then no part is made visible.
        """
        store_of(self.settings).commit([Part.of(one) for one in committables])

    def abort(self, job_prefix: str) -> None:
        store_of(self.settings).abort(job_prefix, self.operator_id)
