"""Which subtasks go into which slot, once their parallelism is decided: the plan that a new execution graph follows.

Pure functions on plain data. Knows no sizes: slots of elastic jobs are all the same. Source: Flink
SlotSharingSlotAllocator, DefaultSlotAssigner, StateLocalitySlotAssigner, JobSchedulingPlan
(docs/spec/elasticity.md#slot-assignment); differs: of slots that are equally good by the state in them, one on a host
with such state is better.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.machines.adaptive.parallelism import SharingGroup, VertexParallelism, parallelism_for
from penstock.model.ids import AllocationId, ExecutionVertexId, ResourceId, VertexId
from penstock.model.key_groups import key_group_range, operator_index


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
class SchedulingPlan:
    """A parallelism, and a slot for each of its execution groups, in their order."""

    parallelism: VertexParallelism
    assignment: Mapping[AllocationId, ExecutionGroup]

    def slot_of(self) -> dict[ExecutionVertexId, AllocationId]:
        """The slot of each subtask."""
        return {
            subtask: slot for slot, group in self.assignment.items() for subtask in group.subtasks
        }

    def is_possible(self, free: Collection[AllocationId]) -> bool:
        """Whether all its slots are free. If one is not, the whole plan is void."""
        return all(slot in free for slot in self.assignment)


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


def make_plan(
    groups: Sequence[SharingGroup],
    slots: Sequence[SlotPlace],
    *,
    former: FormerAssignment | None = None,
    prefers_few_taskmanagers: bool = False,
) -> SchedulingPlan | None:
    """The plan for these slots; None: they are too few.

    Args: former: with local recovery, where the state is; None: slots are taken in order. prefers_few_taskmanagers:
    without `former`, fill whole TaskManagers, so that others become idle. With `former` a caller that wants this too
    narrows the slots with `on_few_taskmanagers`.
    """
    parallelism = parallelism_for(groups, len(slots))
    if parallelism is None:
        return None
    wanted = execution_groups(groups, parallelism)
    if former is not None:
        return SchedulingPlan(parallelism, by_state(wanted, slots, former))
    if prefers_few_taskmanagers:
        slots = on_few_taskmanagers(slots, len(wanted))
    return SchedulingPlan(parallelism, in_order(wanted, slots))


def execution_groups(
    groups: Iterable[SharingGroup], parallelism: VertexParallelism
) -> tuple[ExecutionGroup, ...]:
    """Group k of a sharing group has subtask k of each of its vertices that has so many."""
    return tuple(
        ExecutionGroup(
            group.name,
            index,
            tuple(
                ExecutionVertexId(vertex, index)
                for vertex in group.bounds
                if index < parallelism.of_vertex[vertex]
            ),
        )
        for group in groups
        for index in range(parallelism.slots_of_group[group.name])
    )


def in_order(
    groups: Iterable[ExecutionGroup], slots: Iterable[SlotPlace]
) -> dict[AllocationId, ExecutionGroup]:
    """The first group into the first slot, and so on. There must be as many slots as groups."""
    rest = iter(slots)
    return {next(rest).allocation_id: group for group in groups}


def on_few_taskmanagers(slots: Sequence[SlotPlace], wanted: int) -> list[SlotPlace]:
    """At least `wanted` of the slots: whole TaskManagers, those with most free slots first."""
    if len(slots) <= wanted:
        return list(slots)
    by_taskmanager: defaultdict[ResourceId, list[SlotPlace]] = defaultdict(list)
    for slot in slots:
        by_taskmanager[slot.resource_id].append(slot)
    chosen: list[SlotPlace] = []
    for held in sorted(by_taskmanager.values(), key=len, reverse=True):
        if len(chosen) >= wanted:
            break
        chosen += held
    return chosen


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
