"""NATS JetStream as a source and as a sink. Needs nats-py (`penstock[nats]`) where a job is made and where it runs."""

from penstock.connectors.nats.sink import JetStreamSink
from penstock.connectors.nats.source import JetStreamSource

__all__ = ["JetStreamSink", "JetStreamSource"]
