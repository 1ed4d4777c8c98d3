"""StreamExchangeMode. Source: org.apache.flink.streaming.api.transformations.StreamExchangeMode; not in PyFlink."""

from penstock.engine.model.graph.partitioning import StreamExchangeMode

__all__ = ["StreamExchangeMode"]
