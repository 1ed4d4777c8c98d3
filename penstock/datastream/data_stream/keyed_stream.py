"""KeyedStream: a stream partitioned by key. Its operators have keyed state and timers.

Source: pyflink.datastream.data_stream.KeyedStream; differs: the key is not part of the record, so no map is needed to
add it or to remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, overload

from penstock.common.typeinfo import TypeInformation, Types
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import check_together, checked_field
from penstock.datastream.building.stream_plumbing import KeyedPlumbing
from penstock.datastream.data_stream.data_stream import DataStream
from penstock.datastream.data_stream.error_handling import check_keys, key_check_of
from penstock.datastream.data_stream.sink import DataStreamSink
from penstock.datastream.error_policy import ErrorPolicy
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
)
from penstock.datastream.functions.type_variables import K2, T2, K, R, T
from penstock.datastream.output_tag import OutputTag
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import StreamExchangeMode
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.records.columns import Column
from penstock.engine.runtime.sink import Sink

if TYPE_CHECKING:
    from penstock.datastream.data_stream.joins import IntervalJoin
    from penstock.datastream.data_stream.windowed_stream import AllWindowedStream, WindowedStream
    from penstock.datastream.window import WindowAssigner


class KeyedStream(DataStream[T], Generic[T, K]):
    """A stream partitioned by key, as `key_by` returns it.

    Its operators have keyed state and timers.
    """

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

    def with_exchange_mode(self, mode: StreamExchangeMode) -> KeyedStream[T, K]:
        """Choose how the operators that read this stream get its records, as in DataStream."""
        return KeyedStream(self.plumbing.with_exchange_mode(StreamExchangeMode(mode)))

    def on_error(self, policy: ErrorPolicy | OutputTag | Sink | str) -> Self:
        """Set what becomes of a record at which the key selector raises. Not in PyFlink.

        An operator before the exchange then takes the keys once more than without a policy.
        The dead letters are read with `get_side_output` of this stream.

        Args:
            policy: as in DataStream.
        """
        self.plumbing = check_keys(self.plumbing, policy)
        return self

    def get_side_output(self, output_tag: OutputTag) -> DataStream[Any]:
        """Return the dead letters of the key selector; `on_error` has to be called before.

        Raises:
            GraphError: this stream has no such side output.
        """
        if key_check_of(self.plumbing) is None:
            return super().get_side_output(output_tag)
        return self._without_key().get_side_output(output_tag)

    # ---------------------------------------------------------- operators with keyed state

    def map(
        self,
        func: Callable[[T], R] | MapFunction[T, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Apply `func` to each record and emit its one result. A MapFunction may use keyed state.

        Args:
            func: a function `value -> result`, or a MapFunction.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        return self._then(
            "Map", ops.KeyedMapOperator(adapt.map_function(func), self.plumbing.keys), output_type
        )

    def flat_map(
        self,
        func: Callable[[T], Iterable[R] | None] | FlatMapFunction[T, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Apply `func` to each record and emit every element of the iterable that it returns.

        Args:
            func: a function `value -> iterable or None`, or a FlatMapFunction, which may use keyed
                state.
            output_type: the type of the elements; without it they travel as pickled bytes.
        """
        operator = ops.KeyedFlatMapOperator(adapt.flat_map_function(func), self.plumbing.keys)
        return self._then("FlatMap", operator, output_type)

    def filter(self, func: Callable[[T], object] | FilterFunction[T] | Column) -> DataStream[T]:
        """Keep the records for which `func` returns true. A FilterFunction may use keyed state."""
        if isinstance(func, Column):
            return self._without_key().filter(func)
        operator = ops.KeyedFilterOperator(adapt.filter_function(func), self.plumbing.keys)
        return self._then("Filter", operator, self.plumbing.element_type)

    @overload
    def reduce(
        self, func: Callable[[T, T], T] | ReduceFunction[T], *, combine: bool = False
    ) -> DataStream[T]: ...

    # For checkers that take a record's type too narrowly: `(word, 1)` for a pair with the literal 1.
    @overload
    def reduce(self, func: Callable[[T, T], R], *, combine: bool = False) -> DataStream[R]: ...

    def reduce(
        self, func: Callable[[T, T], Any] | ReduceFunction[T], *, combine: bool = False
    ) -> DataStream[Any]:
        """Combine each record with the last result of its key, and emit the new result.

        The first record of a key is emitted unchanged.

        Args:
            func: `(last result, value) -> result`, or a ReduceFunction.
            combine: your promise that `func(func(a, b), c)` is as good as `func(a, func(b, c))`, and that records of
                different tasks may come in any order. A BATCH job then combines records of a key before the shuffle.
                `lambda a, b: a + 1` does not keep it. Sums of whole numbers of a declared type need no promise: reading
                proves them. Without effect in STREAMING jobs.
        """
        function, keys = adapt.reduce_function(func), self.plumbing.keys
        operator: Operator
        if not adapt.has_open(func):
            operator = ops.ReduceOperator(function, keys, combines=combine)
        elif combine:
            raise GraphError(
                f"reduce({type(func).__name__}(), combine=True): a ReduceFunction with open() may "
                "have state, which is only where its keys are. Leave out combine=True, or open()."
            )
        else:
            operator = ops.StatefulReduceOperator(function, keys)
        return self._then("Reduce", operator, self.plumbing.element_type)

    def process(  # type: ignore[override]  # as in PyFlink: another kind of function
        self, func: KeyedProcessFunction[K, T, R], output_type: TypeInformation | None = None
    ) -> DataStream[R]:
        """Call a KeyedProcessFunction, with keyed state and timers, for each record.

        Args:
            func: the KeyedProcessFunction.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        function = adapt.method_of(func, KeyedProcessFunction, "process_element", "KEYED PROCESS")
        return self._then(
            "KEYED PROCESS", ops.KeyedProcessOperator(function, self.plumbing.keys), output_type
        )

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T]:
        """Emit for each record the running sum of a field, per key.

        Args:
            position_to_sum: the field's position from 0 (below 0: from the end), or its name.
        """
        return self._accumulate(self.AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T]:
        """Emit for each record the key's smallest value of a field so far.

        The other fields are those of the key's first record.

        Args:
            position_to_min: the field's position from 0 (below 0: from the end), or its name.
        """
        return self._accumulate(self.AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T]:
        """Emit for each record the key's largest value of a field so far.

        The other fields are those of the key's first record.

        Args:
            position_to_max: the field's position from 0 (below 0: from the end), or its name.
        """
        return self._accumulate(self.AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T]:
        """Emit for each record the key's whole record with the smallest value of a field so far.

        Args:
            position_to_min_by: the field's position from 0 (below 0: from the end), or its name.
        """
        return self._accumulate(self.AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T]:
        """Emit for each record the key's whole record with the largest value of a field so far.

        Args:
            position_to_max_by: the field's position from 0 (below 0: from the end), or its name.
        """
        return self._accumulate(self.AccumulateType.MAX_BY, position_to_max_by)

    # ---------------------------------------------------------- windows

    def window(self, window_assigner: WindowAssigner) -> WindowedStream[T, K]:
        """Divide the records of each key into windows."""
        from penstock.datastream.data_stream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T, K]:
        """Divide each key's records into windows of `size` records; incomplete ones do not fire.

        Args:
            size: records in a window.
            slide: records between the starts of two windows; 0: the windows do not overlap.
        """
        from penstock.datastream.data_stream.windowed_stream import WindowedStream
        from penstock.datastream.window import (
            CountSlidingWindowAssigner,
            CountTumblingWindowAssigner,
        )

        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner.of(size))
        return WindowedStream(self, CountSlidingWindowAssigner.of(size, slide))

    def interval_join(self, other_stream: KeyedStream[T2, K]) -> IntervalJoin[T, T2]:
        """Join records with equal keys whose event times are close to each other.

        Continue with `.between(lower, upper).process(f)`.

        Raises:
            TypeError: the other stream is not keyed.
            GraphError: the streams belong to different environments.
        """
        from penstock.datastream.data_stream.joins import IntervalJoin

        if not isinstance(other_stream, KeyedStream):
            raise TypeError(
                f"interval_join takes a KeyedStream, got {type(other_stream).__name__}: call key_by(...) on "
                "the other stream first."
            )
        check_together("interval_join", self, other_stream)
        return IntervalJoin(self, other_stream)

    # ---------------------------------------------------------- operators that do not use the key

    @overload
    def key_by(
        self, key_selector: Column, key_type: Column | None = None, *more_columns: Column
    ) -> KeyedStream[T, Any]: ...

    @overload
    def key_by(
        self,
        key_selector: Callable[[T], K2] | KeySelector[T, K2],
        key_type: TypeInformation | None = None,
    ) -> KeyedStream[T, K2]: ...

    def key_by(
        self,
        key_selector: Callable[[T], Any] | KeySelector[T, Any] | Column,
        key_type: TypeInformation | Column | None = None,
        *more_columns: Column,
    ) -> KeyedStream[T, Any]:
        """Replace the key by another one, as DataStream.key_by does."""
        stream: Any = self._without_key()
        keyed: KeyedStream[T, Any] = stream.key_by(key_selector, key_type, *more_columns)
        return keyed

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """Merge with other streams. The result is not keyed."""
        return self._in_partitions().union(*streams)

    def project(self, *field_indexes: int) -> DataStream[tuple[Any, ...]]:
        """Keep the given fields of a stream of tuples. The result is not keyed."""
        return self._in_partitions().project(*field_indexes)

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream[T]:
        """Divide the whole stream, across its keys, into windows."""
        return self._without_key().window_all(window_assigner)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record to standard output of the driver."""
        return self._in_partitions().print(sink_identifier)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the stream to a sink. All records of a key go to the same writer, in order."""
        return self._in_partitions().sink_to(sink)

    def get_type(self) -> TypeInformation:
        """Return ROW(key, value), as PyFlink does."""
        key_type = self.plumbing.keys.key_type or Types.PICKLED_BYTE_ARRAY()
        return Types.ROW([key_type, super().get_type()])

    # ---------------------------------------------------------- methods that a keyed stream refuses

    def shuffle(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("shuffle", "override partitioning")

    def rescale(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("rescale", "override partitioning")

    def rebalance(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("rebalance", "override partitioning")

    def forward(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("forward", "override partitioning")

    def global_(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("global_", "override partitioning")

    def broadcast(self, *args: Any) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("broadcast", "override partitioning")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("partition_custom", "override partitioning")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("set_parallelism", "set parallelism")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("set_max_parallelism", "set max parallelism")

    def name(self, name: str) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("name", "set name")

    def get_name(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("get_name", "get name")

    def uid(self, uid: str) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("uid", "set uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("set_uid_hash", "set uid hash")

    def force_non_parallel(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("force_non_parallel", "set parallelism")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("set_buffer_timeout", "set buffer timeout")

    def start_new_chain(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("start_new_chain", "start a new chain")

    def disable_chaining(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("disable_chaining", "disable chaining")

    def cache(self) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("cache", "keep the records")

    def slot_sharing_group(self, slot_sharing_group: Any) -> NoReturn:
        """Not possible on a keyed stream. Raises GraphError."""
        _refuse("slot_sharing_group", "set slot sharing group")

    # ---------------------------------------------------------- private

    def _without_key(self) -> DataStream[T]:
        return DataStream(self.plumbing.without_key())

    def _in_partitions(self) -> DataStream[T]:
        return DataStream(self.plumbing.in_partitions())

    def _accumulate(self, kind: AccumulateType, field: int | str) -> DataStream[T]:
        if isinstance(field, bool) or not isinstance(field, (int, str)):
            raise TypeError(
                f"{kind.name.lower()}: the field must be a position (int) or a name (str), got "
                f"{type(field).__name__}."
            )
        field = checked_field(field, self.plumbing.element_type, kind.name.lower())
        operator: Operator = ops.KeyedAggregateOperator(kind.name, field, self.plumbing.keys)
        return self._then("Reduce", operator, self.plumbing.element_type)


def _refuse(method: str, what: str) -> NoReturn:
    raise GraphError(
        f"Cannot {what} of a KeyedStream. Call {method}() before key_by(...), or on the operator "
        "after it."
    )
