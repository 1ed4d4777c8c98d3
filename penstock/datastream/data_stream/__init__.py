"""Streams, what ends them, and results on the client: pyflink.datastream.data_stream."""

from penstock.datastream.data_stream.cached import CachedDataStream
from penstock.datastream.data_stream.connected import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.data_stream.iterator import CloseableIterator
from penstock.datastream.data_stream.keyed_stream import KeyedStream
from penstock.datastream.data_stream.sink import DataStreamSink
from penstock.datastream.data_stream.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]
