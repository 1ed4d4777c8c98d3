"""Sources and sinks: pyflink.datastream.connectors, and what Penstock adds."""

from typing import TYPE_CHECKING

from penstock.common.absent import absent, listing
from penstock.connectors.former_names import ABSENT_CONNECTORS, OF_CONNECTORS
from penstock.datastream.connectors.base import (
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
    WriterContext,
)
from penstock.datastream.connectors.datagen import BatchGeneratorSource, DataGeneratorSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.connectors.sinks import DiscardingSink

if (
    TYPE_CHECKING
):  # Completion and type checkers find them here. A program imports what it asks for.
    from penstock.datastream.connectors.file_system import BucketAssigner as BucketAssigner
    from penstock.datastream.connectors.file_system import (
        FileEnumeratorProvider as FileEnumeratorProvider,
    )
    from penstock.datastream.connectors.file_system import FileSink as FileSink
    from penstock.datastream.connectors.file_system import FileSource as FileSource
    from penstock.datastream.connectors.file_system import FileSourceBuilder as FileSourceBuilder
    from penstock.datastream.connectors.file_system import (
        FileSplitAssignerProvider as FileSplitAssignerProvider,
    )
    from penstock.datastream.connectors.file_system import OutputFileConfig as OutputFileConfig
    from penstock.datastream.connectors.file_system import RollingPolicy as RollingPolicy
    from penstock.datastream.connectors.file_system import StreamFormat as StreamFormat
    from penstock.datastream.connectors.file_system import StreamingFileSink as StreamingFileSink
    from penstock.datastream.connectors.jdbc import JdbcConnectionOptions as JdbcConnectionOptions
    from penstock.datastream.connectors.jdbc import JdbcExecutionOptions as JdbcExecutionOptions
    from penstock.datastream.connectors.jdbc import JdbcSink as JdbcSink
    from penstock.datastream.connectors.kafka import KafkaSource as KafkaSource
    from penstock.datastream.connectors.pulsar import PulsarSource as PulsarSource
    from penstock.datastream.connectors.pulsar import PulsarSourceBuilder as PulsarSourceBuilder
    from penstock.datastream.connectors.pulsar import StartCursor as StartCursor
    from penstock.datastream.connectors.pulsar import StopCursor as StopCursor
    from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig as RMQConnectionConfig
    from penstock.datastream.connectors.rabbitmq import RMQSink as RMQSink
    from penstock.datastream.connectors.rabbitmq import RMQSource as RMQSource

__all__ = [
    "BatchGeneratorSource",
    "Committer",
    "DataGeneratorSource",
    "DeliveryGuarantee",
    "DiscardingSink",
    "NumberSequenceSource",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "WriterContext",
]

__getattr__ = absent(__name__, {}, elsewhere=OF_CONNECTORS, modules=ABSENT_CONNECTORS)
__dir__ = listing(__all__, OF_CONNECTORS)
