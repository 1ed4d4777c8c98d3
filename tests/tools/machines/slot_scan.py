"""The choice of a free slot as a plain scan of all of them: docs/spec/slots.md#choosing-a-slot. And the choice that the engine makes."""

from collections import Counter
from collections.abc import Callable, Iterable

from penstock.engine.machines.slots.slot_matching import (
    FreeSlot,
    Locality,
    SlotProfile,
    SlotSelection,
)
from penstock.engine.machines.slots.slot_pool import FreeSlots
from penstock.engine.model.ids import ResourceId

Choice = tuple[FreeSlot, Locality] | None
UtilizationOf = Callable[[ResourceId], float]


def chosen(
    selection: SlotSelection, free: Iterable[FreeSlot], wanted: SlotProfile, used: UtilizationOf
) -> Choice:
    """Return what the engine chooses."""
    slots = FreeSlots[FreeSlot](selection, used)
    for slot in free:
        slots.add(slot)
        slots.moved(slot.resource_id)
    return slots.select(wanted)


def scanned(
    selection: SlotSelection, free: Iterable[FreeSlot], wanted: SlotProfile, used: UtilizationOf
) -> Choice:
    """Return the best slot. Of equal ones the first."""
    slots = list(free)
    if selection.is_previous_first:
        for slot in slots:
            if slot.allocation_id in wanted.preferred_allocations:
                return slot, Locality.LOCAL
        slots = [s for s in slots if s.allocation_id not in wanted.reserved_allocations]
    matching = [slot for slot in slots if slot.profile.is_matching(wanted.profile)]
    local_weights = Counter(resource_id for resource_id, _ in wanted.preferred_locations)
    host_weights = Counter(host for _, host in wanted.preferred_locations)
    best: Choice = None
    best_score = float("-inf")
    for slot in matching:
        local, host = local_weights[slot.resource_id], host_weights[slot.host]
        used_share = used(slot.resource_id) if selection.is_spreading else 0.0
        score = selection.score(local, host, used_share)
        if score > best_score:
            best, best_score = (slot, _locality(wanted, local, host)), score
    return best


def _locality(wanted: SlotProfile, local_weight: int, host_weight: int) -> Locality:
    if not wanted.preferred_locations:
        return Locality.UNCONSTRAINED
    if local_weight:
        return Locality.LOCAL
    return Locality.HOST_LOCAL if host_weight else Locality.NON_LOCAL
