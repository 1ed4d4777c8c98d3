"""StreamExchangeMode. Source: org.apache.flink.streaming.api.transformations.StreamExchangeMode; not in PyFlink."""

from penstock.model.graph.partitioning import StreamExchangeMode

__all__ = ["StreamExchangeMode"]
