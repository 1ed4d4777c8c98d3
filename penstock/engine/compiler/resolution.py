"""Decides what a program leaves open (parallelism, slot sharing groups, partitionings), and checks the program.

Does not know chains. Source: Flink StreamGraphGenerator (determineSlotSharingGroup, addEdge). Every
error names the operators with the line of the user's program that made them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.auto_parallelism import UNDECIDED
from penstock.engine.model.graph.job_graph import topological_order
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy, StreamExchangeMode
from penstock.engine.model.graph.stream_graph import (
    DEFAULT_SLOT_SHARING_GROUP,
    ErrorRule,
    StreamEdge,
    StreamGraph,
    StreamNode,
)

UNSET = -1


@dataclass(frozen=True, slots=True)
class ResolvedNode:
    """A node on which everything is decided, with two exceptions: its max parallelism, which is decided per chain, and
    in a BATCH job its parallelism, which may still be `auto_parallelism.UNDECIDED`.
    """

    node: StreamNode
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str

    def __str__(self) -> str:
        return describe(self.node)


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedEdge:
    """A stream edge with its partitioning. `twin`: the number of this edge among those between the
    same two nodes and the same input.
    """

    source: int
    target: int
    partitioning: Partitioning
    input_index: int
    tag: str | None
    twin: int
    exchange_mode: StreamExchangeMode = StreamExchangeMode.UNDEFINED


@dataclass(slots=True)
class ResolvedGraph:
    """A checked program. `order`: node ids from sources to sinks."""

    nodes: dict[int, ResolvedNode]
    edges: list[ResolvedEdge]
    order: list[int]
    is_chaining_enabled: bool
    buffer_timeout_ms: int
    edges_into: dict[int, list[ResolvedEdge]] = field(default_factory=dict)
    uids: dict[int, str] = field(default_factory=dict)
    error_rules: dict[int, ErrorRule] = field(default_factory=dict)

    def uid_of(self, node_id: int) -> str:
        """The user's uid, or a generated one that depends on the node's position in the program."""
        return self.uids[node_id]

    def buffer_timeout_of(self, node_id: int) -> int:
        timeout_ms = self.nodes[node_id].node.buffer_timeout_ms
        return self.buffer_timeout_ms if timeout_ms is None else timeout_ms


def describe(node: StreamNode) -> str:
    """How errors name an operator: its name and where the user built it."""
    return f"'{node.name}' (built at {node.defined_at})" if node.defined_at else f"'{node.name}'"


def resolve(graph: StreamGraph) -> ResolvedGraph:
    """Decide what is open and refuse what cannot run. Raises: GraphError."""
    _check_shape(graph)
    inputs: dict[int, list[StreamEdge]] = {node: [] for node in graph.nodes}
    outputs: dict[int, list[StreamEdge]] = {node: [] for node in graph.nodes}
    for edge in graph.edges:
        inputs[edge.target].append(edge)
        outputs[edge.source].append(edge)
    try:
        order = topological_order(
            list(graph.nodes),
            lambda node: [edge.source for edge in inputs[node]],
            lambda node: [edge.target for edge in outputs[node]],
        )
    except GraphError:
        raise _cycle_error(graph, inputs) from None
    _check_exchange_modes(graph, order, inputs)
    nodes = _resolve_nodes(graph, order, inputs)
    partitionings = [_partitioning_of(nodes, edge) for edge in graph.edges]
    _settle_forward_groups(graph, nodes, partitionings)
    edges = _resolve_edges(nodes, graph.edges, partitionings)
    edges_into: dict[int, list[ResolvedEdge]] = {node_id: [] for node_id in nodes}
    for resolved in edges:
        edges_into[resolved.target].append(resolved)
    _check_co_location(list(nodes.values()))
    return ResolvedGraph(
        nodes={node_id: nodes[node_id] for node_id in graph.nodes},
        edges=edges,
        order=order,
        is_chaining_enabled=graph.is_chaining_enabled,
        buffer_timeout_ms=graph.buffer_timeout_ms,
        edges_into=edges_into,
        uids={node.node_id: _uid(node, place) for place, node in enumerate(graph.nodes.values())},
        error_rules=graph.error_rules,
    )


def check_chain_parallelism(head: ResolvedNode, max_parallelism: int) -> None:
    """Raises GraphError where a chain has more subtasks than key groups."""
    if head.parallelism > max_parallelism:
        raise GraphError(
            f"operator {head} has parallelism {head.parallelism}, more than its maximum "
            f"parallelism {max_parallelism}: some subtasks would own no key group. "
            "Lower set_parallelism or raise set_max_parallelism."
        )


def _uid(node: StreamNode, place: int) -> str:
    if node.uid is not None:
        return node.uid
    return hashlib.sha256(f"place {place}".encode()).hexdigest()[:32]


def _check_shape(graph: StreamGraph) -> None:
    if not graph.nodes:
        raise GraphError(
            "the program has no operators, so there is nothing to run. Build a stream that ends "
            "in a sink (sink_to, print or execute_and_collect) before execute()."
        )
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in graph.nodes:
                raise GraphError(
                    f"an edge from node {edge.source} to node {edge.target} names node {end}, "
                    "which is not part of the program. Streams of two environments cannot be mixed."
                )
    first_by_uid: dict[str, StreamNode] = {}
    for node in graph.nodes.values():
        if node.uid is None:
            continue
        first = first_by_uid.setdefault(node.uid, node)
        if first is not node:
            raise GraphError(
                f"uid '{node.uid}' is given twice: to {describe(first)} and to {describe(node)}. "
                "State is found again by uid, so each operator needs its own."
            )


def _cycle_error(graph: StreamGraph, inputs: dict[int, list[StreamEdge]]) -> GraphError:
    """The error for a cycle: follow the inputs of nodes that can never start until a node comes up again."""
    waiting = set(graph.nodes)
    while ready := [n for n in waiting if all(e.source not in waiting for e in inputs[n])]:
        waiting.difference_update(ready)
    node, path = min(waiting), list[int]()
    while node not in path:
        path.append(node)
        node = next(edge.source for edge in inputs[node] if edge.source in waiting)
    cycle = [*reversed(path[path.index(node) :]), path[-1]]
    names = " -> ".join(describe(graph.nodes[member]) for member in cycle)
    return GraphError(
        f"the program has a cycle: {names}. Penstock runs acyclic dataflows only; take the "
        "feedback edge out, or send the records back through an external system."
    )


def _resolve_nodes(
    graph: StreamGraph, order: list[int], inputs: dict[int, list[StreamEdge]]
) -> dict[int, ResolvedNode]:
    nodes: dict[int, ResolvedNode] = {}
    for node_id in order:
        node = graph.nodes[node_id]
        parallelism = _parallelism(graph, node)
        maximum = node.max_parallelism if node.max_parallelism != UNSET else graph.max_parallelism
        if maximum != UNSET and not 1 <= maximum <= 32768:
            raise GraphError(
                f"operator {describe(node)} has maximum parallelism {maximum}; it must be from 1 "
                "to 32768. Change set_max_parallelism."
            )
        groups = [nodes[edge.source].slot_sharing_group for edge in inputs[node_id]]
        resolved = ResolvedNode(node, parallelism, maximum, _slot_sharing_group(node, groups))
        if maximum != UNSET:
            check_chain_parallelism(resolved, maximum)
        nodes[node_id] = resolved
    return nodes


def _settle_forward_groups(
    graph: StreamGraph, nodes: dict[int, ResolvedNode], partitionings: Sequence[Partitioning]
) -> None:
    """Give operators that are joined by forward edges one parallelism: the one that any of them sets. If none sets one and
    a source is among them, they get the parallelism of sources. Any other parallelism is decided once the inputs exist.
    """
    if graph.auto_parallelism is None:
        return
    neighbours: dict[int, list[int]] = {node_id: [] for node_id in nodes}
    for edge, partitioning in zip(graph.edges, partitionings, strict=True):
        if partitioning.strategy is ShipStrategy.FORWARD:
            neighbours[edge.source].append(edge.target)
            neighbours[edge.target].append(edge.source)
    for group in _connected(neighbours):
        all_known = [nodes[one].parallelism for one in group]
        known = [parallelism for parallelism in all_known if parallelism != UNDECIDED]
        if not known and any(nodes[one].node.is_source for one in group):
            known = [graph.auto_parallelism.source_parallelism]
        for one in group if known else ():
            if nodes[one].parallelism != UNDECIDED:
                continue
            settled = replace(nodes[one], parallelism=known[0])
            if settled.max_parallelism != UNSET:
                check_chain_parallelism(settled, settled.max_parallelism)
            nodes[one] = settled


def _connected(neighbours: dict[int, list[int]]) -> list[list[int]]:
    """Groups of nodes that are connected with each other, in the order of their first nodes."""
    groups: list[list[int]] = []
    seen: set[int] = set()
    for first in neighbours:
        waiting = [] if first in seen else [first]
        seen.update(waiting)
        group: list[int] = []
        while waiting:
            group.append(waiting.pop())
            new = [one for one in dict.fromkeys(neighbours[group[-1]]) if one not in seen]
            seen.update(new)
            waiting += new
        if group:
            groups.append(group)
    return groups


def _parallelism(graph: StreamGraph, node: StreamNode) -> int:
    is_auto = graph.auto_parallelism is not None
    default = UNDECIDED if is_auto else graph.default_of(node.node_id)
    parallelism = default if node.parallelism == UNSET else node.parallelism
    is_open = is_auto and parallelism == UNDECIDED
    if parallelism < 1 and not is_open:
        raise GraphError(
            f"operator {describe(node)} has parallelism {parallelism}; it must be at least 1. "
            "Change set_parallelism, or parallelism.default where it comes from the environment."
        )
    return parallelism


def _slot_sharing_group(node: StreamNode, inputs: list[str]) -> str:
    """The node's own group, else the one that all its inputs share, else the default one."""
    if node.slot_sharing_group is not None:
        if not node.slot_sharing_group.strip():
            raise GraphError(
                f"operator {describe(node)} has an empty slot sharing group. Give a name, or leave "
                "slot_sharing_group out to follow the operator's inputs."
            )
        return node.slot_sharing_group
    return inputs[0] if len(set(inputs)) == 1 else DEFAULT_SLOT_SHARING_GROUP


