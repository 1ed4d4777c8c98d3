"""Which free slot a request gets: pure functions over a snapshot.

Knows no pool. Source: Flink LocationPreferenceSlotSelectionStrategy and its two kinds,
PreviousAllocationSlotSelectionStrategy (docs/spec/slots.md#choosing-a-slot,
#back-to-the-slot-from-before, #which-strategy). Free slots are looked at in the order given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from penstock.engine.machines.slots.resource_profile import UNKNOWN, ResourceProfile
from penstock.engine.model.ids import AllocationId, ResourceId


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
    """`is_spreading`: least utilised TaskManager first. `is_previous_first`: previous slot first (local recovery)."""

    is_spreading: bool = False
    is_previous_first: bool = False

    def select(
        self,
        free: Iterable[Slot],
        wanted: SlotProfile,
        utilization_of: Callable[[ResourceId], float],
    ) -> tuple[Slot, Locality] | None:
        """Return the best slot with its locality, or None."""
        slots: Iterable[Slot] = free
        if self.is_previous_first:
            slots = list(free)
            for slot in slots:
                if slot.allocation_id in wanted.preferred_allocations:
                    return slot, Locality.LOCAL
            slots = [s for s in slots if s.allocation_id not in wanted.reserved_allocations]
        if not wanted.preferred_locations:
            return self._without_preference(slots, wanted.profile, utilization_of)
        return self._by_score(slots, wanted, utilization_of)

    def _without_preference(
        self,
        free: Iterable[Slot],
        profile: ResourceProfile,
        utilization_of: Callable[[ResourceId], float],
    ) -> tuple[Slot, Locality] | None:
        matching = (slot for slot in free if slot.profile.is_matching(profile))
        if self.is_spreading:
            best = min(matching, key=lambda slot: utilization_of(slot.resource_id), default=None)
        else:
            best = next(matching, None)
        return None if best is None else (best, Locality.UNCONSTRAINED)

    def _by_score(
        self,
        free: Iterable[Slot],
        wanted: SlotProfile,
        utilization_of: Callable[[ResourceId], float],
    ) -> tuple[Slot, Locality] | None:
        local_weights = Counter(resource_id for resource_id, _ in wanted.preferred_locations)
        host_weights = Counter(host for _, host in wanted.preferred_locations)
        best: tuple[Slot, Locality] | None = None
        best_score = float("-inf")
        for slot in free:
            if not slot.profile.is_matching(wanted.profile):
                continue
            local, host = local_weights[slot.resource_id], host_weights[slot.host]
            utilization = utilization_of(slot.resource_id) if self.is_spreading else 0.0
            score = candidate_score(local, host, utilization, is_spreading=self.is_spreading)
            if score > best_score:
                best, best_score = (slot, _locality(local, host)), score
        return best


def candidate_score(
    local_weight: int, host_weight: int, utilization: float, *, is_spreading: bool
) -> float:
    """Return a score; higher is better. Utilisation counts only when tasks are to be spread."""
    if is_spreading:
        return 20 * local_weight + 2 * host_weight - utilization
    return 10 * local_weight + host_weight


def _locality(local_weight: int, host_weight: int) -> Locality:
    if local_weight:
        return Locality.LOCAL
    return Locality.HOST_LOCAL if host_weight else Locality.NON_LOCAL
