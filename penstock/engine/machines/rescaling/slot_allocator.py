"""How many subtasks each vertex of an elastic job gets by the slots that there are, and which subtask goes into which
slot.

Pure functions on plain data. Knows no sizes: slots of elastic jobs are all the same. Source: Flink
SlotSharingSlotAllocator, StateLocalitySlotAssigner (docs/spec/elasticity.md#from-slots-to-parallelism,
#slot-assignment). Differs: groups that are equally wide take their turn in the order of the graph, not of a hash; of
slots that are equally good by the state in them, one on a host with such state is better.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.engine.model.elastic import ParallelismBounds
from penstock.engine.model.graph.job_graph import JobVertex
from penstock.engine.model.ids import AllocationId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.key_groups import key_group_range, operator_index


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


class SlotPlace(Protocol):
    """What assignment sees of a slot."""

    @property
    def allocation_id(self) -> AllocationId: ...
    @property
    def resource_id(self) -> ResourceId: ...
    @property
    def host(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ExecutionGroup:
    """Subtasks that share a slot: those with the same index of one slot sharing group."""

    name: str
    index: int
    subtasks: tuple[ExecutionVertexId, ...]


@dataclass(frozen=True, slots=True)
class FormerPlace:
    """Where a subtask had its state."""

    allocation_id: AllocationId
    host: str


@dataclass(frozen=True, slots=True)
class FormerAssignment:
    """Where the generation before kept its state.

    `places`: of subtasks that had a slot. `parallelism`, `max_parallelism`: of each vertex. `state_bytes`: keyed state
    of a vertex in the last completed checkpoint, all subtasks together; a vertex that is missing counts as 0.
    """

    places: Mapping[ExecutionVertexId, FormerPlace]
    parallelism: Mapping[VertexId, int]
    max_parallelism: Mapping[VertexId, int]
    state_bytes: Mapping[VertexId, int] = field(default_factory=dict)


def by_state(
    groups: Sequence[ExecutionGroup], slots: Sequence[SlotPlace], former: FormerAssignment
) -> dict[AllocationId, ExecutionGroup]:
    """Each group where most of its keyed state is. There must be as many slots as groups.

    Pairs of group and slot are taken by falling score, as long as both are free. Of equal scores the host with more of
    the group's state wins, then the smaller slot id, then the earlier group. Groups that find no slot go to a host with
    their state, or else anywhere.
    """
    free = {slot.allocation_id: slot for slot in slots}
    parallelism = Counter(subtask.vertex_id for group in groups for subtask in group.subtasks)
    scores = [_scores(group, parallelism, former) for group in groups]
    found: dict[int, AllocationId] = {}
    for slot, number in _pairs(scores, free):
        if slot in free and number not in found:
            found[number] = slot
            del free[slot]
    on_host: defaultdict[str, list[AllocationId]] = defaultdict(list)
    for slot, place in free.items():
        on_host[place.host].append(slot)
    for _, host, number in _by_host(scores, found):
        if on_host[host] and number not in found:
            found[number] = on_host[host].pop(0)
    rest = iter([slot for slots_there in on_host.values() for slot in slots_there])
    return {
        found[number] if number in found else next(rest): group
        for number, group in enumerate(groups)
    }


@dataclass(frozen=True, slots=True)
class _Scores:
    """Key groups of one execution group's state, weighted by their bytes, by where they are."""

    of_slot: Counter[AllocationId]
    of_host: Counter[str]


def _pairs(
    scores: Sequence[_Scores], free: Mapping[AllocationId, SlotPlace]
) -> Iterator[tuple[AllocationId, int]]:
    """Slots and numbers of groups, the best pairs first."""
    pairs = sorted(
        (-score, -of_group.of_host[free[slot].host], slot, number)
        for number, of_group in enumerate(scores)
        for slot, score in of_group.of_slot.items()
        if slot in free
    )
    return ((slot, number) for _, _, slot, number in pairs)


def _by_host(scores: Sequence[_Scores], found: Collection[int]) -> list[tuple[int, str, int]]:
    """Hosts for the groups that are left, the best pairs first."""
    return sorted(
        (-score, host, number)
        for number, of_group in enumerate(scores)
        if number not in found
        for host, score in of_group.of_host.items()
    )


def _scores(
    group: ExecutionGroup, parallelism: Mapping[VertexId, int], former: FormerAssignment
) -> _Scores:
    found = _Scores(Counter(), Counter())
    for subtask in group.subtasks:
        before = former.parallelism.get(subtask.vertex_id)
        if before is None:
            continue
        most = former.max_parallelism[subtask.vertex_id]
        first, last = key_group_range(most, parallelism[subtask.vertex_id], subtask.subtask)
        for old in range(
            operator_index(first, most, before), operator_index(last, most, before) + 1
        ):
            place = former.places.get(ExecutionVertexId(subtask.vertex_id, old))
            if place is None:
                continue
            old_first, old_last = key_group_range(most, before, old)
            common = min(last, old_last) - max(first, old_first) + 1
            held = former.state_bytes.get(subtask.vertex_id, 0)
            score = common * _bytes_of_a_key_group(held, old_last - old_first + 1)
            found.of_slot[place.allocation_id] += score
            found.of_host[place.host] += score
    return found


def _bytes_of_a_key_group(held: int, key_groups: int) -> int:
    """At least 1, so that key groups count even where nothing is known of their bytes."""
    return held // min(held, key_groups) if held else 1
