"""Files as sources and sinks: pyflink.datastream.connectors.file_system."""

from penstock.common.absent import absent
from penstock.datastream.connectors.files.buckets import BucketAssigner
from penstock.datastream.connectors.files.compaction import FileCompactor, FileCompactStrategy
from penstock.datastream.connectors.files.sink import (
    DefaultRollingPolicy,
    FileSink,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.datastream.connectors.files.source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.datastream.connectors.stream_format import StreamFormat
from penstock.datastream.connectors.streaming_file_sink import StreamingFileSink
from penstock.datastream.formats.file_format import BulkFormat

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
