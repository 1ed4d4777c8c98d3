"""FileSink: part files in a directory or an object store, visible when the job commits.

Source: Flink FileSink; differs: every checkpoint rolls. Where parts lie before their commit, and what a commit does, is the matter
of a PartStore.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, BinaryIO

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
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.files.hidden_parts import ArrowParts, LocalParts
from penstock.connectors.files.parts import Part, PartOutput, PartStore
from penstock.connectors.files.settings import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
    _SinkSettings,
)
from penstock.connectors.files.uploads import SENT_AT_ONCE, UploadOutput, UploadParts, told
from penstock.connectors.files.writer import FileWriter
from penstock.engine.hosting.os.s3_objects import KNOWN, S3Objects, s3_objects
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.setting_checks import check_kind
from penstock.formats.file_access import Address, is_remote
from penstock.formats.file_listing import local_path

# ---------------------------------------------------------------------- hidden uploads
# Parts as hidden objects of S3, for a sink that reads them again: one that compacts. The commit
# renames, which copies.
#
# boto3 writes, renames and removes them: Arrow leaves empty objects behind what it removes,
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
        with told():
            self._objects.rename(source, target)

    def _remove(self, path: str) -> None:
        with told():
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
        with told():
            self._objects.complete_upload(self._part.hidden, upload.upload_id, upload.etags)
        self._is_there = True
        return self._part

    def discard(self, *, is_kept: bool = False) -> None:
        if not self._is_there:
            self._upload.discard(is_kept=is_kept)
        elif not is_kept:
            with told():
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
            f"FileSink: the query of {address.shown!r} has parameters that boto3 is not told that "
            f"way. Expected only {', '.join(sorted(KNOWN))}. Set others by the environment or the "
            "file of AWS's settings."
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
        self._settings = settings
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

    class BaseBuilder:
        """Builds a FileSink; the setters return the builder."""

        def __init__(
            self, base_path: str, encoder: Encoder | None, bulk: BulkWriterFactory | None
        ) -> None:
            rolling = RollingPolicy.default_rolling_policy() if bulk is None else RollingPolicy()
            self._settings = _SinkSettings(
                base_path=local_path(str(base_path)),
                encoder=encoder,
                bulk=bulk,
                token=uuid.uuid4().hex[:8],
                buckets=BucketAssigner.date_time_bucket_assigner(),
                rolling=rolling,
                names=OutputFileConfig(),
            )

        def with_bucket_check_interval(self, interval: int) -> FileSink.BaseBuilder:
            """Accept an interval, and ignore it: the rolling policy is checked with every batch."""
            return self

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSink.BaseBuilder:
            """Set what chooses the directory; by default one per hour."""
            example = "BucketAssigner.base_path_bucket_assigner()"
            check_kind("with_bucket_assigner", bucket_assigner, BucketAssigner, example)
            self._settings = replace(self._settings, buckets=bucket_assigner)
            return self

        def with_output_file_config(
            self, output_file_config: OutputFileConfig
        ) -> FileSink.BaseBuilder:
            """Set prefix and suffix of the files."""
            example = "OutputFileConfig.builder().build()"
            check_kind("with_output_file_config", output_file_config, OutputFileConfig, example)
            self._settings = replace(self._settings, names=output_file_config)
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSink.BaseBuilder:
            """Set when a part file is closed and another one started."""
            example = "RollingPolicy.default_rolling_policy()"
            check_kind("with_rolling_policy", rolling_policy, RollingPolicy, example)
            self._settings = replace(self._settings, rolling=rolling_policy)
            return self

        def enable_compact(
            self, strategy: FileCompactStrategy, compactor: FileCompactor
        ) -> FileSink.BaseBuilder:
            """Merge a subtask's part files as the strategy says; until then they are hidden."""
            bulk = self._settings.bulk
            if bulk is not None and compactor.concatenates and not bulk.can_be_concatenated:
                raise ConfigurationError(
                    f"FileSink: files of {type(bulk).__name__} are damaged when they are "
                    "concatenated. Make the parts larger with a longer checkpoint interval, or "
                    "write a row format."
                )
            self._settings = replace(self._settings, compaction=(strategy, compactor))
            return self

        def disable_compact(self) -> FileSink.BaseBuilder:
            """Make part files visible that wait, in a restored checkpoint, for compaction."""
            self._settings = replace(self._settings, compaction=None)
            return self

        def build(self) -> FileSink:
            """Return the sink."""
            return FileSink(self._settings)

    class RowFormatBuilder(BaseBuilder):
        """Builds a sink that rolls by the default policy."""

    class BulkFormatBuilder(BaseBuilder):
        """Builds a sink that rolls at each checkpoint."""

    def validate(self) -> None:
        store_of(self._settings).check()

    def validate_input(self, input_type: Any) -> None:
        self._settings.buckets.check_input(input_type)

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the writers compact their files themselves."""
        return None

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return FileWriter(self._settings, context, store_of(self._settings))

    def create_committer(self) -> Committer:
        return _FileCommitter(self._settings)


class _FileCommitter(Committer):
    """Makes parts visible in the store of the sink."""

    def __init__(self, settings: _SinkSettings) -> None:
        self._settings = settings

    def commit(self, committables: Sequence[object]) -> None:
        """Make the parts visible.

        Raises:
            ExternalError: a part is gone, or another file has its name; then no part is made visible.
        """
        store_of(self._settings).commit([Part.of(one) for one in committables])

    def abort(self, job_prefix: str) -> None:
        store_of(self._settings).abort(job_prefix, self.operator_id)
