"""Which pending request gets which new slot: pure functions.

Knows no pool. Source: Flink RequestSlotMatchingStrategy and its kinds
(docs/spec/slots.md#matching-waiting-requests). Requests and slots are looked at in the order given.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeVar

from penstock.engine.machines.slots.resource_profile import UNKNOWN, ResourceProfile
from penstock.engine.model.ids import AllocationId, ResourceId, SlotRequestId


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A request for one physical slot. `load`: how many tasks it will hold."""

    request_id: SlotRequestId
    profile: ResourceProfile = UNKNOWN
    load: float = 1
    preferred_allocations: frozenset[AllocationId] = frozenset()


class Matching(StrEnum):
    """How requests are matched with slots. The two PREFERRED kinds look at previous allocations first."""

    SIMPLE = "simple"
    TASKS = "tasks"
    PREFERRED_SIMPLE = "preferred+simple"
    PREFERRED_TASKS = "preferred+tasks"

    @property
    def is_by_load(self) -> bool:
        return self in {Matching.TASKS, Matching.PREFERRED_TASKS}


Loads = Mapping[ResourceId, float]


def match_requests(
    matching: Matching,
    slots: Sequence[FreeSlot],
    requests: Collection[SlotRequest],
    loads: Loads,
) -> dict[SlotRequestId, FreeSlot]:
    """Return a slot for each request that gets one.

    `loads`: tasks that each TaskManager has now; used only by the kinds that are `is_by_load`.
    """
    match matching:
        case Matching.SIMPLE:
            return match_simply(slots, requests)
        case Matching.TASKS:
            return match_by_load(slots, requests, loads)
        case Matching.PREFERRED_SIMPLE | Matching.PREFERRED_TASKS:
            rest = Matching(matching.removeprefix("preferred+"))
            return _match_preferred(rest, slots, requests, loads)


def match_simply(
    slots: Sequence[FreeSlot], requests: Iterable[SlotRequest]
) -> dict[SlotRequestId, FreeSlot]:
    """Give each slot to the first request that it matches.

    Requests are scanned once, and only as far as needed: usually there are few slots and many
    requests, because TaskManagers come one by one.
    """
    coming = iter(requests)
    passed: dict[ResourceProfile, deque[tuple[int, SlotRequest]]] = {}
    order = 0
    found: dict[SlotRequestId, FreeSlot] = {}
    for slot in slots:
        usable = [
            waiting
            for profile, waiting in passed.items()
            if waiting and slot.profile.is_matching(profile)
        ]
        if usable:
            _, request = min(usable, key=lambda waiting: waiting[0][0]).popleft()
            found[request.request_id] = slot
            continue
        for request in coming:
            order += 1
            if slot.profile.is_matching(request.profile):
                found[request.request_id] = slot
                break
            passed.setdefault(request.profile, deque()).append((order, request))
    return found


def match_by_load(
    slots: Sequence[FreeSlot], requests: Collection[SlotRequest], loads: Loads
) -> dict[SlotRequestId, FreeSlot]:
    """Serve all requests or none: heavy ones first, each on the TaskManager with the least load."""
    if len(slots) < len(requests):
        return {}
    planned = match_simply(slots, requests)
    if len(planned) < len(requests):
        return {}
    budget = Counter(slot.profile for slot in planned.values())
    load: dict[ResourceId, float] = defaultdict(float, loads)
    waiting = sorted(requests, key=lambda request: -request.load)
    if len(budget) == 1:
        alike = [slot for slot in slots if slot.profile in budget]
        return _deal_out(alike, waiting, load)
    free = list(slots)
    found: dict[SlotRequestId, FreeSlot] = {}
    for place, request in enumerate(waiting):
        usable = [
            slot
            for slot in free
            if budget[slot.profile]
            and slot.profile.is_matching(request.profile)
            and _leaves_enough(budget, slot.profile, waiting[place + 1 :])
        ]
        slot = min(usable, key=lambda slot: load[slot.resource_id])
        found[request.request_id] = slot
        free.remove(slot)
        budget[slot.profile] -= 1
        load[slot.resource_id] += request.load
    return found


