"""Streams, what ends them, and results on the client: pyflink.datastream.data_stream.

The modules of the stream classes import each other in a circle; no other modules of Penstock do. `map` of a KeyedStream
returns a DataStream, whose `key_by` returns a KeyedStream, and so on with windows, joins, connected and cached streams.
A fluent API needs this circle; PyFlink has it in one module. The circle stays in this folder: imports that would close
it are inside functions, and streams use the environment through `building/stream_plumbing.py`.
`tests/test_import_circles.py` finds any other circle.
"""

from penstock.common.absent import absent
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

__getattr__ = absent(
    __name__,
    {},
    (
        "penstock.common",
        "penstock.common.typeinfo",
        "penstock.common.watermark_strategy",
        "penstock.datastream.functions",
        "penstock.datastream.state",
        "penstock.datastream.window",
        "penstock.datastream.output_tag",
        "penstock.datastream.slot_sharing_group",
        "penstock.datastream.connectors",
    ),
)