def _resolve_edges(
    nodes: dict[int, ResolvedNode],
    edges: Sequence[StreamEdge],
    partitionings: Sequence[Partitioning],
) -> list[ResolvedEdge]:
    found: list[ResolvedEdge] = []
    twins: Counter[object] = Counter()
    for edge, partitioning in zip(edges, partitionings, strict=True):
        _check_forward(nodes, edge, partitioning)
        way = (edge.source, edge.target, edge.input_index, edge.tag, partitioning.strategy)
        found.append(
            ResolvedEdge(
                edge.source,
                edge.target,
                partitioning,
                edge.input_index,
                edge.tag,
                twins[way],
                edge.exchange_mode,
            )
        )
        twins[way] += 1
    return found


def _partitioning_of(nodes: dict[int, ResolvedNode], edge: StreamEdge) -> Partitioning:
    if edge.partitioning is not None:
        return edge.partitioning
    is_equal = nodes[edge.source].parallelism == nodes[edge.target].parallelism
    return Partitioning(ShipStrategy.FORWARD if is_equal else ShipStrategy.REBALANCE)


def _check_forward(
    nodes: dict[int, ResolvedNode], edge: StreamEdge, partitioning: Partitioning
) -> None:
    up, down = nodes[edge.source], nodes[edge.target]
    if partitioning.strategy is ShipStrategy.FORWARD and up.parallelism != down.parallelism:
        raise GraphError(
            f"forward() needs equal parallelism on both sides, but {up} has {up.parallelism} "
            f"and {down} has {down.parallelism}. Make them equal, or use rebalance() or rescale()."
        )


