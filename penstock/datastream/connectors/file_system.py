"""Files as sources and sinks: pyflink.datastream.connectors.file_system."""

from penstock.datastream.connectors.file_formats import BulkFormat, StreamFormat
from penstock.datastream.connectors.file_sink import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from penstock.datastream.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
