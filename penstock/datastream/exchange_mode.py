"""StreamExchangeMode. Source: org.apache.flink.streaming.api.transformations.StreamExchangeMode; PyFlink has none."""

from penstock.model.graph.partitioning import StreamExchangeMode

__all__ = ["StreamExchangeMode"]
