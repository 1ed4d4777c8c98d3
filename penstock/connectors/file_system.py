"""Files as sources and sinks: pyflink.datastream.connectors.file_system."""

from penstock.common.absent import absent
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.compaction import FileCompactor, FileCompactStrategy
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
from penstock.connectors.stream_format import StreamFormat
from penstock.connectors.streaming_file_sink import StreamingFileSink
from penstock.formats.file_format import BulkFormat

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
