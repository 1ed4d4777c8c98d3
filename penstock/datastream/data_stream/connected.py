"""Streams that are processed together. Two-input operators are not built yet: each method says so.

Source: pyflink.datastream.data_stream.ConnectedStreams.
"""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.model.errors import GraphError


class ConnectedStreams:
    """Two streams; `connect` is accepted so that the error names the operation that is missing."""

    def __init__(self, stream1: Any, stream2: Any) -> None:
        if stream1.get_execution_environment() is not stream2.get_execution_environment():
            raise GraphError("connect: the streams belong to different environments.")
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: Any = None
    ) -> ConnectedStreams:
        keyed1 = self.stream1.key_by(key_selector1, key_type)
        return ConnectedStreams(keyed1, self.stream2.key_by(key_selector2, key_type))

    def map(self, func: Any, output_type: Any = None) -> NoReturn:
        _not_yet("map")

    def flat_map(self, func: Any, output_type: Any = None) -> NoReturn:
        _not_yet("flat_map")

    def process(self, func: Any, output_type: Any = None) -> NoReturn:
        _not_yet("process")


class BroadcastStream:
    """A stream whose elements reach all subtasks' broadcast state; not built yet."""

    def __init__(self, input_stream: Any, broadcast_state_descriptors: list[Any]) -> None:
        _not_yet("broadcast state")


class BroadcastConnectedStream:
    """A stream with a broadcast side; not built yet."""

    def __init__(
        self,
        non_broadcast_stream: Any,
        broadcast_stream: Any,
        broadcast_state_descriptors: list[Any],
    ) -> None:
        _not_yet("broadcast state")


def _not_yet(what: str) -> NoReturn:
    raise NotImplementedError(
        f"connected streams: {what} is not built yet. Until then tag the records "
        "(`a.map(lambda v: (1, v)).union(b.map(lambda v: (2, v)))`) and use one "
        "key_by(...).process(...)."
    )
