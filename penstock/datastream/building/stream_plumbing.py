"""The part of the program that a stream stands for, and how operators and sinks are added after it.

Does not know any stream class. Source: Flink DataStream.transform and the partition transformations; differs: a
partitioning is part of an edge, not a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from penstock.common.execution_config import ExecutionConfig
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.common.types import Row
from penstock.datastream.building import adapters as adapt
from penstock.datastream.building.environment_plumbing import EnvironmentPlumbing
from penstock.datastream.building.program import Program, ProgramEndpoint, Upstream
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy, StreamExchangeMode
from penstock.engine.model.graph.stream_graph import StreamNode
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Operator

# ---------------------------------------------------------------------- environment port
# The part of the environment that streams use, as a Protocol, so that they do not depend on its
# class.


class EnvironmentPort(Protocol):
    """The environment as streams see it; `StreamExecutionEnvironment` implements it."""

    @property
    def plumbing(self) -> EnvironmentPlumbing:
        """The program under construction, its settings, and what runs it."""

    def get_config(self) -> ExecutionConfig: ...

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Any: ...


# ---------------------------------------------------------------------- stream plumbing


@dataclass(eq=False, slots=True)
class StreamPlumbing:
    """The state of a stream, for Penstock's own classes and tests; programs use the methods of the streams.

    `element_type` None: the type is not declared.
    """

    environment: EnvironmentPort
    upstreams: tuple[Upstream, ...]
    element_type: TypeInformation | None

    @property
    def program(self) -> Program:
        return self.environment.plumbing.program

    @property
    def type_info(self) -> TypeInformation:
        return self.element_type or Types.PICKLED_BYTE_ARRAY()

    # ---------------------------------------------------------- other views of the stream

    def without_key(self) -> StreamPlumbing:
        """The stream before key_by."""
        return self

    def in_partitions(self) -> StreamPlumbing:
        """The partitioned stream without its key: each subtask gets all records of some keys."""
        return self

    def for_client(self) -> StreamPlumbing:
        """The stream whose values the client gets."""
        return self

    def partitioned(self, partitioning: Partitioning) -> StreamPlumbing:
        return self._of(replace(one, partitioning=partitioning) for one in self.upstreams)

    def with_exchange_mode(self, mode: StreamExchangeMode) -> StreamPlumbing:
        return self._of(replace(one, exchange_mode=mode) for one in self.upstreams)

    def together_with(self, others: Iterable[StreamPlumbing]) -> StreamPlumbing:
        """The union with these streams, with this stream's type."""
        streams = (self, *others)
        return self._of(one for stream in streams for one in stream.upstreams)

    def with_names_of(self, row_type: RowTypeInfo) -> StreamPlumbing:
        """The stream with the field names of that ROW type, if the types differ only in their names."""
        own = self.element_type
        if own == row_type or not isinstance(own, RowTypeInfo):
            return self
        if own.get_field_types() != row_type.get_field_types():
            return self
        renaming = adapt.map_function(adapt.Renaming(tuple(row_type.get_field_names())))
        return self.add_beside("Map", ops.MapOperator(renaming), row_type)

    def passed_on(self) -> StreamPlumbing:
        """Adds an operator that passes every record on, and returns its stream."""
        return self.add_operator(
            "Map", ops.MapOperator(adapt.map_function(_same)), self.element_type
        )

    # ---------------------------------------------------------- adding operators and sinks

    def add_operator(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        second: StreamPlumbing | None = None,
        **fields: Any,
    ) -> StreamPlumbing:
        """Adds an operator downstream of this stream. `second`: the stream at the operator's second input."""
        declared = adapt.declared_type(output_type, name)
        others = () if second is None else second.upstreams
        inputs = (*self.upstreams, *(replace(other, input_index=1) for other in others))
        node = self.program.add_operator(name, operator, inputs, output_type=declared, **fields)
        return StreamPlumbing(self.environment, (Upstream(node.node_id),), declared)

    def add_beside(
        self, name: str, operator: Operator, output_type: TypeInformation | None
    ) -> StreamPlumbing:
        """Adds an operator with the parallelism of the operator before it, so that the order of records stays."""
        added = self.add_operator(name, operator, output_type)
        self.give_parallelism(added.upstreams[0].node_id)
        return added

    def add_sink(
        self, name: str, operator: Operator, endpoint: ProgramEndpoint | None = None, **fields: Any
    ) -> StreamNode:
        return self.program.add_sink(name, operator, self.upstreams, endpoint, **fields)

    def collect_into(self, stream: str) -> StreamNode:
        """Adds a sink that sends the values to the driver, under this name."""
        collected = self.for_client()
        sink = collected.add_sink(
            "Data stream collect sink",
            ops.CollectOperator(),
            driver_stream=stream,
            output_type=collected.element_type,
        )
        collected.give_parallelism(sink.node_id)
        return sink

    # ---------------------------------------------------------- the operator before this stream

    def node(self, method: str) -> StreamNode:
        """The operator whose main output this stream is. Raises: GraphError: there is none, or more than one.

        In PyFlink side outputs and the results of partition_custom end with a map. Here that map is added only when a
        program sets something on it.
        """
        if len(self.upstreams) != 1:
            raise GraphError(
                f"{method}() on a union: a union is no operator. Call {method}() on the streams "
                "before union(...), or on the operator after it."
            )
        upstream = self.upstreams[0]
        partitioning = upstream.partitioning
        is_custom = partitioning is not None and partitioning.strategy is ShipStrategy.CUSTOM
        if upstream.tag is not None or is_custom:
            self.upstreams = self.passed_on().upstreams
        elif partitioning is not None:
            raise GraphError(
                f"{method}() on a partitioning: a partitioning is no operator. Call {method}() on "
                "the operator before or after it."
            )
        return self.program.nodes[self.upstreams[0].node_id]

    def give_parallelism(self, node_id: int) -> None:
        """Give a node the parallelism of the operator before this stream, if that is a single one."""
        if len(self.upstreams) == 1 and self.upstreams[0].partitioning is None:
            self.program.give_parallelism(node_id, self.upstreams[0].node_id)

    def _of(self, upstreams: Iterable[Upstream]) -> StreamPlumbing:
        return StreamPlumbing(self.environment, tuple(upstreams), self.element_type)


