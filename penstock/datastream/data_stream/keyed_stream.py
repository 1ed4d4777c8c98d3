"""KeyedStream: a stream partitioned by key. Its operators have keyed state and timers.

Source: pyflink.datastream.data_stream.KeyedStream; differs: the key is not carried in the record,
so there is no map that adds it and none that takes it off.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.common.typeinfo import TypeInformation, Types
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import check_field
from penstock.datastream.building.stream_plumbing import KeyedPlumbing
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.data_stream.sink import DataStreamSink
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
)
from penstock.model.errors import GraphError
from penstock.model.graph.partitioning import StreamExchangeMode
from penstock.runtime import operators as ops
from penstock.runtime.operator import Operator
from penstock.runtime.records.columns import Column
from penstock.runtime.sink import Sink

if TYPE_CHECKING:
    from penstock.datastream.data_stream.joins import IntervalJoin
    from penstock.datastream.data_stream.windowed_stream import WindowedStream
    from penstock.datastream.window import WindowAssigner


class KeyedStream(DataStream):
    """Made by key_by."""

    class AccumulateType(Enum):
        """The kinds of rolling aggregation."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    plumbing: KeyedPlumbing

    def __init__(self, plumbing: KeyedPlumbing) -> None:
        super().__init__(plumbing)

    def with_exchange_mode(self, mode: StreamExchangeMode) -> KeyedStream:
        return KeyedStream(self.plumbing.with_exchange_mode(StreamExchangeMode(mode)))

    # ---------------------------------------------------------- operators with keyed state

    def map(
        self,
        func: Callable[[Any], Any] | MapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._then(
            "Map", ops.KeyedMapOperator(adapt.map_function(func), self.plumbing.keys), output_type
        )

    def flat_map(
        self,
        func: Callable[[Any], Any] | FlatMapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        operator = ops.KeyedFlatMapOperator(adapt.flat_map_function(func), self.plumbing.keys)
        return self._then("FlatMap", operator, output_type)

    def filter(self, func: Callable[[Any], Any] | FilterFunction[Any] | Column) -> DataStream:
        if isinstance(func, Column):
            return self._without_key().filter(func)
        operator = ops.KeyedFilterOperator(adapt.filter_function(func), self.plumbing.keys)
        return self._then("Filter", operator, self.plumbing.element_type)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """A running result per element; the first of a key passes unchanged."""
        made = ops.StatefulReduceOperator if adapt.has_open(func) else ops.ReduceOperator
        operator: Operator = made(adapt.reduce_function(func), self.plumbing.keys)
        return self._then("Reduce", operator, self.plumbing.element_type)

    def process(  # type: ignore[override]  # as in PyFlink: another kind of function
        self, func: KeyedProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        function = adapt.method_of(func, KeyedProcessFunction, "process_element", "KEYED PROCESS")
        return self._then(
            "KEYED PROCESS", ops.KeyedProcessOperator(function, self.plumbing.keys), output_type
        )

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        return self._accumulate(self.AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        return self._accumulate(self.AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        return self._accumulate(self.AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        return self._accumulate(self.AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        return self._accumulate(self.AccumulateType.MAX_BY, position_to_max_by)

    # ---------------------------------------------------------- windows

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        from penstock.datastream.data_stream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` elements, one every `slide`; incomplete ones never fire."""
        from penstock.datastream.data_stream.windowed_stream import WindowedStream
        from penstock.datastream.window import (
            CountSlidingWindowAssigner,
            CountTumblingWindowAssigner,
        )

        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner.of(size))
        return WindowedStream(self, CountSlidingWindowAssigner.of(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Pairs of equal keys close in event time: `.between(lower, upper).process(f)`."""
        from penstock.datastream.data_stream.joins import IntervalJoin

        if not isinstance(other_stream, KeyedStream):
            raise TypeError(
                f"interval_join takes a KeyedStream, got {type(other_stream).__name__}: call key_by(...) on "
                "the other stream first."
            )
        if other_stream.plumbing.environment is not self.plumbing.environment:
            raise GraphError("interval_join: the streams belong to different environments.")
        return IntervalJoin(self, other_stream)

    # ---------------------------------------------------------- what goes on without the key

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any] | Column,
        key_type: TypeInformation | Column | None = None,
        *more_columns: Column,
    ) -> KeyedStream:
        return self._without_key().key_by(key_selector, key_type, *more_columns)

    def union(self, *streams: DataStream) -> DataStream:
        return self._in_partitions().union(*streams)

    def project(self, *field_indexes: int) -> DataStream:
        return self._in_partitions().project(*field_indexes)

    def window_all(self, window_assigner: WindowAssigner) -> Any:
        return self._without_key().window_all(window_assigner)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        return self._in_partitions().print(sink_identifier)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """A writer gets all records of some keys, in their order."""
        return self._in_partitions().sink_to(sink)

    def get_type(self) -> TypeInformation:
        """ROW(key, value)."""
        key_type = self.plumbing.keys.key_type or Types.PICKLED_BYTE_ARRAY()
        return Types.ROW([key_type, super().get_type()])

    # ---------------------------------------------------------- what a keyed stream cannot do

    def shuffle(self) -> NoReturn:
        _refuse("shuffle", "override partitioning")

    def rescale(self) -> NoReturn:
        _refuse("rescale", "override partitioning")

    def rebalance(self) -> NoReturn:
        _refuse("rebalance", "override partitioning")

    def forward(self) -> NoReturn:
        _refuse("forward", "override partitioning")

    def global_(self) -> NoReturn:
        _refuse("global_", "override partitioning")

    def broadcast(self, *args: Any) -> NoReturn:
        _refuse("broadcast", "override partitioning")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> NoReturn:
        _refuse("partition_custom", "override partitioning")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        _refuse("set_parallelism", "set parallelism")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        _refuse("set_max_parallelism", "set max parallelism")

    def name(self, name: str) -> NoReturn:
        _refuse("name", "set name")

    def get_name(self) -> NoReturn:
        _refuse("get_name", "get name")

    def uid(self, uid: str) -> NoReturn:
        _refuse("uid", "set uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        _refuse("set_uid_hash", "set uid hash")

    def force_non_parallel(self) -> NoReturn:
        _refuse("force_non_parallel", "set parallelism")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        _refuse("set_buffer_timeout", "set buffer timeout")

    def start_new_chain(self) -> NoReturn:
        _refuse("start_new_chain", "start a new chain")

    def disable_chaining(self) -> NoReturn:
        _refuse("disable_chaining", "disable chaining")

    def cache(self) -> NoReturn:
        _refuse("cache", "keep the records")

    def slot_sharing_group(self, slot_sharing_group: Any) -> NoReturn:
        _refuse("slot_sharing_group", "set slot sharing group")

    # ---------------------------------------------------------- private

    def _without_key(self) -> DataStream:
        return DataStream(self.plumbing.without_key())

    def _in_partitions(self) -> DataStream:
        return DataStream(self.plumbing.in_partitions())

    def _accumulate(self, kind: AccumulateType, field: int | str) -> DataStream:
        if isinstance(field, bool) or not isinstance(field, (int, str)):
            raise TypeError(
                f"{kind.name.lower()}: the field must be a position (int) or a name (str), got "
                f"{type(field).__name__}."
            )
        if isinstance(field, int) and field < 0:
            raise GraphError(f"{kind.name.lower()}: the position must be 0 or more, got {field}.")
        check_field(field, self.plumbing.element_type, kind.name.lower())
        operator: Operator = ops.KeyedAggregateOperator(kind.name, field, self.plumbing.keys)
        return self._then("Reduce", operator, self.plumbing.element_type)


def _refuse(method: str, what: str) -> NoReturn:
    raise GraphError(
        f"Cannot {what} of a KeyedStream. Call {method}() before key_by(...), or on the operator "
        "after it."
    )
