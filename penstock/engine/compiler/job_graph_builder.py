"""StreamGraph to JobGraph: chains, data sets, gates, ids, and the blobs that TaskManagers open.

Does not look into operators' code: `serialize` gets each operator as it is. Source: Flink
StreamingJobGraphGenerator (docs/spec/job-graph.md#vertices-and-their-order, #chaining); differs:
one data set per stream edge that leaves a chain, and records for the driver (print, collect) leave
a chain as outputs of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.engine.compiler.resolution import (
    ResolvedEdge,
    ResolvedGraph,
    check_chain_parallelism,
    resolve,
)
from penstock.engine.model.graph.auto_parallelism import UNDECIDED, AutoParallelism
from penstock.engine.model.graph.chain import (
    ChainedOperator,
    ChainInput,
    ChainOutput,
    ChainSpec,
    ChainTarget,
)
from penstock.engine.model.graph.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobType,
    JobVertex,
    OperatorInfo,
    ResultPartitionType,
)
from penstock.engine.model.graph.partitioning import (
    Partitioning,
    ShipStrategy,
    StreamExchangeMode,
    may_be_overtaken,
    pattern_of,
)
from penstock.engine.model.graph.stream_graph import ChainingStrategy, StreamGraph, StreamNode
from penstock.engine.model.ids import BlobKey, DataSetId, JobId, VertexId
from penstock.engine.model.key_groups import default_max_parallelism


def build_job_graph(
    stream_graph: StreamGraph, job_id: JobId, serialize: Callable[[object], bytes]
) -> JobGraph:
    """The job graph of a program. The same program always gives the same ids.

    Args: serialize: turns a `ChainSpec` into bytes; its exceptions pass through. Raises: GraphError: the program cannot
    run; the text names operators and their source lines.
    """
    graph = resolve(stream_graph)
    chains = _chains_of(graph)
    is_batch = stream_graph.is_batch
    job_type = JobType.BATCH if is_batch else JobType.STREAMING
    job_graph = JobGraph(
        job_id, stream_graph.job_name, job_type, auto_parallelism=stream_graph.auto_parallelism
    )
    chain_of_node = {node: chain for chain in chains for node in chain.nodes}
    overtaking = overtaking_readers([
        Exchange(chain_of_node[edge.source].head, edge.target, edge.partitioning.strategy)
        for chain in chains
        for edge in chain.out_edges
    ])
    for chain in chains:
        blob = serialize(_chain_spec(graph, chain, overtaking))
        key = BlobKey(hashlib.sha256(blob).hexdigest())
        job_graph.blobs[key] = blob
        vertex = _vertex_of(graph, chain, key, stream_graph.auto_parallelism)
        vertex.inputs = [_job_edge(graph, edge, chain_of_node) for edge in chain.in_edges]
        vertex.outputs = [
            _data_set(graph, edge, chain, is_batch=is_batch) for edge in chain.out_edges
        ]
        job_graph.vertices[vertex.vertex_id] = vertex
    used = {vertex.slot_sharing_group for vertex in job_graph.vertices.values()}
    sizes = stream_graph.slot_sizes
    job_graph.slot_sizes = {group: sizes[group] for group in sizes if group in used}
    return job_graph


@dataclass(slots=True)
class _Chain:
    """One future job vertex. `nodes`: the head first, then in topological order."""

    head: int
    vertex_id: VertexId
    nodes: list[int]
    in_edges: list[ResolvedEdge] = field(default_factory=list)
    out_edges: list[ResolvedEdge] = field(default_factory=list)
    inner_edges: list[ResolvedEdge] = field(default_factory=list)

    def sort_edges(self) -> None:
        """Sort outgoing edges by the position of their operator in the chain, incoming edges by their input index."""
        place = {node: index for index, node in enumerate(self.nodes)}
        self.out_edges.sort(key=lambda edge: place[edge.source])
        self.in_edges.sort(key=lambda edge: edge.input_index)


def _chains_of(graph: ResolvedGraph) -> list[_Chain]:
    """Chains in the order of their heads. A chained node has exactly one input edge, so chains are trees."""
    inner = [edge for edge in graph.edges if _is_inner(graph, edge)]
    upstream_of = {edge.target: edge.source for edge in inner}
    chains: dict[int, _Chain] = {}
    chain_of: dict[int, _Chain] = {}
    for node in graph.order:
        chain = chain_of[upstream_of[node]] if node in upstream_of else None
        if chain is None:
            vertex_id = VertexId(_digest("vertex", graph.uid_of(node)))
            chains[node] = chain = _Chain(node, vertex_id, [])
        chain.nodes.append(node)
        chain_of[node] = chain
    is_inner = set(map(id, inner))
    for edge in graph.edges:
        if id(edge) in is_inner:
            chain_of[edge.source].inner_edges.append(edge)
        else:
            chain_of[edge.source].out_edges.append(edge)
            chain_of[edge.target].in_edges.append(edge)
    for chain in chains.values():
        chain.sort_edges()
    return list(chains.values())


def _is_inner(graph: ResolvedGraph, edge: ResolvedEdge) -> bool:
    up, down = graph.nodes[edge.source], graph.nodes[edge.target]
    return is_chainable(
        ChainCandidate(
            upstream_strategy=up.node.chaining_strategy,
            downstream_strategy=down.node.chaining_strategy,
            upstream_parallelism=up.parallelism,
            downstream_parallelism=down.parallelism,
            ship_strategy=edge.partitioning.strategy,
            is_chaining_enabled=graph.is_chaining_enabled,
            in_edges_of_downstream=len(graph.edges_into[edge.target]),
            is_same_slot_sharing_group=up.slot_sharing_group == down.slot_sharing_group,
            is_upstream_source=up.node.is_source,
            exchange_mode=edge.exchange_mode,
        )
    )


def _chain_spec(graph: ResolvedGraph, chain: _Chain, overtaking: AbstractSet[int]) -> ChainSpec:
    place = {node: index for index, node in enumerate(chain.nodes)}
    operators = tuple(
        ChainedOperator(
            node_id=node_id,
            name=(node := graph.nodes[node_id].node).name,
            uid=graph.uid_of(node_id),
            operator=node.operator,
            output_type=node.output_type,
            defined_at=node.defined_at,
            targets=tuple(
                ChainTarget(edge.tag, place[edge.target], _element_type(graph, edge))
                for edge in chain.inner_edges
                if edge.source == node_id
            ),
            on_error=graph.error_rules.get(node_id),
        )
        for node_id in chain.nodes
    )
    inputs = tuple(
        ChainInput(edge.input_index, _element_type(graph, edge), edge.partitioning)
        for edge in chain.in_edges
    )
    return ChainSpec(operators, inputs, _chain_outputs(graph, chain, place, overtaking))


def _chain_outputs(
    graph: ResolvedGraph, chain: _Chain, place: dict[int, int], overtaking: AbstractSet[int]
) -> tuple[ChainOutput, ...]:
    outputs = [
        ChainOutput(
            operator_index=place[edge.source],
            tag=edge.tag,
            data_set_id=_data_set_id(graph, edge),
            driver_stream=None,
            partitioning=edge.partitioning,
            element_type=_element_type(graph, edge),
            buffer_timeout_ms=graph.buffer_timeout_of(edge.source),
            may_be_overtaken=edge.target in overtaking,
        )
        for edge in chain.out_edges
    ]
    for node_id in chain.nodes:
        node = graph.nodes[node_id].node
        if node.driver_stream is not None:
            outputs.append(_driver_output(graph, node, place[node_id]))
    return tuple(outputs)


def _driver_output(graph: ResolvedGraph, node: StreamNode, place: int) -> ChainOutput:
    return ChainOutput(
        operator_index=place,
        tag=None,
        data_set_id=None,
        driver_stream=node.driver_stream,
        partitioning=Partitioning(ShipStrategy.FORWARD),
        element_type=node.output_type,
        buffer_timeout_ms=graph.buffer_timeout_of(node.node_id),
    )


def _element_type(graph: ResolvedGraph, edge: ResolvedEdge) -> object | None:
    """The declared type of a main output or of a side output; None if it has none, so that records are pickled."""
    node = graph.nodes[edge.source].node
    return node.output_type if edge.tag is None else node.side_output_types.get(edge.tag)


def _vertex_of(
    graph: ResolvedGraph, chain: _Chain, blob: BlobKey, auto: AutoParallelism | None
) -> JobVertex:
    head = graph.nodes[chain.head]
    members = [graph.nodes[node] for node in chain.nodes]
    is_set = [member.max_parallelism for member in members if member.max_parallelism > 0]
    maximum = head.max_parallelism
    if maximum <= 0:
        maximum = min(is_set) if is_set else _derived_maximum(head.parallelism, auto)
    if any(member.node.is_parallelism_fixed for member in members):
        maximum = head.parallelism  # It cannot be rescaled.
    check_chain_parallelism(head, maximum)
    co_location = {
        member.node.co_location_key for member in members if member.node.co_location_key is not None
    }
    return JobVertex(
        vertex_id=chain.vertex_id,
        name=_chain_name(graph, chain, chain.head),
        parallelism=head.parallelism,
        max_parallelism=maximum,
        operators=tuple(_operator_info(graph, node) for node in chain.nodes),
        chain_blob=blob,
        slot_sharing_group=head.slot_sharing_group,
        co_location_group=min(co_location) if co_location else None,
        is_source=head.node.is_source,
        is_max_parallelism_set=head.max_parallelism > 0 or bool(is_set),
    )


def _derived_maximum(parallelism: int, auto: AutoParallelism | None) -> int:
    if auto is not None and parallelism == UNDECIDED:
        return auto.max_parallelism
    return default_max_parallelism(parallelism)


def _operator_info(graph: ResolvedGraph, node_id: int) -> OperatorInfo:
    node = graph.nodes[node_id].node
    return OperatorInfo(
        node_id,
        node.name,
        graph.uid_of(node_id),
        node.defined_at,
        node.coordinator is not None,
        getattr(node.operator, "state_keys", None),
    )


def _chain_name(graph: ResolvedGraph, chain: _Chain, node_id: int) -> str:
    """`A -> B -> C`; where a chain forks `A -> (B, C -> D)`."""
    children: dict[int, list[int]] = {}
    for edge in chain.inner_edges:
        children.setdefault(edge.source, []).append(edge.target)
    names: dict[int, str] = {}
    for node in reversed(chain.nodes):
        name = graph.nodes[node].node.name
        below = [names[child] for child in children.get(node, ())]
        if len(below) == 1:
            name = f"{name} -> {below[0]}"
        elif below:
            name = f"{name} -> ({', '.join(below)})"
        names[node] = name
    return names[node_id]


def _job_edge(graph: ResolvedGraph, edge: ResolvedEdge, chain_of: dict[int, _Chain]) -> JobEdge:
    strategy = edge.partitioning.strategy
    return JobEdge(
        data_set_id=_data_set_id(graph, edge),
        source=chain_of[edge.source].vertex_id,
        target=chain_of[edge.target].vertex_id,
        pattern=pattern_of(strategy),
        ship_strategy=strategy,
        input_index=edge.input_index,
    )


def _data_set(
    graph: ResolvedGraph, edge: ResolvedEdge, chain: _Chain, *, is_batch: bool
) -> IntermediateDataSet:
    """In a BATCH job every exchange is blocking (`execution.batch-shuffle-mode`: ALL_EXCHANGES_BLOCKING)."""
    strategy = edge.partitioning.strategy
    return IntermediateDataSet(
        data_set_id=_data_set_id(graph, edge),
        producer=chain.vertex_id,
        result_type=_result_type(StreamExchangeMode.BATCH if is_batch else edge.exchange_mode),
        pattern=pattern_of(strategy),
        is_broadcast=strategy is ShipStrategy.BROADCAST,
    )


def _result_type(mode: StreamExchangeMode) -> ResultPartitionType:
    if mode is StreamExchangeMode.BATCH:
        return ResultPartitionType.BLOCKING
    return ResultPartitionType.PIPELINED_BOUNDED


def _data_set_id(graph: ResolvedGraph, edge: ResolvedEdge) -> DataSetId:
    """An id that depends on the two ends of the edge and on its kind, but not on its chains.

    A restore at another parallelism finds the data in flight by this id.
    """
    return DataSetId(
        _digest(
            "data set",
            graph.uid_of(edge.source),
            graph.uid_of(edge.target),
            f"{edge.input_index} {edge.partitioning.strategy} {edge.twin} {edge.tag!r}",
        )
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ChainCandidate:
    """Which stream edges disappear inside one task.

    Does not look into operators' code. Source: Flink StreamingJobGraphGenerator.isChainable
    (docs/spec/job-graph.md#chaining). Differs: a source is never chained into an operator of several
    inputs.

    A stream edge, with everything that decides whether its two ends run in one task.
    """

    upstream_strategy: ChainingStrategy
    downstream_strategy: ChainingStrategy
    upstream_parallelism: int
    downstream_parallelism: int
    ship_strategy: ShipStrategy
    is_chaining_enabled: bool = True
    in_edges_of_downstream: int = 1
    is_same_slot_sharing_group: bool = True
    exchange_mode: StreamExchangeMode = StreamExchangeMode.UNDEFINED
    is_upstream_source: bool = False
    is_max_parallelism_accepted: bool = True


def is_chainable(edge: ChainCandidate) -> bool:
    """Whether all conditions for chaining hold. The condition of exactly one input edge also excludes unions."""
    return (
        edge.is_chaining_enabled
        and edge.in_edges_of_downstream == 1
        and edge.is_same_slot_sharing_group
        and edge.is_max_parallelism_accepted
        and edge.ship_strategy is ShipStrategy.FORWARD
        and edge.exchange_mode is not StreamExchangeMode.BATCH
        and _is_parallelism_equal(edge)
        and _are_strategies_willing(edge)
    )


def _is_parallelism_equal(edge: ChainCandidate) -> bool:
    both = (edge.upstream_parallelism, edge.downstream_parallelism)
    return UNDECIDED in both or both[0] == both[1]


def _are_strategies_willing(edge: ChainCandidate) -> bool:
    if edge.upstream_strategy is ChainingStrategy.NEVER:
        return False
    if edge.downstream_strategy is ChainingStrategy.HEAD_WITH_SOURCES:
        return edge.is_upstream_source
    return edge.downstream_strategy is ChainingStrategy.ALWAYS


class Exchange(NamedTuple):
    """An edge between two chains, and where barriers may overtake data. `source`, `target`: the
    node ids of the chains' heads.

    A task either lets a barrier overtake the data before it, or aligns: it waits until every
    channel has delivered the barrier. Source: Flink StreamGraphGenerator
    (shouldDisableUnalignedCheckpointing). Differs: a task that lies between two aligning tasks
    aligns too, because mixing both kinds there can deadlock. Example: task M lets barriers
    overtake. Task A upstream of M aligns and has not reached its barrier yet. Task B downstream of
    M aligns too, and reads nothing more from M until A's barrier has reached B on another path. So
    M's output is full, and M reads nothing more from A. Then A never reaches its barrier.
    """

    source: int
    target: int
    strategy: ShipStrategy


def overtaking_readers(exchanges: Sequence[Exchange]) -> frozenset[int]:
    """The targets at which barriers overtake data. All edges into one target are treated alike."""
    into: dict[int, list[Exchange]] = {}
    for one in exchanges:
        into.setdefault(one.target, []).append(one)
    aligning = {
        target
        for target, mine in into.items()
        if not may_be_overtaken(edge.strategy for edge in mine)
    }
    waiting = {target for target in aligning if not _has_one_channel(into[target])}
    after = _reached(aligning, _neighbours((one.source, one.target) for one in exchanges))
    before = _reached(waiting, _neighbours((one.target, one.source) for one in exchanges))
    return frozenset(into.keys() - aligning - (after & before))


def _has_one_channel(mine: Sequence[Exchange]) -> bool:
    """A task with one channel has the only barrier at once, so it blocks nothing."""
    return len(mine) == 1 and mine[0].strategy is ShipStrategy.FORWARD


def _neighbours(pairs: Iterable[tuple[int, int]]) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found


def _reached(starts: Iterable[int], neighbours: Mapping[int, list[int]]) -> set[int]:
    """Nodes that can be reached from `starts`. A start itself is included only if a path leads to it."""
    found: set[int] = set()
    ahead = list(starts)
    while ahead:
        for one in neighbours.get(ahead.pop(), ()):
            if one not in found:
                found.add(one)
                ahead.append(one)
    return found