def _deal_out(
    slots: Sequence[FreeSlot], requests: Sequence[SlotRequest], load: Mapping[ResourceId, float]
) -> dict[SlotRequestId, FreeSlot]:
    """Distribute slots of one profile, which all these requests match. This is the usual case, and
    needs no scan.

    Of TaskManagers with equal load, the one whose next slot comes first is taken.
    """
    left: dict[ResourceId, deque[tuple[int, FreeSlot]]] = {}
    for order, slot in enumerate(slots):
        left.setdefault(slot.resource_id, deque()).append((order, slot))
    heap = [(load[name], of_one[0][0], name) for name, of_one in left.items()]
    heapify(heap)
    found: dict[SlotRequestId, FreeSlot] = {}
    for request in requests:
        so_far, _, name = heappop(heap)
        _, found[request.request_id] = left[name].popleft()
        if left[name]:
            heappush(heap, (so_far + request.load, left[name][0][0], name))
    return found


def _leaves_enough(
    budget: Counter[ResourceProfile], taken: ResourceProfile, rest: Sequence[SlotRequest]
) -> bool:
    """Whether the requests after this one still find slots."""
    left = budget - Counter([taken])
    for request in sorted(rest, key=lambda request: request.profile == UNKNOWN):
        profile = (
            request.profile
            if left[request.profile]
            else next((p for p in left.elements() if p.is_matching(request.profile)), None)
        )
        if profile is None:
            return False
        left[profile] -= 1
        left += Counter()
    return True


def _match_preferred(
    rest: Matching, slots: Sequence[FreeSlot], requests: Collection[SlotRequest], loads: Loads
) -> dict[SlotRequestId, FreeSlot]:
    """Give requests their previous slots back; the others share the rest."""
    waiting = {r.request_id: r for r in requests if r.preferred_allocations}
    found: dict[SlotRequestId, FreeSlot] = {}
    left: list[FreeSlot] = []
    load = dict(loads)
    for slot in slots:
        request = next(
            (
                request
                for request in waiting.values()
                if slot.allocation_id in request.preferred_allocations
                and slot.profile.is_matching(request.profile)
            ),
            None,
        )
        if request is None:
            left.append(slot)
            continue
        found[request.request_id] = slot
        load[slot.resource_id] = load.get(slot.resource_id, 0) + request.load
        del waiting[request.request_id]
    others = [request for request in requests if not request.preferred_allocations]
    return {**found, **match_requests(rest, left, [*others, *waiting.values()], load)}


class Locality(StrEnum):
    """How near a slot is to what the request prefers."""

    UNCONSTRAINED = "UNCONSTRAINED"
    LOCAL = "LOCAL"
    HOST_LOCAL = "HOST_LOCAL"
    NON_LOCAL = "NON_LOCAL"
    UNKNOWN = "UNKNOWN"


class FreeSlot(Protocol):
    """What selection sees of a slot."""

    @property
    def allocation_id(self) -> AllocationId: ...
    @property
    def resource_id(self) -> ResourceId: ...
    @property
    def host(self) -> str: ...
    @property
    def profile(self) -> ResourceProfile: ...


Slot = TypeVar("Slot", bound=FreeSlot)


@dataclass(frozen=True, slots=True)
class SlotProfile:
    """What a request prefers. A location that is named several times weighs as much more.

    `reserved_allocations`: slots that other tasks of the job had before and may return to.
    """

    profile: ResourceProfile = UNKNOWN
    preferred_locations: tuple[tuple[ResourceId, str], ...] = ()
    preferred_allocations: frozenset[AllocationId] = frozenset()
    reserved_allocations: Container[AllocationId] = frozenset()


@dataclass(frozen=True, slots=True)
class SlotSelection:
    """Which free slot a request gets. `slot_pool.FreeSlots` looks for it.

    Source: Flink LocationPreferenceSlotSelectionStrategy and its two kinds,
    PreviousAllocationSlotSelectionStrategy (docs/spec/slots.md#choosing-a-slot,
    #back-to-the-slot-from-before, #which-strategy). Free slots are looked at in the order given.

    `is_spreading`: least utilised TaskManager first. `is_previous_first`: previous slot first (local recovery).
    """

    is_spreading: bool = False
    is_previous_first: bool = False

    def score(self, local_weight: int, host_weight: int, utilization: float) -> float:
        """Return a score of a slot; higher is better. Utilisation counts only when tasks are to be spread."""
        if self.is_spreading:
            return 20 * local_weight + 2 * host_weight - utilization
        return 10 * local_weight + host_weight
