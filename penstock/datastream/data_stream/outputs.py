"""What a program does with the records of a stream: print them, write them to sinks, or take them to the driver.

Source: the methods of pyflink.datastream.data_stream.DataStream.
"""

from __future__ import annotations

from typing import Any, Generic, overload

from penstock.common.execution_config import ExecutionConfig
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import SupportsPreprocessing
from penstock.connectors.sinks import CollectingSink
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.data_stream.client_values import client_values
from penstock.datastream.data_stream.iterator import CloseableIterator, take
from penstock.datastream.data_stream.operator_settings import OperatorSettings
from penstock.datastream.data_stream.sink import DataStreamSink
from penstock.datastream.functions import SinkFunction
from penstock.datastream.functions.type_variables import T
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.sink import Sink

DRIVER_PRINT_STREAM = "print"


class StreamOutputs(OperatorSettings, Generic[T]):
    """The part of DataStream that ends a program: sinks and results."""

    def get_type(self) -> TypeInformation:
        """Return the declared type of the records; an undeclared type is PICKLED_BYTE_ARRAY."""
        return self.plumbing.type_info

    def get_execution_environment(self) -> Any:
        """Return the StreamExecutionEnvironment in which the stream was built."""
        return self.plumbing.environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return the ExecutionConfig of the stream's environment."""
        return self.plumbing.environment.get_config()

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print records to the driver's standard output, `sink_identifier` before each."""
        node = self.plumbing.add_sink(
            "Print to Std. Out",
            ops.PrintOperator(sink_identifier or ""),
            driver_stream=DRIVER_PRINT_STREAM,
        )
        return DataStreamSink(node)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the stream to a Sink of penstock.datastream.connectors."""
        if not isinstance(sink, Sink):
            raise TypeError(
                "sink_to takes a Sink of penstock.datastream.connectors, got "
                f"{type(sink).__name__}."
            )
        if isinstance(sink, CollectingSink):
            program, change = self.plumbing.program, client_values(self.plumbing.element_type)
            stream = program.new_collect_stream()
            program.readers.append(lambda control: sink.read_from(control, stream, change))
            return DataStreamSink(self.plumbing.collect_into(stream))
        transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
        if transformer is not None:
            ended: DataStreamSink = transformer.apply(self).sink_to(sink)
            return ended
        if sink.has_global_committer:
            return self._written_by(sink)
        coordinator = None if sink.create_committer() is None else sink
        node = self.plumbing.add_sink(
            "Writer", ops.SinkOperator(sink), sink, coordinator=coordinator
        )
        return DataStreamSink(node, self.plumbing)

    def _written_by(self, sink: Sink) -> DataStreamSink:
        """A sink whose writers are followed by one subtask that commits for all."""
        writer = self.plumbing.add_sink("Writer", ops.WriterOperator(sink), sink)
        upstream = Upstream(writer.node_id, partitioning=Partitioning(ShipStrategy.GLOBAL))
        prepared = StreamPlumbing(self.plumbing.environment, (upstream,), None)
        committer = prepared.add_sink(
            "Global Committer",
            ops.SinkOperator(ops.GatheringSink(sink)),
            coordinator=sink,
            parallelism=1,
            max_parallelism=1,
            is_parallelism_fixed=True,
        )
        return DataStreamSink(writer, self.plumbing, committer)

    def add_sink(self, sink_func: SinkFunction | Sink) -> DataStreamSink:
        """Write the stream to a Sink, as `sink_to` does. Java sink functions raise TypeError."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        raise TypeError(
            f"add_sink got {type(sink_func).__name__}; use sink_to with a Sink of "
            "penstock.datastream.connectors."
        )

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[T]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T] | list[T]:
        """Run the program and return this stream's records on the driver.

        Args:
            job_execution_name: the name of the job.
            limit: the largest number of records; the job is cancelled when there are more.

        Returns:
            A CloseableIterator while the job runs; with `limit` a list.

        Raises:
            GraphError: `limit` is less than 1.
            JobExecutionError: the job has failed; the iteration raises it.
        """
        if limit is not None and limit < 1:
            raise GraphError(f"execute_and_collect: limit must be at least 1, got {limit}.")
        stream = self.plumbing.program.new_collect_stream()
        self.plumbing.collect_into(stream)
        control = self.plumbing.environment.plumbing.submit(job_execution_name)
        try:
            iterator: CloseableIterator[T] = CloseableIterator(control, stream, self.get_type())
        except KeyboardInterrupt:
            control.interrupted()  # The job runs already, and has no reader.
            raise
        return iterator if limit is None else take(iterator, limit)

    def to_spark(self, name: str | None = None, output_type: TypeInformation | None = None) -> Any:
        """Return the stream as a Spark DataFrame. Not in PyFlink.

        In runtime mode BATCH nothing runs before Spark needs the rows. Otherwise the job, which
        must be bounded, runs now.

        Args:
            name: also registers the DataFrame as a temporary view of this name.
            output_type: the type of the records, if the stream does not declare one.

        Raises:
            GraphError: no type is declared, or Spark has no such type (with the column's path).
            JobExecutionError: the job has failed.
        """
        from penstock.datastream.data_stream.frames import to_frame

        values = self.plumbing.without_key()
        frame = to_frame(values, output_type or values.element_type)
        if name is not None:
            frame.createOrReplaceTempView(name)
        return frame