@dataclass(eq=False, slots=True)
class KeyedPlumbing(StreamPlumbing):
    """The state of a keyed stream. `unkeyed`: the stream before key_by. `keys`: how records get their key."""

    unkeyed: StreamPlumbing
    keys: KeySelection

    def without_key(self) -> StreamPlumbing:
        return self.unkeyed

    def in_partitions(self) -> StreamPlumbing:
        return self._of(self.upstreams)

    def for_client(self) -> StreamPlumbing:
        """`Row(f0=key, f1=value)`, as PyFlink gives a keyed stream to the client."""
        operator = ops.MapOperator(adapt.map_function(_KeyedRow(self.keys)))
        return self.unkeyed.add_beside("_stream_key_by_map_operator", operator, None)

    def with_exchange_mode(self, mode: StreamExchangeMode) -> KeyedPlumbing:
        changed = (replace(one, exchange_mode=mode) for one in self.upstreams)
        return replace(self, upstreams=tuple(changed))


def keyed(hashed: StreamPlumbing, unkeyed: StreamPlumbing, keys: KeySelection) -> KeyedPlumbing:
    """A keyed stream. `hashed`: the stream partitioned by key. `unkeyed`: the stream before that."""
    return KeyedPlumbing(hashed.environment, hashed.upstreams, hashed.element_type, unkeyed, keys)


def _same(value: Any) -> Any:
    return value


class _KeyedRow:
    """Puts a record and its key into a row."""

    def __init__(self, keys: KeySelection) -> None:
        self._keys = keys

    def __call__(self, value: Any) -> Row:
        key = self._keys.keys_of_rows([value])[0]
        row = Row(key, value)
        row.set_field_names(["f0", "f1"])
        return row
