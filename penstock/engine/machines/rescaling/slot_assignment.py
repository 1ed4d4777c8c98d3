"""Which subtasks go into which slot, once their parallelism is decided: the plan that a new execution graph follows.

Pure functions on plain data. Knows no sizes: slots of elastic jobs are all the same. Source: Flink
SlotSharingSlotAllocator, StateLocalitySlotAssigner
(docs/spec/elasticity.md#slot-assignment); differs: of slots that are equally good by the state in them, one on a host
with such state is better.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.engine.model.ids import AllocationId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.key_groups import key_group_range, operator_index


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
