"""Pulsar as a source and as a sink. Needs pulsar-client (`penstock[pulsar]`) where a job runs.

Source: pyflink.datastream.connectors.pulsar.
"""

from penstock.common.absent import absent
from penstock.datastream.connectors.pulsar.cursors import RangeGenerator, StartCursor, StopCursor
from penstock.datastream.connectors.pulsar.routing import MessageDelayer, TopicRoutingMode
from penstock.datastream.connectors.pulsar.sink import PulsarSink, PulsarSinkBuilder
from penstock.datastream.connectors.pulsar.source import PulsarSource, PulsarSourceBuilder

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
