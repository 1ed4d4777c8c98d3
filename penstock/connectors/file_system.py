"""Files as sources and sinks: pyflink.datastream.connectors.file_system."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Self

from penstock.common.absent import absent
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import SinkWriter, WriterContext
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.files.hidden_parts import LocalParts
from penstock.connectors.files.parts import IN_PROGRESS, PartStore
from penstock.connectors.files.settings import _SinkSettings
from penstock.connectors.files.sink import (
    DefaultRollingPolicy,
    FileSink,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.connectors.files.source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.connectors.files.writer import FileWriter
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.texts.redaction import without_credentials
from penstock.engine.runtime.interruption import uninterruptible
from penstock.formats.file_access import is_remote
from penstock.formats.file_format import BulkFormat, FileFormat
from penstock.formats.json_lines import JsonLinesFormat
from penstock.formats.text_lines import TextColumnFormat, TextLineFormat

# ---------------------------------------------------------------------- stream format
# The formats that `FileSource.for_record_stream_format` takes. Source:
# pyflink.datastream.connectors.file_system.StreamFormat.


class StreamFormat:
    """Creates formats for `FileSource.for_record_stream_format`."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8", *, as_columns: bool = False) -> FileFormat:
        """Return a format of lines, without their end.

        Args:
            charset_name: the encoding; bytes that are not text become U+FFFD.
            as_columns: gives a column `value` of strings, without a Python object per line. Not in
                PyFlink.
        """
        return TextColumnFormat(charset_name) if as_columns else TextLineFormat(charset_name)

    @staticmethod
    def json_lines_format(
        type_info: TypeInformation | None = None,
        charset_name: str = "UTF-8",
        *,
        timestamps: str | None = None,
    ) -> FileFormat:
        """Return a format with one JSON value per line. Not in PyFlink.

        Args:
            type_info: a ROW type: lines become Rows with its fields, as columns if the types allow
                it.
            charset_name: the encoding.
            timestamps: the LONG field with each record's event time in epoch ms.
        """
        return JsonLinesFormat(type_info, charset_name, timestamps)


# ---------------------------------------------------------------------- streaming file sink
# StreamingFileSink: the older sink of files, for add_sink(). Its files are finished by checkpoints only.
#
# Source: pyflink.datastream.connectors.file_system, Flink StreamingFileSink, Bucket; differs: every
# checkpoint rolls, numbers of files continue after those that are there, and a BATCH job finishes
# its files at its end.


class StreamingFileSink(FileSink):
    """Writes files `<prefix>-<subtask>-<n><suffix>`. Build it: `StreamingFileSink.for_row_format(path, encoder).build()`.

    Until a checkpoint has finished it, a file is called `.<prefix>-<subtask>-<n><suffix>.inprogress.<unique>`. As in
    Flink, files of a streaming job without checkpoints keep such names. FileSink finishes its files in any case.
    """

    def validate(self) -> None:
        if is_remote(self.settings.base_path):
            raise ConfigurationError(
                "StreamingFileSink writes to local and mounted directories only, got "
                f"{without_credentials(self.settings.base_path)!r}. Use FileSink."
            )
        super().validate()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        store = LocalParts(self.settings.base_path, self.settings.token)
        return _StreamingWriter(self.settings, context, store)

    @staticmethod
    def for_row_format(
        base_path: str, encoder: Encoder
    ) -> StreamingFileSink.DefaultRowFormatBuilder:
        """Return a builder of a sink that encodes value by value."""
        return StreamingFileSink.DefaultRowFormatBuilder(base_path, encoder, None)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        """Return a builder of a sink that writes whole batches."""
        return StreamingFileSink.DefaultBulkFormatBuilder(base_path, None, writer_factory)

    class BaseBuilder(FileSink.BaseBuilder):
        """Builds a StreamingFileSink, with the settings of FileSink's builder."""

        def with_rolling_policy(self, policy: RollingPolicy) -> Self:
            """Set when a part file is closed and another one started."""
            super().with_rolling_policy(policy)
            return self

        def build(self) -> StreamingFileSink:
            """Return the sink."""
            return StreamingFileSink(self.settings)

    class DefaultRowFormatBuilder(BaseBuilder, FileSink.RowFormatBuilder):
        """Builds a sink that rolls by the default policy."""

    class DefaultBulkFormatBuilder(BaseBuilder, FileSink.BulkFormatBuilder):
        """Builds a sink that rolls at each checkpoint."""


class _StreamingWriter(FileWriter):
    """Writer of one subtask."""

    def __init__(self, settings: _SinkSettings, context: WriterContext, store: PartStore) -> None:
        super().__init__(settings, context, store)
        self._subtask = context.subtask
        self._finishes_at_end = context.is_batch
        self._parts = 1 + _last_number(settings, context)

    @uninterruptible()
    def prepare_commit(self) -> Sequence[object]:
        """Called at the end of a job without checkpoints: a streaming job leaves its files in progress."""
        committables = super().prepare_commit()
        return committables if self._finishes_at_end else ()

    @uninterruptible()
    def close(self) -> None:
        """Keeps the files: who stops a job without checkpoints finds what it has written. A new attempt removes them."""
        self._discard(is_kept=True)

    def _names(self, folder: str, kind: str = "") -> tuple[str, str]:
        number = self._parts
        self._parts += 1
        final = f"{kind}{_name(self.settings.names, self._subtask, str(number))}"
        unique = f"{self._context.attempt_prefix}.{self._mark}.{number}.{self._writer}"
        return f"{folder}/.{final}{IN_PROGRESS}.{unique}", f"{folder}/{final}"


def _name(names: OutputFileConfig, subtask: int, number: str) -> str:
    return f"{names.part_prefix}-{subtask}-{number}{names.part_suffix}"


def _last_number(settings: _SinkSettings, context: WriterContext) -> int:
    """The largest number of this subtask's files that are there; -1: there are none. In BATCH, files of other attempts in progress do not count."""
    names = settings.names
    finished = (
        rf"{re.escape(names.part_prefix)}-{context.subtask}-(\d+){re.escape(names.part_suffix)}"
    )
    hidden = "" if context.is_batch else rf"|\.{finished}{re.escape(IN_PROGRESS)}\..*"
    pattern = re.compile(finished + hidden)
    numbers = [
        int(next(filter(None, found.groups())))
        for _directory, _subdirectories, files in os.walk(settings.base_path)
        for found in filter(None, map(pattern.fullmatch, files))
    ]
    return max(numbers, default=-1)


# ---------------------------------------------------------------------- file system


__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
]

__getattr__ = absent(
    __name__,
    {},
    (
        "penstock.common",
        "penstock.common.serialization",
        "penstock.datastream.connectors",
        "penstock.datastream.functions",
    ),
)
