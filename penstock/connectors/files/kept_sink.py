"""A sink of files that only this user may read: results that the program itself reads back.

Files of a FileSink are for others, too, and have the mode that the umask gives. Source: none.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.api.base import SinkWriter, WriterContext
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.hidden_parts import LocalParts
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.writer import FileWriter
from penstock.engine.hosting.os import private_files


class KeptSink(FileSink):
    """Writes into one folder. Make it with `kept_sink`."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        store = _PrivateParts(self.settings.base_path, self.settings.token)
        return FileWriter(self.settings, context, store)


class _PrivateParts(LocalParts):
    def new_file(self, path: str) -> BinaryIO:
        return os.fdopen(private_files.new_file(path), "wb")


class _Builder(FileSink.BulkFormatBuilder):
    def build(self) -> FileSink:
        return KeptSink(self.settings)


def kept_sink(folder: str, writers: BulkWriterFactory) -> FileSink:
    """Return a sink into a folder that is there and is this user's alone."""
    builder = _Builder(folder, None, writers)
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
