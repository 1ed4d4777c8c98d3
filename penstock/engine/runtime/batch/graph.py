"""The graph of a program as it runs in BATCH mode: operators give only final results, and partial ones combine before exchanges.

Does not know where the graph runs. Source: Flink StreamGraphGenerator with RuntimeExecutionMode.BATCH; combining before the shuffle
is taken from Spark.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.graph.stream_graph import (
    ChainingStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from penstock.engine.runtime.operator import Combining, Operator


def in_batch(graph: StreamGraph, *, is_combining: bool = True) -> StreamGraph:
    """The graph that runs in BATCH mode; `graph` itself is not changed. `is_combining` False: add no operators that combine."""
    nodes = {
        node_id: replace(node, operator=node.operator.in_batch())
        if isinstance(node.operator, Operator)
        else node
        for node_id, node in graph.nodes.items()
    }
    defaults = dict(graph.default_parallelisms)
    found = replace(graph, nodes=nodes, edges=list(graph.edges), default_parallelisms=defaults)
    # Without chaining a combining operator would be a stage of its own, and its input would be
    # shuffled too.
    if is_combining and graph.is_chaining_enabled:
        for node_id in graph.nodes:
            _combine_before(found, node_id)
    return found


def _combine_before(graph: StreamGraph, node_id: int) -> None:
    """Insert a combining node at the near end of each edge into this node. It is chained to the edge's source."""
    node, edges = graph.nodes[node_id], graph.inputs_of(node_id)
    combining = node.operator.before_exchange() if isinstance(node.operator, Operator) else None
    # A record that is put aside would be a combined one, which nobody has sent.
    if (
        node_id in graph.error_rules
        or combining is None
        or not all(_may_combine(graph, edge) for edge in edges)
    ):
        return
    graph.nodes[node_id] = replace(node, operator=combining.final)
    for edge in edges:
        partial = _partial_node(graph, edge, combining)
        # Its id is above all others, because ids that depend on the position of a node must not
        # change.
        graph.nodes[partial.node_id] = partial
        graph.default_parallelisms[partial.node_id] = graph.default_of(edge.source)
        to_it = StreamEdge(
            edge.source, partial.node_id, Partitioning(ShipStrategy.FORWARD), tag=edge.tag
        )
        assert edge.partitioning is not None, "a combined edge is partitioned by key"
        by_key = replace(edge.partitioning, key_selector=combining.keys, columns=None)
        from_it = replace(edge, source=partial.node_id, tag=None, partitioning=by_key)
        place = graph.edges.index(edge)
        graph.edges[place : place + 1] = [to_it, from_it]


def _may_combine(graph: StreamGraph, edge: StreamEdge) -> bool:
    is_keyed = edge.partitioning is not None and edge.partitioning.strategy is ShipStrategy.HASH
    return is_keyed and graph.nodes[edge.source].chaining_strategy is not ChainingStrategy.NEVER


def _partial_node(graph: StreamGraph, edge: StreamEdge, combining: Combining) -> StreamNode:
    up, down = graph.nodes[edge.source], graph.nodes[edge.target]
    kept = up.output_type if edge.tag is None else up.side_output_types.get(edge.tag)
    return StreamNode(
        node_id=max(graph.nodes) + 1,
        name=f"{down.name} (partial)",
        operator=combining.partial,
        parallelism=up.parallelism,
        max_parallelism=up.max_parallelism,
        slot_sharing_group=up.slot_sharing_group,
        output_type=kept if combining.keeps_type else None,
        defined_at=down.defined_at,
    )
