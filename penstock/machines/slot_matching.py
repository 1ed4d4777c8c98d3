"""Which pending request gets which new slot: pure functions.

Knows no pool. Source: Flink RequestSlotMatchingStrategy and its kinds (spec 5.4). Requests and
slots are looked at in the order given.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.machines.resource_profile import UNKNOWN, ResourceProfile
from penstock.machines.slot_selection import FreeSlot
from penstock.model.ids import AllocationId, ResourceId, SlotRequestId


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A wish for one physical slot. `load`: how many tasks it will hold."""

    request_id: SlotRequestId
    profile: ResourceProfile = UNKNOWN
    load: float = 1
    preferred_allocations: frozenset[AllocationId] = frozenset()


class Matching(StrEnum):
    """How requests meet slots. The two with PREFERRED look at previous allocations first."""

    SIMPLE = "simple"
    TASKS = "tasks"
    PREFERRED_SIMPLE = "preferred+simple"
    PREFERRED_TASKS = "preferred+tasks"


Loads = Mapping[ResourceId, float]


def match_requests(
    matching: Matching, slots: Sequence[FreeSlot], requests: Sequence[SlotRequest], loads: Loads
) -> dict[SlotRequestId, FreeSlot]:
    """Slot per request, for the requests that get one. `loads`: tasks that each TaskManager has
    now."""
    match matching:
        case Matching.SIMPLE:
            return match_simply(slots, requests)
        case Matching.TASKS:
            return match_by_load(slots, requests, loads)
        case Matching.PREFERRED_SIMPLE | Matching.PREFERRED_TASKS:
            rest = Matching(matching.removeprefix("preferred+"))
            return _match_preferred(rest, slots, requests, loads)


def match_simply(
    slots: Sequence[FreeSlot], requests: Sequence[SlotRequest]
) -> dict[SlotRequestId, FreeSlot]:
    """For each slot the first request that it matches."""
    waiting = {request.request_id: request for request in requests}
    found: dict[SlotRequestId, FreeSlot] = {}
    for slot in slots:
        request = next((r for r in waiting.values() if slot.profile.is_matching(r.profile)), None)
        if request is not None:
            found[request.request_id] = slot
            del waiting[request.request_id]
    return found


def match_by_load(
    slots: Sequence[FreeSlot], requests: Sequence[SlotRequest], loads: Loads
) -> dict[SlotRequestId, FreeSlot]:
    """All requests or none: heavy ones first, each to the TaskManager with the least to do."""
    planned = match_simply(slots, requests)
    if len(planned) < len(requests):
        return {}
    budget = Counter(slot.profile for slot in planned.values())
    load: dict[ResourceId, float] = defaultdict(float, loads)
    free = list(slots)
    found: dict[SlotRequestId, FreeSlot] = {}
    waiting = sorted(requests, key=lambda request: -request.load)
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


def _leaves_enough(
    budget: Counter[ResourceProfile], taken: ResourceProfile, rest: Sequence[SlotRequest]
) -> bool:
    """Whether the requests after this one still find slots: only a matter with several profiles."""
    if len(budget) == 1:
        return True
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
    rest: Matching, slots: Sequence[FreeSlot], requests: Sequence[SlotRequest], loads: Loads
) -> dict[SlotRequestId, FreeSlot]:
    """Requests get their previous slots back; the others share what is left."""
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
