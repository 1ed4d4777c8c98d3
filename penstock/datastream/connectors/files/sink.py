"""FileSink: part files in a directory or an object store, visible when the job commits.

Source: Flink FileSink; differs: every checkpoint rolls. Where parts lie before their commit, and what a commit does, is the matter
of a PartStore.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.setting_checks import check_kind
from penstock.datastream.connectors.base import (
    Accepts,
    Committer,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
    WriterContext,
)
from penstock.datastream.connectors.files.buckets import BucketAssigner
from penstock.datastream.connectors.files.compaction import FileCompactor, FileCompactStrategy
from penstock.datastream.connectors.files.parts import Part
from penstock.datastream.connectors.files.places import store_of
from penstock.datastream.connectors.files.settings import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
    _SinkSettings,
)
from penstock.datastream.connectors.files.writer import FileWriter
from penstock.datastream.formats.file_listing import local_path
from penstock.model.errors import ConfigurationError

__all__ = [
    "DefaultRollingPolicy",
    "FileSink",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
]


class FileSink(Sink, SupportsPreprocessing):
    """Writes files. Build it: `FileSink.for_row_format(path, encoder).build()`."""

    def __init__(self, settings: _SinkSettings) -> None:
        self._settings = settings
        self.accepts = Accepts.ROWS if settings.bulk is None else settings.bulk.accepts
        self.is_converting = settings.bulk is None

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