def _check_exchange_modes(
    graph: StreamGraph, order: list[int], inputs: dict[int, list[StreamEdge]]
) -> None:
    """Refuse an input that is read only when it is complete, if its source never ends: the reader would wait for ever."""
    endless: dict[int, StreamNode] = {}
    for node_id in order:
        node = graph.nodes[node_id]
        if node.is_source and not node.is_bounded:
            if graph.is_batch:
                raise GraphError(
                    f"the source {describe(node)} has no end, but execution.runtime-mode is BATCH. Bound the source, "
                    "or set the runtime mode to STREAMING or AUTOMATIC."
                )
            endless[node_id] = node
        for edge in inputs[node_id]:
            mode = edge.exchange_mode
            if mode in (StreamExchangeMode.HYBRID_FULL, StreamExchangeMode.HYBRID_SELECTIVE):
                raise GraphError(
                    f"the exchange mode of the input of {describe(node)} is {mode}, which Penstock does "
                    "not have. Use StreamExchangeMode.BATCH, which works for the same programs, or PIPELINED."
                )
            source = endless.get(edge.source)
            if source is None:
                continue
            if mode is StreamExchangeMode.BATCH:
                raise GraphError(
                    f"{describe(node)} reads its input when that is complete (exchange mode BATCH), but the "
                    f"source {describe(source)} has no end. Bound the source, or use "
                    "StreamExchangeMode.PIPELINED."
                )
            endless[node_id] = source


def _check_co_location(nodes: list[ResolvedNode]) -> None:
    first_by_key: dict[str, ResolvedNode] = {}
    for node in nodes:
        if node.node.co_location_key is None:
            continue
        first = first_by_key.setdefault(node.node.co_location_key, node)
        for what, ours, theirs in (
            ("parallelism", node.parallelism, first.parallelism),
            ("slot sharing group", node.slot_sharing_group, first.slot_sharing_group),
        ):
            if ours != theirs:
                raise GraphError(
                    f"co-location group '{node.node.co_location_key}' needs one {what}: "
                    f"{first} has {theirs}, {node} has {ours}. Their subtasks of one index "
                    f"share a slot; make the {what} equal."
                )
