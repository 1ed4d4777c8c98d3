"""DataStream: one operator's output, and what can be done with it. Builds the graph, runs nothing.

Source: pyflink.datastream.data_stream.DataStream; differs: column streams (`map_batches`, `select`,
`filter(col(...) > 1)`, `key_by(col("x"))`) are an addition, and get_side_output refuses operators
that cannot have side outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from penstock.common.absent import gone
from penstock.common.execution_config import ExecutionConfig
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.checks import built, check_columns
from penstock.datastream.building.former_names import OF_A_STREAM
from penstock.datastream.building.program import Upstream
from penstock.datastream.connectors.base import SupportsPreprocessing
from penstock.datastream.connectors.sinks import CollectingSink
from penstock.datastream.data_stream.client_values import client_values
from penstock.datastream.data_stream.iterator import CloseableIterator, take
from penstock.datastream.data_stream.operator_settings import OperatorSettings
from penstock.datastream.data_stream.side_outputs import request_side_output
from penstock.datastream.data_stream.sink import DataStreamSink
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.model.errors import GraphError
from penstock.model.graph.partitioning import Partitioning, ShipStrategy, StreamExchangeMode
from penstock.runtime import operators as ops
from penstock.runtime.context import UserFunction
from penstock.runtime.operator import Operator
from penstock.runtime.records.columns import Column
from penstock.runtime.sink import Sink
from penstock.runtime.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.data_stream.cached import CachedDataStream
    from penstock.datastream.data_stream.connected import BroadcastStream
    from penstock.datastream.data_stream.joins import CoGroupedStreams, JoinedStreams
    from penstock.datastream.data_stream.keyed_stream import KeyedStream
    from penstock.datastream.data_stream.windowed_stream import AllWindowedStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.window import WindowAssigner

DRIVER_PRINT_STREAM = "print"


class DataStream(OperatorSettings):
    """A stream of records of one type."""

    if not TYPE_CHECKING:  # a type checker would take any name then
        __getattr__ = gone(OF_A_STREAM)

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: Sequence[Upstream],
        element_type: TypeInformation | None,
    ) -> None:
        super().__init__(environment, upstreams)
        self._element_type = element_type

    def get_type(self) -> TypeInformation:
        return self._element_type or Types.PICKLED_BYTE_ARRAY()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        return self._environment.get_config()

    # ---------------------------------------------------------- operators

    def map(
        self,
        func: Callable[[Any], Any] | MapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._then("Map", ops.MapOperator(adapt.map_function(func)), output_type)

    def flat_map(
        self,
        func: Callable[[Any], Any] | FlatMapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._then(
            "FlatMap", ops.FlatMapOperator(adapt.flat_map_function(func)), output_type
        )

    def filter(self, func: Callable[[Any], Any] | FilterFunction[Any] | Column) -> DataStream:
        """Keep what `func` (or the column expression) says true of; the type stays."""
        if isinstance(func, Column):
            check_columns(func.columns_read(), self._element_type, "Filter")
            return self._then("Filter", ops.ColumnFilterOperator(func), self._element_type)
        return self._then(
            "Filter", ops.FilterOperator(adapt.filter_function(func)), self._element_type
        )

    def process(
        self, func: ProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        function = adapt.method_of(func, ProcessFunction, "process_element", "PROCESS")
        return self._then("PROCESS", ops.ProcessOperator(function), output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Some positions of a TUPLE typed stream, as a TUPLE."""
        projection, output_type = adapt.projection(self.get_type(), field_indexes)
        return self._then("Projection", ops.MapOperator(projection), output_type)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise TypeError(
                f"assign_timestamps_and_watermarks takes a WatermarkStrategy, got {watermark_strategy!r}."
            )
        operator = ops.TimestampsAndWatermarksOperator(watermark_strategy)
        return self._then("Timestamps/Watermarks", operator, self._element_type)

    # ---------------------------------------------------------- operators on columns

    def map_batches(
        self,
        func: Callable[[Any], Any],
        output_type: TypeInformation | None = None,
        timestamp_column: str | None = None,
    ) -> DataStream:
        """`func`: pyarrow.RecordBatch -> RecordBatch. Timestamps stay while the row count does; else the
        result's `timestamp_column` (epoch ms) tells them.
        """
        operator = ops.MapBatchesOperator(UserFunction(func), timestamp_column)
        return self._then("MapBatches", operator, output_type)

    def select(self, *columns: Column | str, **named: Column) -> DataStream:
        """Columns by name or expression; `name=expression` names the result."""
        operator = ops.SelectOperator(adapt.selections(columns, named, self._element_type))
        return self._then("Select", operator, None)

    # ---------------------------------------------------------- partitioning

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any] | Column,
        key_type: TypeInformation | Column | None = None,
        *more_columns: Column,
    ) -> KeyedStream:
        """By a function of the value, or by columns: `key_by(col("a"), col("b"))`."""
        from penstock.datastream.data_stream.keyed_stream import KeyedStream

        keys = adapt.keys_of(key_selector, key_type, more_columns, self._element_type)
        upstreams = self.partitioned(Partitioning(ShipStrategy.HASH, key_selector=keys))
        return KeyedStream(self, upstreams, keys)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
    ) -> DataStream:
        """`partitioner(key, channels)` gives the channel, in [0, channels)."""
        keys = adapt.keys_of(key_selector, None, (), self._element_type)
        custom = adapt.partitioner_function(partitioner)
        return self._repartitioned(Partitioning(ShipStrategy.CUSTOM, keys, custom))

    def shuffle(self) -> DataStream:
        return self._repartitioned(Partitioning(ShipStrategy.SHUFFLE))

    def rescale(self) -> DataStream:
        return self._repartitioned(Partitioning(ShipStrategy.RESCALE))

    def rebalance(self) -> DataStream:
        return self._repartitioned(Partitioning(ShipStrategy.REBALANCE))

    def forward(self) -> DataStream:
        return self._repartitioned(Partitioning(ShipStrategy.FORWARD))

    def global_(self) -> DataStream:
        """Everything to the first subtask. Java API only in Flink."""
        return self._repartitioned(Partitioning(ShipStrategy.GLOBAL))

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> Any:
        """Everything to each subtask; with state descriptors a BroadcastStream, to be connected with another."""
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

    def with_exchange_mode(self, mode: StreamExchangeMode) -> DataStream:
        """Whether operators that read this stream work beside its writer (PIPELINED) or when it is complete (BATCH).

        Between key_by, rebalance and the like and the operator, or before them: `s.with_exchange_mode(BATCH).key_by(f)`.
        Flink's PartitionTransformation has it, but no API of Flink's sets it for one edge.
        """
        upstreams = [
            replace(upstream, exchange_mode=StreamExchangeMode(mode))
            for upstream in self._upstreams
        ]
        return DataStream(self._environment, upstreams, self._element_type)

    # ---------------------------------------------------------- several streams

    def union(self, *streams: DataStream) -> DataStream:
        upstreams = list(self._upstreams)
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise TypeError(f"union takes DataStreams, got {type(stream).__name__}.")
            other = stream.in_partitions()
            if other.get_execution_environment() is not self._environment:
                raise GraphError("union: the streams belong to different environments.")
            if isinstance(self._element_type, RowTypeInfo):
                other = other._with_names_of(self._element_type)  # ruff: ignore[private-member-access]
            if other.get_type() != self.get_type():
                raise GraphError(
                    f"Cannot union streams of different types: {self.get_type()} and "
                    f"{other.get_type()}. Bring them to one type with map(..., output_type=...). {built('union')}."
                )
            upstreams.extend(other._upstreams)  # ruff: ignore[private-member-access]
        return DataStream(self._environment, upstreams, self._element_type)

    def connect(self, ds: DataStream | BroadcastStream) -> Any:
        """ConnectedStreams; with a BroadcastStream a BroadcastConnectedStream."""
        from penstock.datastream.data_stream.connected import (
            BroadcastConnectedStream,
            BroadcastStream,
            ConnectedStreams,
        )

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Pairs of equal keys in one window: `.where(k1).equal_to(k2).window(w).apply(f)`."""
        from penstock.datastream.data_stream.joins import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """As join, with all records of a key and window at once, also of one side only."""
        from penstock.datastream.data_stream.joins import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """Windows over the whole stream, in one subtask."""
        from penstock.datastream.data_stream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What the operator sent to this tag. From now on tagged results leave its main output."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"get_side_output takes an OutputTag, got {output_tag!r}.")
        node = self._node("get_side_output")
        declared = self._environment.program.declared(node, output_tag.type_info)
        request_side_output(node, output_tag.tag_id, declared)
        upstream = Upstream(node.node_id, tag=output_tag.tag_id)
        return DataStream(self._environment, (upstream,), output_tag.type_info)

    # ---------------------------------------------------------- ends

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        return self._end(
            "Print to Std. Out",
            ops.PrintOperator(sink_identifier or ""),
            driver_stream=DRIVER_PRINT_STREAM,
        )

    def sink_to(self, sink: Sink) -> DataStreamSink:
        if not isinstance(sink, Sink):
            raise TypeError(
                "sink_to takes a Sink of penstock.datastream.connectors, got "
                f"{type(sink).__name__}."
            )
        if isinstance(sink, CollectingSink):
            stream = self._environment.program.new_collect_stream()
            self._environment.program.readers.append(
                lambda control: sink.read_from(control, stream, client_values(self._element_type))
            )
            return self.collect_into(stream)
        transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
        if transformer is not None:
            return transformer.apply(self).sink_to(sink)
        coordinator = None if sink.create_committer() is None else sink
        return self._end("Writer", ops.SinkOperator(sink), endpoint=sink, coordinator=coordinator)

    def add_sink(self, sink_func: SinkFunction | Sink) -> DataStreamSink:
        """Takes the same sinks as sink_to; Java sink functions do not exist here."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        raise TypeError(
            f"add_sink got {type(sink_func).__name__}; use sink_to with a Sink of "
            "penstock.datastream.connectors."
        )

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None) -> CloseableIterator: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the program and iterate over this stream's values; with `limit` a list."""
        if limit is not None and limit < 1:
            raise GraphError(f"execute_and_collect: limit must be at least 1, got {limit}.")
        stream = self._environment.program.new_collect_stream()
        self.collect_into(stream)
        control = self._environment.submit(job_execution_name)
        iterator = CloseableIterator(control, stream, self.get_type())
        return iterator if limit is None else take(iterator, limit)

    def to_spark(self, name: str | None = None, output_type: TypeInformation | None = None) -> Any:
        """A DataFrame of the stream, by its declared type (or `output_type`), also as the temporary view `name`.

        In runtime mode BATCH nothing runs before Spark needs it; else the job, which has to be bounded, runs now.
        Raises: GraphError: undeclared, or with the column's path: Spark has no such type. JobExecutionError.
        """
        from penstock.datastream.data_stream.frames import to_frame

        values = self.values()
        declared = output_type or values._element_type  # ruff: ignore[private-member-access]
        frame = to_frame(self._environment, values.upstreams(), declared)
        if name is not None:
            frame.createOrReplaceTempView(name)
        return frame

    def cache(self) -> CachedDataStream:
        """The first job that computes this bounded stream keeps it; later ones of this environment read what was kept."""
        from penstock.datastream.data_stream.cached import cached

        return cached(self)

    # ---------------------------------------------------------- for the other stream classes

    def collect_into(self, stream: str) -> DataStreamSink:
        """The driver takes the values under this name. Not in PyFlink's public API."""
        collected = self._collected()
        kind = collected._element_type  # ruff: ignore[private-member-access] - of this class
        return collected._end(  # ruff: ignore[private-member-access]
            "Data stream collect sink",
            ops.CollectOperator(),
            driver_stream=stream,
            output_type=kind,
            parallelism=collected._parallelism(),  # ruff: ignore[private-member-access]
        )

    def values(self) -> DataStream:
        """The stream without its key. Not in PyFlink's public API."""
        return self

    def passed_on(self) -> DataStream:
        return self._then("Map", ops.MapOperator(adapt.map_function(_same)), self._element_type)

    def _with_names_of(self, row_type: RowTypeInfo) -> DataStream:
        """The stream with the names of that ROW type, if its own differs in nothing else."""
        own = self._element_type
        if own == row_type or not isinstance(own, RowTypeInfo):
            return self
        if own.get_field_types() != row_type.get_field_types():
            return self
        renaming = adapt.map_function(adapt.Renaming(tuple(row_type.get_field_names())))
        return self.add_beside("Map", ops.MapOperator(renaming), row_type)

    def in_partitions(self) -> DataStream:
        """The stream as its readers get it, without its key. Not in PyFlink's public API."""
        return self

    def add_beside(
        self, name: str, operator: Operator, output_type: TypeInformation | None
    ) -> DataStream:
        """`add_operator` with as many subtasks as what is before it has, so that the order of records stays. Not in PyFlink."""
        return self.add_operator(name, operator, output_type, parallelism=self._parallelism())

    def _parallelism(self) -> int:
        """Of the operator whose output this is; -1: not set, or there is no single one."""
        if len(self._upstreams) != 1 or self._upstreams[0].partitioning is not None:
            return -1
        return self._environment.program.nodes[self._upstreams[0].node_id].parallelism

    def upstreams(self) -> tuple[Upstream, ...]:
        """The operators that this stream comes from. Not in PyFlink's public API."""
        return self._upstreams

    def add_operator(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        upstreams: Sequence[Upstream] | None = None,
        **fields: Any,
    ) -> DataStream:
        """An own operator behind this stream (or `upstreams`). Not in PyFlink."""
        declared = adapt.declared_type(output_type, name)
        node = self._environment.program.add_operator(
            name,
            operator,
            self._upstreams if upstreams is None else upstreams,
            output_type=declared,
            **fields,
        )
        return DataStream(self._environment, (Upstream(node.node_id),), declared)

    def _then(
        self, name: str, operator: Operator, output_type: TypeInformation | None
    ) -> DataStream:
        return self.add_operator(name, operator, output_type)

    def _collected(self) -> DataStream:
        """The stream whose values the client gets."""
        return self

    def _end(
        self, name: str, operator: Operator, endpoint: Sink | None = None, **fields: Any
    ) -> DataStreamSink:
        program = self._environment.program
        node = program.add_sink(name, operator, self._upstreams, **fields)
        if endpoint is not None:
            program.endpoints[node.node_id] = endpoint
        return DataStreamSink(node)

    def partitioned(self, partitioning: Partitioning) -> tuple[Upstream, ...]:
        return tuple(replace(upstream, partitioning=partitioning) for upstream in self._upstreams)

    def _repartitioned(self, partitioning: Partitioning) -> DataStream:
        upstreams = self.partitioned(partitioning)
        return DataStream(self._environment, upstreams, self._element_type)


def _same(value: Any) -> Any:
    return value
