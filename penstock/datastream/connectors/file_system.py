"""Files as sources and sinks: pyflink.datastream.connectors.file_system."""

from penstock.common.absent import absent
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

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            ("FileCompactStrategy", "FileCompactor"),
            "Files are not put together afterwards; a larger part size gives fewer: with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=...)).",
        ),
        **dict.fromkeys(
            ("DefaultRollingPolicy", "OnCheckpointRollingPolicy"),
            "RollingPolicy makes them: default_rolling_policy() and on_checkpoint_rolling_policy().",
        ),
        "StreamingFileSink": "Flink has dropped it, too: use FileSink with sink_to().",
    },
    (
        "penstock.common",
        "penstock.common.serialization",
        "penstock.datastream.connectors",
        "penstock.datastream.functions",
    ),
)
