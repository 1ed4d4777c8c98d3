"""Tables of Delta Lake and Iceberg: sinks that write exactly once, sources that read a snapshot or follow new ones."""

from penstock.connectors.lakehouse.delta import DeltaSink
from penstock.connectors.lakehouse.delta_source import DeltaSource
from penstock.connectors.lakehouse.iceberg import IcebergSink
from penstock.connectors.lakehouse.iceberg_source import IcebergSource, StreamingStartingStrategy

__all__ = ["DeltaSink", "DeltaSource", "IcebergSink", "IcebergSource", "StreamingStartingStrategy"]
