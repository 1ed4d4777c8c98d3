"""Pipelined regions: subtasks that must run together. A region is the unit of scheduling and of
failover.

Knows no states. Source: Flink SchedulingPipelinedRegionComputeUtil
(docs/spec/scheduling.md#pipelined-regions): regions are built from job vertices, then from
subtasks; regions that wait for each other are merged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionJobVertex,
    ExecutionVertex,
    ResultPartition,
    in_topological_order,
)
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.partitioning import DistributionPattern
from penstock.engine.model.ids import VertexId

Node = TypeVar("Node", bound=Hashable)


@dataclass(slots=True, eq=False)
class Region:
    """`vertices`: in topological order. `index`: place among the job's regions, by first vertex.

    `inputs`: each group that is read by one of its vertices and need not be consumed while
    produced.
    """

    index: int
    vertices: tuple[ExecutionVertex, ...]
    inputs: list[ConsumedPartitionGroup] = field(default_factory=list)

    def __str__(self) -> str:
        return f"region {self.index} ({', '.join(map(str, self.vertices[:4]))})"


class Regions:
    """All regions of a job, and the region of each vertex."""

    def __init__(self, graph: ExecutionGraph) -> None:
        sets = _compute(graph)
        sets.sort(key=lambda members: members[0].index)
        self.regions = [Region(index, tuple(members)) for index, members in enumerate(sets)]
        self._region_of: list[Region | None] = [None] * len(graph.vertices)
        for region in self.regions:
            seen = dict[int, ConsumedPartitionGroup]()
            for vertex in region.vertices:
                self._region_of[vertex.index] = region
                for group in vertex.consumed_groups:
                    if not group.result_type.must_be_pipelined_consumed:
                        seen[id(group)] = group
            region.inputs = list(seen.values())
        self._check_co_location(graph)

    def of(self, vertex: ExecutionVertex) -> Region:
        region = self._region_of[vertex.index]
        assert region is not None
        return region

    def of_all(self, vertices: Iterable[ExecutionVertex]) -> set[Region]:
        """Return the regions of these vertices, each once."""
        return {self.of(vertex) for vertex in vertices}

    def _check_co_location(self, graph: ExecutionGraph) -> None:
        first: dict[tuple[str, int], ExecutionVertex] = {}
        for vertex in graph.vertices:
            name = vertex.job_vertex.co_location_group
            if name is None:
                continue
            other = first.setdefault((name, vertex.subtask), vertex)
            if self.of(other) is not self.of(vertex):
                raise GraphError(
                    f"co-located tasks must be in the same pipelined region, but {other} and "
                    f"{vertex} of co-location group '{name}' are not, because no pipelined "
                    "edges join them. Join them, or remove the co-location."
                )


class _Union:
    """Disjoint sets with path halving."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def root(self, item: int) -> int:
        parent = self._parent
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    def join(self, one: int, other: int) -> None:
        roots = self.root(one), self.root(other)
        self._parent[max(roots)] = min(roots)


def _compute(graph: ExecutionGraph) -> list[list[ExecutionVertex]]:
    found: list[list[ExecutionVertex]] = []
    for job_vertices in _without_cycles(graph, _logical_regions(graph)):
        members = in_topological_order(v for job in job_vertices for v in job.vertices)
        ids = {job.job_vertex.vertex_id for job in job_vertices}
        if _has_inner_all_to_all(job_vertices, ids):
            found.append(members)
        else:
            found.extend(_split(members, ids))
    return found


def _logical_regions(graph: ExecutionGraph) -> list[list[ExecutionJobVertex]]:
    """Return groups of job vertices that are joined by results which must be consumed while they are produced."""
    place = {job.job_vertex.vertex_id: i for i, job in enumerate(graph.job_vertices)}
    must = {
        data_set.data_set_id
        for job in graph.job_vertices
        for data_set in job.job_vertex.outputs
        if data_set.result_type.must_be_pipelined_consumed
    }
    union = _Union(len(place))
    for job in graph.job_vertices:
        for edge in job.job_vertex.inputs:
            if edge.data_set_id in must:
                union.join(place[edge.source], place[edge.target])
    logical: dict[int, list[ExecutionJobVertex]] = {}
    for i, job in enumerate(graph.job_vertices):
        logical.setdefault(union.root(i), []).append(job)
    return list(logical.values())


def _without_cycles(
    graph: ExecutionGraph, logical: list[list[ExecutionJobVertex]]
) -> list[list[ExecutionJobVertex]]:
    """Merge regions that wait for each other; otherwise none of them could ever start."""
    region_of = {job.job_vertex.vertex_id: i for i, jobs in enumerate(logical) for job in jobs}
    reads: dict[int, set[int]] = {i: set() for i in range(len(logical))}
    for job in graph.job_vertices:
        for edge in job.job_vertex.inputs:
            reads[region_of[edge.source]].add(region_of[edge.target])
    merged = [sorted(component) for component in strongly_connected(reads)]
    return [[job for i in component for job in logical[i]] for component in sorted(merged)]


