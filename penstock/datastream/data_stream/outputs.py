"""What a program does with the records of a stream: print them, write them to sinks, or take them to the driver.

Source: the methods of pyflink.datastream.data_stream.DataStream.

Requests for the side outputs of an operator. Source: pyflink.datastream.data_stream.DataStream.get_side_output.

Settings of a stream's operator: its name, uid, parallelism, chain and slot. Builds the graph, runs nothing.

Source: the methods of pyflink.datastream.data_stream.DataStream.
"""

from __future__ import annotations

from typing import Any, Generic, Self, overload

from penstock.common.execution_config import (
    ExecutionConfig,
    check_max_parallelism,
    check_parallelism,
)
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import SupportsPreprocessing
from penstock.connectors.sinks import CollectingSink
from penstock.datastream.building.checks import built
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.data_stream.error_handling import set_policy
from penstock.datastream.data_stream.iterator import CloseableIterator, client_values, take
from penstock.datastream.data_stream.sink import DataStreamSink, group_name
from penstock.datastream.error_policy import ErrorPolicy
from penstock.datastream.functions import SinkFunction
from penstock.datastream.functions.type_variables import T
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.graph.stream_graph import ChainingStrategy, ErrorRule, StreamNode
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.sink import Sink


class OperatorSettings:
    """Settings of the operator whose output a stream is. The setters return the stream itself."""

    def __init__(self, plumbing: StreamPlumbing) -> None:
        self.plumbing = plumbing

    def get_name(self) -> str:
        """Return the operator's name."""
        return self._node("get_name").name

    def name(self, name: str) -> Self:
        """Set the operator's name, as metrics, logs and the console show it."""
        self._node("name").name = name
        return self

    def uid(self, uid: str) -> Self:
        """Set a stable id, by which a savepoint assigns state to the operator."""
        self._node("uid").uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Do the same as `uid`: the operator's id is the given text."""
        return self.uid(uid_hash)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of parallel subtasks.

        Raises:
            GraphError: the operator runs with one fixed parallelism only.
        """
        check_parallelism(parallelism)
        node = self._node("set_parallelism")
        if node.is_parallelism_fixed and parallelism != node.parallelism:
            raise GraphError(
                f"operator '{node.name}' (built at {node.defined_at}) runs only with parallelism "
                f"{node.parallelism}, got {parallelism}. Leave it, or call rebalance() and set the "
                "parallelism of the next operator."
            )
        node.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, which limits the parallelism, also after rescaling."""
        check_max_parallelism(max_parallelism)
        self._node("set_max_parallelism").max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> Self:
        """Fix the parallelism and the maximum parallelism to 1."""
        node = self._node("force_non_parallel")
        node.parallelism = node.max_parallelism = 1
        node.is_parallelism_fixed = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Set how long a record may wait for its buffer to fill.

        Args:
            timeout_millis: in ms. 0: flush after each batch; -1: flush full buffers only.
        """
        check_whole("buffer timeout (-1: none)", timeout_millis, -1, "ms")
        self._node("set_buffer_timeout").buffer_timeout_ms = timeout_millis
        return self

    def start_new_chain(self) -> Self:
        """Do not chain this operator to the one before it; others may chain to this one."""
        self._node("start_new_chain").chaining_strategy = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Do not chain this operator with any other."""
        self._node("disable_chaining").chaining_strategy = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Put the operator's subtasks into this slot sharing group, by name or as an object."""
        if isinstance(slot_sharing_group, SlotSharingGroup):
            self.plumbing.environment.register_slot_sharing_group(slot_sharing_group)
        node = self._node("slot_sharing_group")
        node.slot_sharing_group = group_name(slot_sharing_group)
        return self

    def set_co_location_group(self, key: str | None) -> Self:
        """Put subtask i of all operators with the same key into one slot; None: no group.

        Flink has this in its Java API only.
        """
        self._node("set_co_location_group").co_location_key = key
        return self

    def set_description(self, description: str) -> Self:
        """Set a longer description, which the console and the plan show."""
        self._node("set_description").description = description
        return self

    def on_error(self, policy: ErrorPolicy | OutputTag | Sink | str) -> Self:
        """Set what becomes of a record at which a function of this operator raises. Not in PyFlink.

        Without a policy the job fails. Nothing is rolled back when a record is put aside: the state
        that the function changed and the results that it yielded before it raised stay. Set it on a
        source for what its format cannot read, and on the result of `key_by` for the key selector.

        Args:
            policy: "fail", "skip" (count, log a sample, go on), an OutputTag (send a DeadLetter
                there as well), a Sink (write the dead letters there), or an ErrorPolicy.

        Raises:
            GraphError: the operator calls no function of yours.
        """
        set_policy(self._node("on_error"), self.plumbing, policy)
        return self

    def _node(self, method: str) -> StreamNode:
        """The operator whose main output this stream is."""
        return self.plumbing.node(method)


def request_side_output(
    node: StreamNode, rule: ErrorRule | None, tag_id: str, type_info: object
) -> None:
    """Notes on the operator that this tag is read, with its type. `rule`: what the operator does with poison records. Raises: GraphError: it is read with another type
    already.
    """
    former = node.side_output_types.setdefault(tag_id, type_info)
    if former != type_info:
        raise GraphError(
            f"operator '{node.name}' (built at {node.defined_at}) has a side output {tag_id!r} of "
            f"type {former} already, got {type_info}. Give each of the two OutputTags an id of its "
            f"own. {built('get_side_output')}."
        )
    if rule is not None and rule.tag == tag_id:
        return
    operator: Any = node.operator
    requested = getattr(operator, "side_tags", None)
    if requested is not None:
        if tag_id not in requested:
            operator.side_tags = (*requested, tag_id)
    elif getattr(operator, "late_tag", None) != tag_id:
        raise GraphError(
            f"operator '{node.name}' (built at {node.defined_at}) has no side output {tag_id!r}. "
            "Call get_side_output on the result of process(...), map, flat_map or a window: their "
            "functions may return (tag, value). Late records need side_output_late_data(tag), "
            "too, and "
            "dead letters need on_error(tag) before."
        )


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
