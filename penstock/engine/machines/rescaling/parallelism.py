"""How many subtasks each vertex gets, by the slots that there are.

Pure functions on plain data. Knows no slot by name: `slot_assignment.py` says which subtask goes where. Source: Flink
SlotSharingSlotAllocator (docs/spec/elasticity.md#from-slots-to-parallelism); differs: groups that are equally wide take
their turn in the order of the graph, not of a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.model.elastic.parallelism_bounds import ParallelismBounds
from penstock.engine.model.graph.job_graph import JobVertex
from penstock.engine.model.ids import VertexId


@dataclass(frozen=True, slots=True)
class SharingGroup:
    """The vertices of one slot sharing group with their bounds, in the order of the graph; at least one."""

    name: str
    bounds: Mapping[VertexId, ParallelismBounds]

    @property
    def lower(self) -> int:
        """The fewest slots: the largest lower bound, because each subtask of that vertex needs a slot of its own."""
        return max(one.lower for one in self.bounds.values())

    @property
    def upper(self) -> int:
        """The most slots that the group can use."""
        return max(one.upper for one in self.bounds.values())


@dataclass(frozen=True, slots=True)
class VertexParallelism:
    """`of_vertex`: subtasks. `slots_of_group`: slots by name of the sharing group, in the order of the graph."""

    of_vertex: Mapping[VertexId, int]
    slots_of_group: Mapping[str, int]

    @property
    def slots(self) -> int:
        """How many slots the job needs with this parallelism."""
        return sum(self.slots_of_group.values())


def sharing_groups(
    vertices: Iterable[JobVertex], requirements: Mapping[VertexId, ParallelismBounds]
) -> tuple[SharingGroup, ...]:
    """The slot sharing groups of a job graph with the bounds that are asked for, in the order of their first vertices."""
    found: dict[str, dict[VertexId, ParallelismBounds]] = {}
    for vertex in vertices:
        group = found.setdefault(vertex.slot_sharing_group, {})
        group[vertex.vertex_id] = requirements[vertex.vertex_id]
    return tuple(SharingGroup(name, bounds) for name, bounds in found.items())


def desired_slots(groups: Iterable[SharingGroup]) -> int:
    """The slots that a job declares: what all its upper bounds need."""
    return sum(group.upper for group in groups)


def minimum_slots(groups: Iterable[SharingGroup]) -> int:
    """The slots below which nothing of the job can start."""
    return sum(group.lower for group in groups)


def parallelism_for(groups: Sequence[SharingGroup], slots: int) -> VertexParallelism | None:
    """The parallelism with this many slots; None: they are fewer than the minimum, so the job cannot be scheduled.

    No vertex is below its lower bound. Narrow groups are filled first. The slots that are used are as many as there
    are, up to what is desired.
    """
    pending = minimum_slots(groups)
    if slots < pending:
        return None
    given: dict[str, int] = {}
    unassigned, left = slots, len(groups)
    for group in sorted(groups, key=lambda one: one.upper - one.lower):
        share = (unassigned - pending) // left
        given[group.name] = group.lower + min(group.upper - group.lower, share)
        unassigned -= given[group.name]
        pending -= group.lower
        left -= 1
    return VertexParallelism(
        {
            vertex: min(bounds.upper, given[group.name])
            for group in groups
            for vertex, bounds in group.bounds.items()
        },
        {group.name: given[group.name] for group in groups},
    )
