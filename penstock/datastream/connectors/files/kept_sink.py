"""A sink of files that only this user may read: results that the program itself reads back.

Files of a FileSink are for others, too, and have the mode that the umask gives. Source: none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from penstock.common.serialization import BulkWriterFactory
from penstock.datastream.connectors.base import SinkWriter, WriterContext
from penstock.datastream.connectors.files.buckets import BucketAssigner
from penstock.datastream.connectors.files.sink import FileSink, _FileWriter
from penstock.hosting import private_files


class KeptSink(FileSink):
    """Writes into one folder. Make it with `kept_sink`."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _KeptWriter(self._settings, context)


class _KeptWriter(_FileWriter):
    def _create(self, hidden: Path) -> BinaryIO:
        return os.fdopen(private_files.new_file(hidden), "wb")


class _Builder(FileSink.BulkFormatBuilder):
    def build(self) -> FileSink:
        return KeptSink(self._settings)


def kept_sink(folder: str, writers: BulkWriterFactory) -> FileSink:
    """Return a sink into a folder that is there and is this user's alone."""
    builder = _Builder(folder, None, writers)
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