def _has_inner_all_to_all(jobs: Sequence[ExecutionJobVertex], ids: set[VertexId]) -> bool:
    """Whether a group has an all-to-all edge inside, of any type: a blocking one would make its raw
    regions wait for each other.
    """
    return any(
        edge.pattern is DistributionPattern.ALL_TO_ALL and edge.source in ids
        for job in jobs
        for edge in job.job_vertex.inputs
    )


def _split(members: list[ExecutionVertex], ids: set[VertexId]) -> list[list[ExecutionVertex]]:
    """Split by point-wise pipelined edges into raw regions, then merge those that wait for each other."""
    place = {id(vertex): i for i, vertex in enumerate(members)}
    union = _Union(len(members))
    for i, vertex in enumerate(members):
        for group in vertex.consumed_groups:
            if group.result_type.must_be_pipelined_consumed:
                for partition in group.partitions:
                    union.join(place[id(partition.producer)], i)
    waits: dict[int, list[int]] = {union.root(i): [] for i in range(len(members))}
    for i, vertex in enumerate(members):
        for group in vertex.consumed_groups:
            if group.result_type.must_be_pipelined_consumed or group.edge.source not in ids:
                continue
            for partition in group.partitions:
                producer = union.root(place[id(partition.producer)])
                if producer != union.root(i):
                    waits[producer].append(union.root(i))
    component_of = {
        node: number
        for number, component in enumerate(strongly_connected(waits))
        for node in component
    }
    found: dict[int, list[ExecutionVertex]] = {}
    for i, vertex in enumerate(members):
        found.setdefault(component_of[union.root(i)], []).append(vertex)
    return list(found.values())


def strongly_connected(edges: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """Return the components of a directed graph, without recursion. Source: Tarjan 1972."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_stack: set[Node] = set()
    stack: list[Node] = []
    components: list[list[Node]] = []
    for root in edges:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(edges[root]))]
        while work:
            node, following = work[-1]
            target = next(following, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    components.append(_pop_until(node, stack, on_stack))
            elif target not in order:
                order[target] = low[target] = len(order)
                stack.append(target)
                on_stack.add(target)
                work.append((target, iter(edges[target])))
            elif target in on_stack:
                low[node] = min(low[node], order[target])
    return components


def _pop_until(node: Node, stack: list[Node], on_stack: set[Node]) -> list[Node]:
    component: list[Node] = []
    while not component or component[-1] != node:
        component.append(stack.pop())
        on_stack.remove(component[-1])
    return component


class ReleaseByRegion:
    """Which results can be released before the job ends: a group of partitions when all regions that read it have
    finished, and a partition with its last group.

    Knows no TaskManager: it names partitions. Source: Flink RegionPartitionGroupReleaseStrategy,
    ConsumedPartitionGroup releasability (docs/spec/execution-graph.md#release-of-results). If a region
    starts again, its release is revoked. Results that are gone by then are made again, because the
    failover strategy finds them missing.
    """

    def __init__(self, graph: ExecutionGraph, regions: Regions) -> None:
        self._regions = regions
        self._unfinished = {region: len(region.vertices) for region in regions.regions}
        self._readers = {
            id(group): len(regions.of_all(group.consumers.vertices))
            for group in graph.consumed_groups
            if _can_go(group)
        }

    def on_finished(self, vertex: ExecutionVertex) -> Iterable[ResultPartition]:
        """Return the partitions that can be released now, each once, in the order of their groups."""
        region = self._regions.of(vertex)
        self._unfinished[region] -= 1
        if self._unfinished[region]:
            return ()
        found: dict[int, ResultPartition] = {}
        for group in region.inputs:
            if id(group) not in self._readers:
                continue
            self._readers[id(group)] -= 1
            if self._readers[id(group)] == 0:
                found |= {id(p): p for p in group.partitions if self._is_unread(p)}
        return found.values()

    def on_unfinished(self, vertex: ExecutionVertex) -> None:
        """The vertex was finished and starts again, so its region reads once more."""
        region: Region = self._regions.of(vertex)
        if self._unfinished[region] == 0:
            for group in region.inputs:
                if id(group) in self._readers:
                    self._readers[id(group)] += 1
        self._unfinished[region] += 1

    def _is_unread(self, partition: ResultPartition) -> bool:
        return all(self._readers.get(id(group), 1) == 0 for group in partition.consumed_groups)


def _can_go(group: ConsumedPartitionGroup) -> bool:
    kind = group.result_type
    return kind.is_released_by_scheduler and not kind.is_persistent
