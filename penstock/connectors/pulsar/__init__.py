"""Pulsar as a source and as a sink. Needs pulsar-client (`penstock[pulsar]`) where a job runs.

Source: pyflink.datastream.connectors.pulsar.
"""

from penstock.common.absent import absent
from penstock.connectors.pulsar.cursors import RangeGenerator, StartCursor, StopCursor
from penstock.connectors.pulsar.sink import (
    MessageDelayer,
    PulsarSink,
    PulsarSinkBuilder,
    TopicRoutingMode,
)
from penstock.connectors.pulsar.source import PulsarSource, PulsarSourceBuilder

__all__ = [
    "MessageDelayer",
    "PulsarSink",
    "PulsarSinkBuilder",
    "PulsarSource",
    "PulsarSourceBuilder",
    "RangeGenerator",
    "StartCursor",
    "StopCursor",
    "TopicRoutingMode",
]

__getattr__ = absent(
    __name__,
    {},
    ("penstock.common", "penstock.datastream.connectors"),
)
