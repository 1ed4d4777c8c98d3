"""The execution plan as JSON text.

Source: Flink JSONGenerator, with PyFlink's merging of operators.

Python operators that run in one chain are shown as one node, with their names joined by `, `. PyFlink has operators of
its own that take the key of a record and remove it again. The plan shows these operators, although in Penstock their
work is part of the neighbouring operators.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.datastream.building.adapters import Projection
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.graph.stream_graph import (
    ChainingStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import MapOperator

TAKES_KEY: Final = "_stream_key_by_map_operator"
TAKES_CHANNEL: Final = "_partition_custom_map_operator"
LETS_GO: Final = "_keyed_stream_values_operator"


def plan_json(graph: StreamGraph, is_sink: Callable[[int], bool], default_parallelism: int) -> str:
    """The plan. `default_parallelism` is shown for operators that set none."""
    graph = with_key_operators(graph)
    shapes = _Shapes(graph, is_sink, default_parallelism)
    heads = {node_id: shapes.head_of(node_id) for node_id in graph.nodes}
    nodes = []
    for node_id in graph.nodes:
        if heads[node_id] == node_id:
            members = [member for member, head in heads.items() if head == node_id]
            nodes.append(shapes.describe(node_id, members, heads))
    return json.dumps({"nodes": nodes}, indent=2)


def with_key_operators(graph: StreamGraph) -> StreamGraph:
    """The graph with the operators that PyFlink adds around keys and channels.

    In front of each partitioning by a function stands an operator that takes the key (or channel); all readers share
    it. In front of operators that are not keyed stands an operator that removes the key again.
    """
    defaults = dict(graph.default_parallelisms)
    shown = replace(graph, nodes={}, edges=[], default_parallelisms=defaults)
    made: dict[Any, int] = {}

    def shown_as(name: str, edge: StreamEdge, source: int) -> int:
        keys = edge.partitioning and (edge.partitioning.key_selector, edge.partitioning.custom)
        place = (name, source, edge.tag, *map(id, keys or ()))
        if place not in made:
            made[place] = max(graph.nodes) + 1 + len(made)
            parallelism = -1 if name == LETS_GO else shown.nodes[source].parallelism
            shown.nodes[made[place]] = StreamNode(made[place], name, None, parallelism)
            if name != LETS_GO and source in shown.default_parallelisms:
                shown.default_parallelisms[made[place]] = shown.default_parallelisms[source]
            partitioning = edge.partitioning if name == LETS_GO else None
            tag = None if name == LETS_GO else edge.tag
            shown.edges.append(StreamEdge(source, made[place], partitioning, tag=tag))
        return made[place]

    for node_id, node in graph.nodes.items():
        edges = []
        for edge in graph.inputs_of(node_id):
            if (name := _name_of_step(edge)) is not None:
                source = shown_as(name, edge, edge.source)
                edge = replace(edge, source=source, tag=None)  # ruff: ignore[redefined-loop-name]
                if name == TAKES_CHANNEL or not _is_keyed(node):
                    source = shown_as(LETS_GO, edge, source)
                    edge = replace(edge, source=source, partitioning=None)  # ruff: ignore[redefined-loop-name]
            edges.append(edge)
        shown.nodes[node_id] = node
        shown.edges += edges
    return shown


def _name_of_step(edge: StreamEdge) -> str | None:
    """PyFlink's name for the operator that finds out where a record goes; None: there is no such operator."""
    partitioning = edge.partitioning
    if partitioning is None or not isinstance(partitioning.key_selector, KeySelection):
        return None
    if partitioning.strategy is ShipStrategy.CUSTOM:
        return TAKES_CHANNEL
    return TAKES_KEY if partitioning.key_selector.columns is None else None


def _is_keyed(node: StreamNode) -> bool:
    return getattr(node.operator, "keys", None) is not None


def _is_java(node: StreamNode) -> bool:
    """Whether PyFlink leaves the operator to the JVM, so that it is never merged with a Python operator."""
    operator = node.operator
    return isinstance(operator, MapOperator) and isinstance(operator.function.call, Projection)


class _Shapes:
    """What the plan says of each node."""

    def __init__(
        self, graph: StreamGraph, is_sink: Callable[[int], bool], default_parallelism: int
    ) -> None:
        self._graph = graph
        self._is_sink = is_sink
        self._default_parallelism = default_parallelism

    def head_of(self, node_id: int) -> int:
        """The first operator of the run of Python operators that this one is merged into."""
        while (before := self._merged_into(node_id)) is not None:
            node_id = before
        return node_id

    def describe(self, node_id: int, members: list[int], heads: dict[int, int]) -> dict[str, Any]:
        node = self._graph.nodes[node_id]
        names = [self._graph.nodes[member].name for member in members]
        pact = "Operator"
        if node.is_source:
            pact = "Data Source"
        elif self._is_sink(node_id):
            pact = "Data Sink"
        shown: dict[str, Any] = {
            "id": node_id,
            "type": ", ".join(names),
            "pact": pact,
            "contents": ", ".join(
                self._graph.nodes[member].description or self._graph.nodes[member].name
                for member in members
            ),
            "parallelism": self._parallelism(node_id),
        }
        edges = self._graph.inputs_of(node_id)
        if edges:
            shown["predecessors"] = [
                {
                    "id": heads[edge.source],
                    "ship_strategy": self._ship_strategy(edge).value,
                    "side": "second",
                }
                for edge in edges
            ]
        return shown

    def _merged_into(self, node_id: int) -> int | None:
        node = self._graph.nodes[node_id]
        edges = self._graph.inputs_of(node_id)
        if len(edges) != 1 or self._is_sink(node_id) or not self._graph.is_chaining_enabled:
            return None
        edge = edges[0]
        before = self._graph.nodes[edge.source]
        has_other_place = node.slot_sharing_group not in {None, before.slot_sharing_group}
        is_alone = edge.tag is None and len(self._graph.outputs_of(edge.source)) == 1
        if (
            before.is_source
            or has_other_place
            or not is_alone
            or _is_java(node)
            or _is_java(before)
        ):
            return None
        may_chain = (
            self._ship_strategy(edge) is ShipStrategy.FORWARD
            and node.chaining_strategy is ChainingStrategy.ALWAYS
            and before.chaining_strategy is not ChainingStrategy.NEVER
        )
        return edge.source if may_chain else None

    def _parallelism(self, node_id: int) -> int:
        parallelism = self._graph.nodes[node_id].parallelism
        if parallelism > 0:
            return parallelism
        return self._graph.default_parallelisms.get(node_id, self._default_parallelism)

    def _ship_strategy(self, edge: StreamEdge) -> ShipStrategy:
        if edge.partitioning is not None:
            return edge.partitioning.strategy
        is_equal = self._parallelism(edge.source) == self._parallelism(edge.target)
        return ShipStrategy.FORWARD if is_equal else ShipStrategy.REBALANCE
