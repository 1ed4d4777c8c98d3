"""Sources and sinks: pyflink.datastream.connectors, and what Penstock adds."""

from penstock.common.absent import absent
from penstock.datastream.building.former_names import OF_CONNECTORS
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

__getattr__ = absent(__name__, {}, elsewhere=OF_CONNECTORS)
