"""The program under construction: nodes and edges as the API's methods add them.

Does not know any host, and no operators except those of cached streams. Source: Flink
StreamExecutionEnvironment.transformations and StreamGraphGenerator. As there, a node stays usable after `execute`: a
run takes the nodes added since the last run, and all nodes that lead to them.

Takes the snapshot of user code that a method of the API was given.

Source: PyFlink, which pickles a function in `map`, `process` and so on; Flink ClosureCleaner's ensureSerializable.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from penstock.engine.hosting.shipping.pickling import deserialize, serialize
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import Partitioning, StreamExchangeMode
from penstock.engine.model.graph.stream_graph import ErrorRule, StreamEdge, StreamGraph, StreamNode
from penstock.engine.model.own_places import PACKAGE_FOLDER
from penstock.engine.model.program import JobControl
from penstock.engine.model.types import is_pickled, taking_tuples
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar
from penstock.engine.runtime.operator import Accepts, Operator
from penstock.engine.runtime.operators import SinkOperator
from penstock.engine.runtime.sink import Sink
from penstock.engine.runtime.sources.contract import Source
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy

_V = TypeVar("_V")


def as_given(value: _V, what: str, defined_at: str) -> _V:
    """A copy that what the program changes later does not reach. `what`, `defined_at`: for the error's text.

    Raises: GraphError: it cannot be pickled.
    """
    try:
        copy: _V = deserialize(serialize(value))
    except Exception as error:  # Pickling runs user code, which may raise anything.
        raise GraphError(
            f"{what}, built at {defined_at or 'an unknown place'}, cannot be sent to the "
            f"TaskManagers: {type(error).__name__}: {error}. A function, and all that it refers "
            "to, must be picklable: open files, locks, sockets and sessions belong into open(), "
            "not into the constructor or a closure."
        ) from error
    return copy


@dataclass(frozen=True, slots=True)
class Upstream:
    """The input of an operator: the main output of another operator, or its side output `tag`, and how it is split.

    `input_index`: which logical input of the reader it is. `exchange_mode`: whether the reader runs at the same time.
    """

    node_id: int
    tag: str | None = None
    partitioning: Partitioning | None = None
    input_index: int = 0
    exchange_mode: StreamExchangeMode = StreamExchangeMode.UNDEFINED


class ProgramEndpoint(Protocol):
    """A Source or a Sink, as far as the program needs to know it."""

    def validate(self) -> None: ...


class Cache(Protocol):
    """The records of a cached stream. `sink_id`: the node that keeps them."""

    sink_id: int

    def open(self, folder: str) -> None:
        """Prepares the place where the next job keeps its records."""

    def computed_by(self, job: JobControl) -> None:
        """Makes the kept records count as soon as this job has finished."""

    def source(self) -> Source | None:
        """A source of the records that an earlier job has kept; None: there are none."""

    def sink(self) -> Sink | None:
        """A sink that keeps the records of the job that is being built; None: they are not kept."""

    def invalidate(self) -> None:
        """Forgets the kept records."""


class Program:
    """All nodes ever added, and those of them that no run has taken yet (the pending ones)."""

    def __init__(self, default_parallelism: Callable[[], int] = lambda: -1) -> None:
        """`default_parallelism`: of operators that are added now; -1: it is not set."""
        self._default_parallelism = default_parallelism
        self._default_parallelisms: dict[int, int] = {}
        self.nodes: dict[int, StreamNode] = {}
        self._edges: list[StreamEdge] = []
        self._pending: list[int] = []
        self._sinks: set[int] = set()
        self.endpoints: dict[int, ProgramEndpoint] = {}
        self.readers: list[Callable[[JobControl], None]] = []
        """Called with the job when it is submitted; they read the results that the job sends to the driver."""
        self.caches: dict[int, Cache] = {}
        self.error_rules: dict[int, ErrorRule] = {}
        self._takes_tuples: set[int] = set()
        self._collect_streams = 0

    def add_source(
        self,
        name: str,
        operator: object,
        endpoint: ProgramEndpoint,
        *,
        takes_tuples: bool = False,
        **fields: Any,
    ) -> StreamNode:
        """Adds a source. A source alone is not run: it becomes part of a run with the operators that read it.

        `takes_tuples`: functions downstream of the source may return tuples where a ROW is declared.
        """
        node = self._add(name, operator, endpoint, is_source=True, **fields)
        if takes_tuples:
            self._takes_tuples.add(node.node_id)
        return node

    def add_operator(
        self,
        name: str,
        operator: object,
        inputs: Sequence[Upstream],
        endpoint: ProgramEndpoint | None = None,
        **fields: Any,
    ) -> StreamNode:
        """Adds an operator. Several upstreams with the same `input_index` are a union."""
        node = self._add(name, operator, endpoint, **fields)
        if any(upstream.node_id in self._takes_tuples for upstream in inputs):
            self._takes_tuples.add(node.node_id)
            node.output_type = self.declared(node, node.output_type)
        for upstream in inputs:
            self._edges.append(
                StreamEdge(
                    upstream.node_id,
                    node.node_id,
                    upstream.partitioning,
                    upstream.input_index,
                    upstream.tag,
                    upstream.exchange_mode,
                )
            )
        self._pending.append(node.node_id)
        return node

    def add_sink(
        self,
        name: str,
        operator: object,
        inputs: Sequence[Upstream],
        endpoint: ProgramEndpoint | None = None,
        **fields: Any,
    ) -> StreamNode:
        node = self.add_operator(name, operator, inputs, endpoint, **fields)
        self._sinks.add(node.node_id)
        return node

    def add_cache(
        self,
        operator: object,
        inputs: Sequence[Upstream],
        output_type: Any,
        make: Callable[[int], Cache],
    ) -> StreamNode:
        """Adds a cache; `operator` passes the records on.

        In a job that computes the records, a sink stands next to it. In later jobs it is a source.
        """
        node = self.add_operator("Cache", operator, inputs, output_type=output_type)
        sink = self.add_sink("Cached Data", None, (Upstream(node.node_id),))
        self._pending.remove(sink.node_id)
        self.caches[node.node_id] = make(sink.node_id)
        return node

    def declared(self, node: StreamNode, type_info: Any) -> Any:
        """The declared type, as functions of the node have to keep it."""
        if type_info is None or node.node_id not in self._takes_tuples:
            return type_info
        return taking_tuples(type_info)

    def new_collect_stream(self) -> str:
        self._collect_streams += 1
        return f"collect-{self._collect_streams}"

    def taken(self, node_ids: Collection[int]) -> Program:
        """A program of these nodes and all nodes that lead to them. They are no longer pending here."""
        self._pending = [one for one in self._pending if one not in node_ids]
        part = copy.copy(self)
        part._pending = list(node_ids)  # ruff: ignore[private-member-access] - it is a Program, too
        return part

    def graph(self) -> StreamGraph:
        """The graph of the pending nodes and all nodes that lead to them, in the order in which they were made."""
        if not self._pending:
            raise GraphError(
                "No operators defined in streaming topology. Cannot execute. Add an operator or a "
                "sink (print(), sink_to(...)) to a stream before execute()."
            )
        kept = {one: found for one, cache in self.caches.items() if (found := cache.source())}
        wanted = self._closure(kept)
        live: dict[int, dict[str, Any]] = {one: {} for one in wanted}
        for node_id in kept.keys() & wanted:
            live[node_id] = _source_fields(kept[node_id])
        for node_id in (self.caches.keys() & wanted) - kept.keys():
            cache = self.caches[node_id]
            if (sink := cache.sink()) is not None:
                live[cache.sink_id] = {"operator": SinkOperator(sink), "coordinator": sink}
                self.endpoints[cache.sink_id] = sink
        defaults = {one: n for one, n in self._default_parallelisms.items() if one in live}
        graph = StreamGraph(default_parallelisms=defaults)
        for node_id in sorted(live):
            node = replace(self.nodes[node_id], **live[node_id])
            rule = self.error_rules.get(node_id)
            if rule is not None and node_id not in kept:
                _check_dead_letters(node, rule)
                graph.error_rules[node_id] = rule
            graph.nodes[node_id] = replace(node, name=self._shown_name(node))
        graph.edges = [
            edge for edge in self._edges if edge.target in live and edge.target not in kept
        ]
        return graph

    def validate(self, graph: StreamGraph) -> None:
        """Asks the sources and sinks of `graph` to check their settings, and sinks to check what they get. Raises: GraphError: an
        operator on columns gets records that never become columns.
        """
        for node_id, endpoint in self.endpoints.items():
            if node_id in graph.nodes:
                endpoint.validate()
        for edge in graph.edges:
            sink = self.endpoints.get(edge.target)
            above, tag = graph.nodes[edge.source], edge.tag
            kind: Any = above.output_type if tag is None else above.side_output_types.get(tag)
            if isinstance(sink, Sink):
                sink.validate_input(kind)
            _check_columns(graph, edge, kind)

    def clear(self) -> None:
        """Marks everything as taken by a run."""
        self._pending.clear()
        self.readers.clear()

    def is_sink(self, node_id: int) -> bool:
        return node_id in self._sinks

    def _closure(self, ends: Collection[int]) -> set[int]:
        """The pending nodes and those that lead to them, not going beyond `ends`."""
        sources: dict[int, list[int]] = {}
        for edge in self._edges:
            sources.setdefault(edge.target, []).append(edge.source)
        wanted: set[int] = set()
        waiting = list(self._pending)
        while waiting:
            node_id = waiting.pop()
            if node_id not in wanted:
                wanted.add(node_id)
                waiting.extend(() if node_id in ends else sources.get(node_id, ()))
        return wanted

    def _shown_name(self, node: StreamNode) -> str:
        if node.is_source:
            return f"Source: {node.name}"
        if node.node_id in self._sinks:
            return f"Sink: {node.name}"
        return node.name

    def _add(
        self,
        name: str,
        operator: object,
        endpoint: ProgramEndpoint | None,
        coordinator: object = None,
        **fields: Any,
    ) -> StreamNode:
        """Adds a node with what the program gives it as it is now; what is one object stays one.

        A sink commits in this process, so the program's own object does it, and the program can look at that.
        """
        where, what = caller_location(), f"operator '{name}'"
        if isinstance(coordinator, Sink):
            operator = as_given(operator, what, where)
        else:
            given = operator, coordinator, endpoint
            operator, coordinator, endpoint = as_given(given, what, where)
        node_id = len(self.nodes) + 1
        node = StreamNode(
            node_id, name, operator, coordinator=coordinator, defined_at=where, **fields
        )
        self.nodes[node_id] = node
        if endpoint is not None:
            self.endpoints[node_id] = endpoint
        if (default := self._default_parallelism()) > 0:
            self._default_parallelisms[node.node_id] = default
        return node

    def give_parallelism(self, node_id: int, of: int) -> None:
        """Give a node the parallelism that another one has by now."""
        self.nodes[node_id].parallelism = self.nodes[of].parallelism
        self._default_parallelisms.pop(node_id, None)
        if of in self._default_parallelisms:
            self._default_parallelisms[node_id] = self._default_parallelisms[of]


def _check_dead_letters(node: StreamNode, rule: ErrorRule) -> None:
    """Raises: GraphError: the operator sends dead letters that nobody reads."""
    if rule.tag is not None and rule.tag not in node.side_output_types:
        raise GraphError(
            f"the dead letters of operator '{node.name}' (built at {node.defined_at}) go to the "
            f"side output {rule.tag!r}, which "
            'nobody reads. Read it with get_side_output(tag), or use on_error("skip"), which only '
            "counts and logs."
        )


def _check_columns(graph: StreamGraph, edge: StreamEdge, kind: Any) -> None:
    """Raises: GraphError: the reader of the edge takes columns, and the records never become columns."""
    reader = graph.nodes[edge.target]
    if not isinstance(reader.operator, Operator) or reader.operator.accepts is not Accepts.COLUMNS:
        return
    if is_columnar(kind) or (is_pickled(kind) and not _gives_rows(graph, edge)):
        return
    try:
        arrow_schema(kind)
    except TypeError as error:
        raise GraphError(
            f"operator '{reader.name}' (built at {reader.defined_at}) takes columns: {error}"
        ) from error


def _gives_rows(graph: StreamGraph, edge: StreamEdge) -> bool:
    """Whether what has no declared type comes as Python objects for certain."""
    giver = graph.nodes[edge.source]
    if isinstance(giver.coordinator, Source):
        return giver.coordinator.gives_rows
    operator = giver.operator
    if not isinstance(operator, Operator) or operator.accepts is Accepts.COLUMNS:
        return False
    if operator.keeps_records and edge.tag is None:
        return any(_gives_rows(graph, one) for one in graph.inputs_of(edge.source))
    return operator.calls_function


def _source_fields(source: Source) -> dict[str, Any]:
    """The fields that turn a node into a reader of this source."""
    operator = SourceOperator(source, WatermarkStrategy.no_watermarks())
    return {"operator": operator, "coordinator": source, "is_source": True, "is_bounded": True}


def caller_location() -> str:
    """`file:line` of the innermost frame outside this package: the user's call."""
    frame = sys._getframe(1)  # ruff: ignore[private-member-access]
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(PACKAGE_FOLDER):
            return f"{filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""
