"""Which subtasks share a slot: pure functions from a graph to groups.

Knows no slots. Source: Flink LocalInputPreferredSlotSharingStrategy, TaskBalancedPreferredSlot-
SharingStrategy (docs/spec/slots.md#sharing-by-local-input, #sharing-by-balance).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from heapq import heapify, heappop

from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionJobVertex,
    ExecutionVertex,
)
from penstock.engine.model.ids import VertexId


@dataclass(slots=True, eq=False)
class SharingGroup:
    """Subtasks that run in one slot (Flink: ExecutionSlotSharingGroup). `index`: order of creation."""

    index: int
    slot_sharing_group: str
    vertices: list[ExecutionVertex] = field(default_factory=list)

    @property
    def load(self) -> int:
        return len(self.vertices)


def local_input_preferred(
    graph: ExecutionGraph, seated: Container[VertexId] = frozenset()
) -> list[SharingGroup]:
    """Put a subtask into the group of a producer that it reads from, if possible. Groups are in the order of creation.

    Args: seated: vertices that have their places already, and that no edge joins with others.
    """
    return _LocalInput(graph, _without(graph, seated)).run()


def task_balanced(
    graph: ExecutionGraph, seated: Container[VertexId] = frozenset()
) -> list[SharingGroup]:
    """Make as many groups as the widest job vertex has subtasks, and distribute the tasks evenly."""
    found: list[SharingGroup] = []
    by_name: dict[str, list[ExecutionJobVertex]] = {}
    for job_vertex in _without(graph, seated):
        by_name.setdefault(job_vertex.slot_sharing_group, []).append(job_vertex)
    for name, job_vertices in by_name.items():
        width = max(len(job_vertex.vertices) for job_vertex in job_vertices)
        groups = [SharingGroup(len(found) + i, name) for i in range(width)]
        _deal_out(job_vertices, groups)
        found.extend(groups)
    return found


class _LocalInput:
    """One computation. The open groups of a job vertex are an ordered dict, oldest first."""

    def __init__(self, graph: ExecutionGraph, job_vertices: list[ExecutionJobVertex]) -> None:
        self._job_vertices = job_vertices
        self._groups: list[SharingGroup] = []
        self._by_name: dict[str, list[SharingGroup]] = {}
        self._group_of: list[SharingGroup | None] = [None] * len(graph.vertices)
        self._constraints: dict[tuple[str, int], SharingGroup] = {}
        self._candidates: dict[int, deque[SharingGroup]] = {}

    def run(self) -> list[SharingGroup]:
        for job_vertex in self._job_vertices:
            self._place(job_vertex)
        return self._groups

    def _place(self, job_vertex: ExecutionJobVertex) -> None:
        """Place subtasks with a co-location or a producer in reach first, so that no other subtask
        takes their group.
        """
        open_groups = dict.fromkeys(self._by_name.get(job_vertex.slot_sharing_group, ()))
        remaining: list[ExecutionVertex] = []
        for vertex in job_vertex.vertices:
            group = self._co_located(vertex) or self._with_producer(vertex, open_groups)
            if group is None:
                remaining.append(vertex)
            else:
                open_groups.pop(group, None)
                self._add(vertex, group)
        for vertex in remaining:
            group = next(iter(open_groups), None)
            if group is None:
                group = self._open(job_vertex.slot_sharing_group)
            else:
                del open_groups[group]
            self._add(vertex, group)
        if job_vertex.co_location_group is not None:
            for vertex in job_vertex.vertices:
                group = self._group_of[vertex.index]
                assert group is not None
                self._constraints[job_vertex.co_location_group, vertex.subtask] = group

    def _co_located(self, vertex: ExecutionVertex) -> SharingGroup | None:
        name = vertex.job_vertex.co_location_group
        return None if name is None else self._constraints.get((name, vertex.subtask))

    def _with_producer(
        self, vertex: ExecutionVertex, open_groups: dict[SharingGroup, None]
    ) -> SharingGroup | None:
        for consumed in vertex.consumed_groups:
            candidates = self._candidates.get(id(consumed))
            if candidates is None:
                self._candidates[id(consumed)] = candidates = self._groups_of_producers(
                    vertex, consumed
                )
            while candidates:
                group = candidates.popleft()
                if group in open_groups:
                    return group
        return None

    def _groups_of_producers(
        self, vertex: ExecutionVertex, consumed: ConsumedPartitionGroup
    ) -> deque[SharingGroup]:
        producer = consumed.partitions[0].producer.job_vertex
        if producer.slot_sharing_group != vertex.job_vertex.slot_sharing_group:
            return deque()
        groups = (self._group_of[partition.producer.index] for partition in consumed.partitions)
        return deque(dict.fromkeys(group for group in groups if group is not None))

    def _add(self, vertex: ExecutionVertex, group: SharingGroup) -> None:
        group.vertices.append(vertex)
        self._group_of[vertex.index] = group

    def _open(self, name: str) -> SharingGroup:
        group = SharingGroup(len(self._groups), name)
        self._groups.append(group)
        self._by_name.setdefault(name, []).append(group)
        return group


def _without(graph: ExecutionGraph, seated: Container[VertexId]) -> list[ExecutionJobVertex]:
    return [one for one in graph.job_vertices if one.job_vertex.vertex_id not in seated]


def _deal_out(job_vertices: list[ExecutionJobVertex], groups: list[SharingGroup]) -> None:
    """Full-width job vertices start at group 0; narrower ones start where the last narrow one stopped."""
    width = len(groups)
    turn = 0
    constraints: dict[tuple[str, int], SharingGroup] = {}
    for job_vertex in job_vertices:
        is_narrow = len(job_vertex.vertices) != width
        if job_vertex.co_location_group is None:
            start = turn if is_narrow else 0
            for offset, vertex in enumerate(job_vertex.vertices):
                groups[(start + offset) % width].vertices.append(vertex)
            if is_narrow:
                turn = (start + len(job_vertex.vertices)) % width
            continue
        _seat_co_located(job_vertex, job_vertex.co_location_group, groups, constraints)
        if is_narrow:
            turn = min(range(width), key=lambda i: (groups[i].load, i))


def _seat_co_located(
    job_vertex: ExecutionJobVertex,
    name: str,
    groups: list[SharingGroup],
    constraints: dict[tuple[str, int], SharingGroup],
) -> None:
    """Seat subtasks where their constraint says, else in the least loaded group without this job vertex."""
    heap = [(group.load, group.index) for group in groups]
    heapify(heap)
    first = groups[0].index
    seated: set[int] = set()
    for vertex in job_vertex.vertices:
        group = constraints.get((name, vertex.subtask))
        while group is None:
            _, index = heappop(heap)  # Loads change only for groups that were taken from the heap.
            if index not in seated:
                constraints[name, vertex.subtask] = group = groups[index - first]
        seated.add(group.index)
        group.vertices.append(vertex)
