"""Connected streams: one function, with a method for each of two streams, processes both.

Source: pyflink.datastream.data_stream.ConnectedStreams, BroadcastConnectedStream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, cast

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import built, check_together
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.data_stream.keyed_stream import KeyedStream
from penstock.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from penstock.datastream.functions.broadcast import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from penstock.datastream.functions.type_variables import T1, T2, K, R, T
from penstock.engine.model.errors import GraphError
from penstock.engine.model.types import is_pickled
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.records.columns import Column
from penstock.engine.runtime.state.descriptors import MapStateDescriptor


class ConnectedStreams(Generic[T1, T2]):
    """Two streams that one function processes, as `connect` returns them.

    Both are keyed, or neither.
    """

    def __init__(self, stream1: DataStream[T1], stream2: DataStream[T2]) -> None:
        if not isinstance(stream2, DataStream):
            raise TypeError(f"connect takes a DataStream, got {type(stream2).__name__}.")
        check_together("connect", stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[T1], K] | KeySelector[T1, K] | Column,
        key_selector2: Callable[[T2], K] | KeySelector[T2, K] | Column,
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams[T1, T2]:
        """Partition both streams by key: equal keys share a subtask and its keyed state.

        Args:
            key_selector1: the key of the first stream's records: a function or a KeySelector.
            key_selector2: the key of the second stream's records.
            key_type: the type of both keys.
        """
        key1, key2 = (
            cast("Callable[[Any], K]", key_selector1),
            cast("Callable[[Any], K]", key_selector2),
        )
        keyed1 = self.stream1.key_by(key1, key_type)
        return ConnectedStreams(keyed1, self.stream2.key_by(key2, key_type))

    def map(
        self, func: CoMapFunction[T1, T2, R], output_type: TypeInformation | None = None
    ) -> DataStream[R]:
        """Call `map1` or `map2` of a CoMapFunction for each record, and emit its one result."""
        function, keys = adapt.method_of(func, CoMapFunction, "map1", "Co-Map"), self._keys()
        if keys is None:
            return self._then("Co-Map", ops.CoMapOperator(function), output_type)
        return self._then("Co-Map", ops.KeyedCoMapOperator(function, keys), output_type)

    def flat_map(
        self, func: CoFlatMapFunction[T1, T2, R], output_type: TypeInformation | None = None
    ) -> DataStream[R]:
        """Call `flat_map1` or `flat_map2` of a CoFlatMapFunction, and emit each result."""
        function = adapt.method_of(func, CoFlatMapFunction, "flat_map1", "Co-Flat Map")
        keys = self._keys()
        if keys is None:
            return self._then("Co-Flat Map", ops.CoFlatMapOperator(function), output_type)
        return self._then("Co-Flat Map", ops.KeyedCoFlatMapOperator(function, keys), output_type)

    def process(
        self,
        func: CoProcessFunction[T1, T2, R] | KeyedCoProcessFunction[Any, T1, T2, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call `process_element1` or `process_element2` for each record.

        Args:
            func: a CoProcessFunction; on keyed streams also a KeyedCoProcessFunction, with state
                and timers.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        keys = self._keys()
        if keys is None:
            function = adapt.method_of(func, CoProcessFunction, "process_element1", "Co-Process")
            return self._then("Co-Process", ops.CoProcessOperator(function), output_type)
        function = adapt.keyed_co_process_function(func, "Keyed Co-Process")
        keyed = ops.KeyedCoProcessOperator(function, keys)
        return self._then("Keyed Co-Process", keyed, output_type)

    def _keys(self) -> tuple[KeySelection, KeySelection] | None:
        """The keys of both streams; None: no stream is keyed.

        Raises: GraphError: only one stream is keyed, or the keys are of different types.
        """
        keys = [
            stream.plumbing.keys
            for stream in (self.stream1, self.stream2)
            if isinstance(stream, KeyedStream)
        ]
        if len(keys) == 1:
            raise GraphError(
                f"{built('connect')}: one stream is keyed, the other is not. Key both: "
                "a.connect(b).key_by(selector_of_a, selector_of_b)."
            )
        types = [one.key_type for one in keys if not is_pickled(one.key_type)]
        if len(types) == 1 or types[:1] != types[1:]:
            raise GraphError(
                f"connect: the keys are of different types, {keys[0].key_type or 'pickled'} and "
                f"{keys[1].key_type or 'pickled'}, so equal keys would not meet. Give both key_by "
                f"the same key_type. {built('connect')}."
            )
        return (keys[0], keys[1]) if keys else None

    def _then(
        self, name: str, operator: Operator, output_type: TypeInformation | None
    ) -> DataStream[Any]:
        first, second = self.stream1.plumbing, self.stream2.plumbing
        return DataStream(first.add_operator(name, operator, output_type, second))


@dataclass(frozen=True, slots=True)
class BroadcastStream(Generic[T]):
    """A stream for `other.connect(...)`, as `broadcast(descriptor, ...)` returns it.

    All subtasks of the connected operator get its records.
    """

    input_stream: DataStream[T]
    broadcast_state_descriptors: list[MapStateDescriptor]


class BroadcastConnectedStream(Generic[T1, T2]):
    """A stream, keyed or not, connected with a broadcast stream."""

    def __init__(
        self,
        non_broadcast_stream: DataStream[T1],
        broadcast_stream: BroadcastStream[T2],
        broadcast_state_descriptors: list[MapStateDescriptor],
    ) -> None:
        check_together("connect", non_broadcast_stream, broadcast_stream.input_stream)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors

    def process(
        self,
        func: BroadcastProcessFunction[T1, T2, R] | KeyedBroadcastProcessFunction[Any, T1, T2, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Call the function for the records of both sides.

        Args:
            func: a KeyedBroadcastProcessFunction if the stream is keyed, else a
                BroadcastProcessFunction.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        stream = self.non_broadcast_stream
        names = tuple(descriptor.get_name() for descriptor in self.broadcast_state_descriptors)
        types = tuple(descriptor.type_info for descriptor in self.broadcast_state_descriptors)
        operator: Operator
        name = "Co-Process-Broadcast"
        if isinstance(stream, KeyedStream):
            name = f"Keyed-{name}"
            kind = KeyedBroadcastProcessFunction
            function = adapt.method_of(func, kind, "process_element", name)
            operator = ops.KeyedBroadcastProcessOperator(
                function, stream.plumbing.keys, names, types
            )
        else:
            function = adapt.method_of(func, BroadcastProcessFunction, "process_element", name)
            operator = ops.BroadcastProcessOperator(function, names, types)
        to_all = self.broadcast_stream.input_stream.plumbing
        return DataStream(stream.plumbing.add_operator(name, operator, output_type, to_all))
