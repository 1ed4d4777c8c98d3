"""Physical slots shared by the subtasks of a sharing group, and the subtasks in them.

Knows no deployment. Source: Flink SlotSharingExecutionSlotAllocator, SharedSlot
(docs/spec/slots.md#shared-slots); differs: requests are made in the order in which the groups were
opened, so that runs are repeatable.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.slots.resource_profile import UNKNOWN, ResourceProfile
from penstock.engine.machines.slots.slot_matching import SlotProfile, SlotRequest
from penstock.engine.machines.slots.slot_pool import PooledSlot, SlotPool
from penstock.engine.machines.slots.slot_sharing import SharingGroup
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import (
    AllocationId,
    ExecutionVertexId,
    SlotRequestId,
    TaskManagerLocation,
)
from penstock.engine.model.states import ExecutionState


@dataclass(slots=True, eq=False)
class SharedSlot:
    """One physical slot, or the wait for it. `members`: the subtasks in it, by vertex index."""

    group: SharingGroup
    request: SlotRequest
    slot: PooledSlot | None = None
    members: dict[int, ExecutionVertex] = field(default_factory=dict)


class SharedSlots:
    """The shared slots of a job by sharing group. `next_request`: number of the next request. `planned`: which slot a
    group is to get when it asks for one the first time; it counts only where slots that were used before are preferred.
    """

    def __init__(
        self,
        groups: Sequence[SharingGroup],
        pool: SlotPool,
        *,
        are_free_slots_taken: bool = True,
        profile_of_group: Callable[[str], ResourceProfile] = lambda _group: UNKNOWN,
    ) -> None:
        """`are_free_slots_taken` False: all requests wait, to be matched together (mode TASKS).

        `profile_of_group`: gives the profile that a slot sharing group asks for, by its name.
        """
        self._profile_of_group = profile_of_group
        self.pool = pool
        self._are_free_slots_taken = are_free_slots_taken
        self._by_group: dict[SharingGroup, SharedSlot] = {}
        self._by_request: dict[SlotRequestId, SharedSlot] = {}
        self.next_request = 0
        self.planned: dict[SharingGroup, AllocationId] = {}
        self._group_of: dict[int, SharingGroup] = {
            vertex.index: group for group in groups for vertex in group.vertices
        }
        self.groups = list(groups)

    def allocate(
        self,
        vertices: Iterable[ExecutionVertex],
        reserved: Container[AllocationId] = frozenset(),
    ) -> list[SharedSlot]:
        """Give each vertex a seat; ask for shared slots that do not exist yet.

        Returns: the shared slots involved; one whose `slot` is None waits for the pool.
        """
        bulk = list(vertices)
        seats: dict[SharingGroup, list[ExecutionVertex]] = {}
        for vertex in bulk:
            seats.setdefault(self._group_of[vertex.index], []).append(vertex)
        ignored = set(bulk)
        found: list[SharedSlot] = []
        for group in sorted(seats, key=lambda group: group.index):
            shared = self._by_group.get(group) or self._open(group, ignored, reserved)
            for vertex in seats[group]:
                if vertex.index in shared.members:
                    raise BrokenInvariant(f"{vertex} already has a seat in its shared slot.")
                shared.members[vertex.index] = vertex
            found.append(shared)
        return found

    def serve(self, request_id: SlotRequestId, slot: PooledSlot) -> None:
        """The pool has a slot for a request that waited."""
        self._by_request[request_id].slot = slot

    def slot_of(self, vertex: ExecutionVertex) -> PooledSlot | None:
        """Return the physical slot of the vertex, if it has one."""
        shared = self.shared_slot_of(vertex)
        return None if shared is None else shared.slot

    def shared_slot_of(self, vertex: ExecutionVertex) -> SharedSlot | None:
        group = self._group_of.get(vertex.index)
        shared = None if group is None else self._by_group.get(group)
        return shared if shared is not None and vertex.index in shared.members else None

    def adopt(
        self, former: Iterable[SharedSlot], vertices: Mapping[ExecutionVertexId, ExecutionVertex]
    ) -> list[SharedSlot]:
        """Take over the slots of subtasks that run on. `vertices`: those subtasks, as this generation knows them. Returns: their slots."""
        found: list[SharedSlot] = []
        for old in former:
            seated = [vertices.get(one.vertex_id) for one in old.members.values()]
            members = {one.index: one for one in seated if one is not None}
            if members:
                name = old.group.slot_sharing_group
                group = SharingGroup(len(self.groups), name, [*members.values()])
                shared = SharedSlot(group, old.request, old.slot, members)
                self.groups.append(group)
                self._group_of.update(dict.fromkeys(members, group))
                self._by_group[group] = self._by_request[old.request.request_id] = shared
                found.append(shared)
        return found

    def join(self, group: SharingGroup, shared: SharedSlot) -> None:
        """Let the subtasks of a group, none of which has a seat yet, sit in this slot when they are scheduled."""
        self.groups.remove(group)
        shared.group.vertices.extend(group.vertices)
        for vertex in group.vertices:
            self._group_of[vertex.index] = shared.group

    def leave(self, vertex: ExecutionVertex, now_ms: int) -> None:
        """The vertex leaves its slot. When the last one leaves, the slot goes back to the pool."""
        shared = self.shared_slot_of(vertex)
        if shared is None:
            return
        del shared.members[vertex.index]
        if not shared.members:
            self._close(shared)
            self.pool.release(shared.request.request_id, now_ms)

    def lose(self, slots: Iterable[PooledSlot]) -> list[ExecutionVertex]:
        """The pool has lost these slots. Returns: the vertices in them, in topological order."""
        victims: dict[int, ExecutionVertex] = {}
        for slot in slots:
            shared = slot.serves and self._by_request.get(slot.serves.request_id)
            if shared:
                victims.update(shared.members)
                self._close(shared)
        return [victims[index] for index in sorted(victims)]

    def seated_in(self, slot: PooledSlot) -> list[ExecutionVertex]:
        """Return the vertices in a slot, in topological order."""
        shared = slot.serves and self._by_request.get(slot.serves.request_id)
        return [shared.members[i] for i in sorted(shared.members)] if shared else []

    def __iter__(self) -> Iterator[SharedSlot]:
        return iter(list(self._by_group.values()))

    def _open(
        self,
        group: SharingGroup,
        ignored: set[ExecutionVertex],
        reserved: Container[AllocationId],
    ) -> SharedSlot:
        profile = self._profile_of_group(group.slot_sharing_group)
        wanted = _wanted(group, profile, ignored, reserved)
        if group in self.planned:
            wanted = replace(wanted, preferred_allocations=frozenset({self.planned.pop(group)}))
        request_id = SlotRequestId(f"slot-request-{self.next_request}")
        self.next_request += 1
        request = SlotRequest(request_id, wanted.profile, group.load, wanted.preferred_allocations)
        shared = SharedSlot(group, request)
        if self._are_free_slots_taken and self.pool.allocate(request, wanted) is not None:
            shared.slot = self.pool.slot_of(request_id)
        else:
            self.pool.request_new(request)
        self._by_group[group] = shared
        self._by_request[request_id] = shared
        return shared

    def _close(self, shared: SharedSlot) -> None:
        del self._by_group[shared.group]
        del self._by_request[shared.request.request_id]


def _wanted(
    group: SharingGroup,
    profile: ResourceProfile,
    ignored: set[ExecutionVertex],
    reserved: Container[AllocationId],
) -> SlotProfile:
    """Combine the preferences of all members; a place that several members prefer weighs more."""
    locations = [
        (location.resource_id, location.host)
        for vertex in group.vertices
        for location in preferred_locations(vertex, ignored)
    ]
    previous = frozenset(
        allocation
        for vertex in group.vertices
        if (allocation := vertex.execution.allocation_id or vertex.last_allocation_id) is not None
    )
    return SlotProfile(
        profile=profile,
        preferred_locations=tuple(locations),
        preferred_allocations=previous,
        reserved_allocations=reserved,
    )


MAX_DISTINCT_CONSUMERS: Final = 8
"""Inputs that more subtasks share are skipped, because they would draw all of these subtasks to one place."""
MAX_DISTINCT_LOCATIONS: Final = 8

Location = TypeVar("Location", bound=Hashable)


def preferred_by_inputs(
    inputs: Iterable[tuple[int, Callable[[], Iterable[Location | None]]]],
) -> list[Location]:
    """Return the places of the input with the fewest places; of equal ones, the later input.

    Args: inputs: for each input the number of consumers that share it, and its producers' places
    (None: not known), which are read only if few share it.
    """
    best: list[Location] = []
    for consumers, places_of in inputs:
        if consumers > MAX_DISTINCT_CONSUMERS:
            continue
        places: list[Location] = []
        for place in places_of():
            if place is not None:
                places.append(place)
            if len(places) > MAX_DISTINCT_LOCATIONS:
                places = []
                break
        distinct = list(dict.fromkeys(places))
        if distinct and (not best or len(distinct) <= len(best)):
            best = distinct
    return best


def preferred_locations(
    vertex: ExecutionVertex,
    ignored_producers: Collection[ExecutionVertex],
    state_location: TaskManagerLocation | None = None,
) -> list[TaskManagerLocation]:
    """Where a subtask should run if possible: where its state is, else where its inputs are.

    Knows no slots. Source: Flink DefaultPreferredLocationsRetriever
    (docs/spec/slots.md#preferred-locations). Places that are not known yet are ignored.

    Return the places for one subtask. `ignored_producers`: those that are placed in the same call.
    """
    if state_location is not None:
        return [state_location]
    return preferred_by_inputs(
        (
            len(group.consumers.vertices),
            lambda group=group: (  # type: ignore[misc]
                _place_of(partition.producer)
                for partition in group.partitions
                if partition.producer not in ignored_producers
            ),
        )
        for group in vertex.consumed_groups
    )


def _place_of(vertex: ExecutionVertex) -> TaskManagerLocation | None:
    return None if vertex.state is ExecutionState.CREATED else vertex.execution.location
