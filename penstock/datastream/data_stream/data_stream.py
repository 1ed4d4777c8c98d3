"""DataStream: the output of one operator, and the methods that add operators after it. Builds the graph, runs nothing.

Source: pyflink.datastream.data_stream.DataStream; differs: column streams (`map_batches`, `select`, `filter(col(...) >
1)`, `key_by(col("x"))`) are an addition, and get_side_output refuses operators that cannot have side outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, overload

from penstock.common.absent import gone
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.former_names import OF_A_STREAM
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import built, check_columns, check_together
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import StreamPlumbing, keyed
from penstock.datastream.data_stream.outputs import StreamOutputs, request_side_output
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
)
from penstock.datastream.functions.type_variables import T2, K, R, T
from penstock.datastream.output_tag import OutputTag
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy, StreamExchangeMode
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.records.columns import Column
from penstock.engine.runtime.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.data_stream.cached import CachedDataStream
    from penstock.datastream.data_stream.connected import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
    )
    from penstock.datastream.data_stream.joins import CoGroupedStreams, JoinedStreams
    from penstock.datastream.data_stream.keyed_stream import KeyedStream
    from penstock.datastream.data_stream.windowed_stream import AllWindowedStream
    from penstock.datastream.window import WindowAssigner


class DataStream(StreamOutputs[T]):
    """A stream of records of one type.

    Its methods add operators to the job graph; nothing runs yet.
    """

    if not TYPE_CHECKING:  # with it a type checker would accept any name
        __getattr__ = gone(OF_A_STREAM)

    # ---------------------------------------------------------- operators

    def map(
        self,
        func: Callable[[T], R] | MapFunction[T, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Apply `func` to each record and emit its one result.

        Args:
            func: a function `value -> result`, or a MapFunction.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        return self._then("Map", ops.MapOperator(adapt.map_function(func)), output_type)

    def flat_map(
        self,
        func: Callable[[T], Iterable[R] | None] | FlatMapFunction[T, R],
        output_type: TypeInformation | None = None,
    ) -> DataStream[R]:
        """Apply `func` to each record and emit every element of the iterable that it returns.

        Args:
            func: a function `value -> iterable or None`, or a FlatMapFunction.
            output_type: the type of the elements; without it they travel as pickled bytes.
        """
        return self._then(
            "FlatMap", ops.FlatMapOperator(adapt.flat_map_function(func)), output_type
        )

    def filter(self, func: Callable[[T], object] | FilterFunction[T] | Column) -> DataStream[T]:
        """Keep the records for which `func` returns true. The type does not change.

        Args:
            func: a function `value -> bool`, a FilterFunction, or a column expression.

        Raises:
            GraphError: the expression reads a column that the stream does not have.
        """
        if isinstance(func, Column):
            check_columns(func.columns_read(), self.plumbing.element_type, "Filter")
            return self._then("Filter", ops.ColumnFilterOperator(func), self.plumbing.element_type)
        return self._then(
            "Filter", ops.FilterOperator(adapt.filter_function(func)), self.plumbing.element_type
        )

    def process(
        self, func: ProcessFunction[T, R], output_type: TypeInformation | None = None
    ) -> DataStream[R]:
        """Call a ProcessFunction for each record; it may emit results and side outputs.

        Args:
            func: the ProcessFunction; it sees timestamps and the watermark, but has no keyed state.
            output_type: the type of the results; without it they travel as pickled bytes.
        """
        function = adapt.method_of(func, ProcessFunction, "process_element", "PROCESS")
        return self._then("PROCESS", ops.ProcessOperator(function), output_type)

    def project(self, *field_indexes: int) -> DataStream[tuple[Any, ...]]:
        """Keep the given fields of a stream of tuples.

        Args:
            field_indexes: positions from 0, in the order of the resulting TUPLE.
        """
        projection, output_type = adapt.projection(self.get_type(), field_indexes)
        return self._then("Projection", ops.MapOperator(projection), output_type)

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> DataStream[T]:
        """Set each record's event time and generate watermarks; earlier ones are replaced."""
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise TypeError(
                f"assign_timestamps_and_watermarks takes a WatermarkStrategy, got {watermark_strategy!r}."
            )
        operator = ops.TimestampsAndWatermarksOperator(watermark_strategy)
        return self._then("Timestamps/Watermarks", operator, self.plumbing.element_type)

    # ---------------------------------------------------------- operators on columns

    def map_batches(
        self,
        func: Callable[[Any], Any],
        output_type: TypeInformation | None = None,
        timestamp_column: str | None = None,
    ) -> DataStream[Any]:
        """Apply `func` to whole Arrow batches: `pyarrow.RecordBatch -> pyarrow.RecordBatch`.

        Args:
            func: the function; it may return another number of rows than it was given.
            output_type: the type of the result's rows.
            timestamp_column: the result's column of event times (epoch ms). Without it rows keep
                their timestamps, if `func` keeps their number.
        """
        operator = ops.MapBatchesOperator(UserFunction(func), timestamp_column)
        return self._then("MapBatches", operator, output_type)

    def select(self, *columns: Column | str, **named: Column) -> DataStream[Any]:
        """Select columns by name or expression; `name=expression` names a computed column.

        Raises:
            GraphError: the stream does not have a column that is read.
        """
        operator = ops.SelectOperator(adapt.selections(columns, named, self.plumbing.element_type))
        return self._then("Select", operator, None)

    # ---------------------------------------------------------- partitioning

    @overload
    def key_by(
        self, key_selector: Column, key_type: Column | None = None, *more_columns: Column
    ) -> KeyedStream[T, Any]: ...

    @overload
    def key_by(
        self,
        key_selector: Callable[[T], K] | KeySelector[T, K],
        key_type: TypeInformation | None = None,
    ) -> KeyedStream[T, K]: ...

    def key_by(
        self,
        key_selector: Callable[[T], Any] | KeySelector[T, Any] | Column,
        key_type: TypeInformation | Column | None = None,
        *more_columns: Column,
    ) -> KeyedStream[T, Any]:
        """Partition the stream by key: records with equal keys go to the same subtask.

        A key's records keep their order if one subtask of this operator sends them all.

        Args:
            key_selector: a function `value -> key`, a KeySelector, or the first key column.
            key_type: the key's type, or the second key column.
            more_columns: further key columns, as in `key_by(col("a"), col("b"))`.
        """
        from penstock.datastream.data_stream.keyed_stream import KeyedStream

        keys = adapt.keys_of(key_selector, key_type, more_columns, self.plumbing.element_type)
        hashed = self.plumbing.partitioned(Partitioning(ShipStrategy.HASH, key_selector=keys))
        return KeyedStream(keyed(hashed, self.plumbing, keys))

    def partition_custom(
        self,
        partitioner: Callable[[K, int], int] | Partitioner[K],
        key_selector: Callable[[T], K] | KeySelector[T, K],
    ) -> DataStream[T]:
        """Partition the stream with a function of your own.

        Args:
            partitioner: `(key, channels) -> channel`, with 0 <= channel < channels.
            key_selector: a function `value -> key`, or a KeySelector.
        """
        keys = adapt.keys_of(key_selector, None, (), self.plumbing.element_type)
        custom = adapt.partitioner_function(partitioner)
        return self._repartitioned(Partitioning(ShipStrategy.CUSTOM, keys, custom))

    def shuffle(self) -> DataStream[T]:
        """Send each record to a random subtask of the next operator."""
        return self._repartitioned(Partitioning(ShipStrategy.SHUFFLE))

    def rescale(self) -> DataStream[T]:
        """Distribute records round-robin over a fixed subset of the next operator's subtasks."""
        return self._repartitioned(Partitioning(ShipStrategy.RESCALE))

    def rebalance(self) -> DataStream[T]:
        """Distribute records round-robin over all subtasks of the next operator."""
        return self._repartitioned(Partitioning(ShipStrategy.REBALANCE))

    def forward(self) -> DataStream[T]:
        """Send records to the subtask of the same index; both operators need one parallelism."""
        return self._repartitioned(Partitioning(ShipStrategy.FORWARD))

    def global_(self) -> DataStream[T]:
        """Send all records to the next operator's first subtask.

        Flink has this in its Java API only.
        """
        return self._repartitioned(Partitioning(ShipStrategy.GLOBAL))

    @overload
    def broadcast(self, broadcast_state_descriptor: None = None) -> DataStream[T]: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream[T]: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[T] | BroadcastStream[T]:
        """Send each record to all subtasks of the next operator.

        Returns:
            A DataStream; with descriptors of broadcast state a BroadcastStream, for
            `other.connect`.
        """
        to_all = self._repartitioned(Partitioning(ShipStrategy.BROADCAST))
        if broadcast_state_descriptor is None:
            return to_all
        from penstock.datastream.data_stream.connected import BroadcastStream

        descriptors = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise TypeError(
                    f"broadcast: broadcast_state_descriptor must be MapStateDescriptor, got {type(descriptor).__name__}."
                )
        return BroadcastStream(to_all, descriptors)

    def with_exchange_mode(self, mode: StreamExchangeMode) -> DataStream[T]:
        """Choose how the operators that read this stream get its records. Not in PyFlink.

        Call it directly before the reading operator or before key_by, rebalance and the like:
        `s.with_exchange_mode(StreamExchangeMode.BATCH).key_by(f)`.

        Args:
            mode: PIPELINED: they run together with the writer. BATCH: they start after its end.
        """
        return DataStream(self.plumbing.with_exchange_mode(StreamExchangeMode(mode)))

    # ---------------------------------------------------------- several streams

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """Merge this stream with others of the same type, in no particular order.

        Raises:
            TypeError: an argument is not a DataStream.
            GraphError: the types differ, or a stream belongs to another environment.
        """
        own = self.plumbing
        others = []
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise TypeError(f"union takes DataStreams, got {type(stream).__name__}.")
            check_together("union", self, stream)
            other = stream.plumbing.in_partitions()
            if isinstance(own.element_type, RowTypeInfo):
                other = other.with_names_of(own.element_type)
            if other.type_info != self.get_type():
                raise GraphError(
                    f"Cannot union streams of different types: {self.get_type()} and "
                    f"{other.type_info}. Bring them to one type with map(..., output_type=...). {built('union')}."
                )
            others.append(other)
        return DataStream(own.together_with(others))

    @overload
    def connect(self, ds: DataStream[T2]) -> ConnectedStreams[T, T2]: ...

    @overload
    def connect(self, ds: BroadcastStream[T2]) -> BroadcastConnectedStream[T, T2]: ...

    def connect(
        self, ds: DataStream[T2] | BroadcastStream[T2]
    ) -> ConnectedStreams[T, T2] | BroadcastConnectedStream[T, T2]:
        """Connect two streams, so that one function processes both and shares state between them.

        Returns:
            ConnectedStreams; with a BroadcastStream a BroadcastConnectedStream.
        """
        from penstock.datastream.data_stream.connected import (
            BroadcastConnectedStream,
            BroadcastStream,
            ConnectedStreams,
        )

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream[T2]) -> JoinedStreams[T, T2]:
        """Join two streams: pairs of records with equal keys in the same window.

        Continue with `.where(k1).equal_to(k2).window(w).apply(f)`.
        """
        from penstock.datastream.data_stream.joins import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream[T2]) -> CoGroupedStreams[T, T2]:
        """Group the records of two streams by key and window, also where only one stream has some.

        Continue with `.where(k1).equal_to(k2).window(w).apply(f)`; `f` gets two lists.
        """
        from penstock.datastream.data_stream.joins import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream[T]:
        """Divide the whole stream into windows. The window operator runs in one subtask."""
        from penstock.datastream.data_stream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def get_side_output(self, output_tag: OutputTag) -> DataStream[Any]:
        """Return the records that this operator emits with the given tag.

        Once a tag is read, its records no longer appear in the main output.

        Raises:
            TypeError: `output_tag` is not an OutputTag.
            GraphError: no side outputs here, or the tag is read with another type already.
        """
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"get_side_output takes an OutputTag, got {output_tag!r}.")
        node = self._node("get_side_output")
        plumbing = self.plumbing
        declared = plumbing.program.declared(node, output_tag.type_info)
        rule = plumbing.program.error_rules.get(node.node_id)
        request_side_output(node, rule, output_tag.tag_id, declared)
        upstream = Upstream(node.node_id, tag=output_tag.tag_id)
        return DataStream(StreamPlumbing(plumbing.environment, (upstream,), output_tag.type_info))

    # ---------------------------------------------------------- keeping

    def cache(self) -> CachedDataStream[T]:
        """Keep the records of this bounded stream when a job first computes them.

        Later jobs of the same environment read what was kept.
        """
        from penstock.datastream.data_stream.cached import cached

        return cached(self)

    # ---------------------------------------------------------- private

    def _then(
        self, name: str, operator: Operator, output_type: TypeInformation | None
    ) -> DataStream[Any]:
        return DataStream(self.plumbing.add_operator(name, operator, output_type))

    def _repartitioned(self, partitioning: Partitioning) -> DataStream[T]:
        return DataStream(self.plumbing.partitioned(partitioning))
