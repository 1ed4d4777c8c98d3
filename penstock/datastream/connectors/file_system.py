"""Files as sources and sinks: pyflink.datastream.connectors.file_system."""

from penstock.common.absent import absent
from penstock.datastream.connectors.file_buckets import BucketAssigner
from penstock.datastream.connectors.file_compaction import FileCompactor, FileCompactStrategy
from penstock.datastream.connectors.file_formats import BulkFormat
from penstock.datastream.connectors.file_sink import (
    DefaultRollingPolicy,
    FileSink,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.datastream.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.datastream.connectors.stream_format import StreamFormat
from penstock.datastream.connectors.streaming_file_sink import StreamingFileSink

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
