"""The free slots of a pool, indexed so that the best one for a request is found without a scan.

Knows no requests. Chooses the same slot as `SlotSelection.select` (a property test compares them),
at a lower cost: constant for the default, logarithmic for spreading, times the number of places
that the request prefers. Source: Flink FreeSlotTracker (docs/spec/slots.md#choosing-a-slot), which
is scanned.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

from penstock.engine.machines.slots.resource_profile import ResourceProfile
from penstock.engine.machines.slots.slot_selection import (
    FreeSlot,
    Locality,
    SlotProfile,
    SlotSelection,
    candidate_score,
)
from penstock.engine.model.ids import AllocationId, ResourceId

Slot = TypeVar("Slot", bound=FreeSlot)
Rank: TypeAlias = tuple[float, int]
"""Utilisation of the TaskManager (0.0 if it does not count), order of the slot. The smaller rank is better."""

_SPARE_ENTRIES: Final = 64


class _Shelf(Generic[Slot]):
    """Slots of one profile, oldest first: all of them, or those of one host or TaskManager.

    `heap`: ranks of TaskManagers, only for spreading. An entry is valid while it equals the one in
    `ranks`. Invalid entries are dropped when they reach the top, or all at once when there are too
    many.
    """

    __slots__ = ("heap", "ranks", "slots")

    def __init__(self) -> None:
        self.slots: OrderedDict[AllocationId, Slot] = OrderedDict()
        self.heap: list[tuple[float, int, ResourceId]] = []
        self.ranks: dict[ResourceId, Rank] = {}

    def first(self) -> Slot:
        return next(iter(self.slots.values()))

    def rank(self, resource_id: ResourceId, rank: Rank | None) -> None:
        """Set the rank of a TaskManager; None: it has no free slot here."""
        if rank is None:
            self.ranks.pop(resource_id, None)
            return
        self.ranks[resource_id] = rank
        heappush(self.heap, (*rank, resource_id))
        if len(self.heap) > 2 * len(self.ranks) + _SPARE_ENTRIES:
            self.heap = [(*known, of) for of, known in self.ranks.items()]
            heapify(self.heap)

    def least_used(self) -> ResourceId:
        while True:
            utilization, order, resource_id = self.heap[0]
            if self.ranks.get(resource_id) == (utilization, order):
                return resource_id
            heappop(self.heap)


class _Shelves(Generic[Slot]):
    """All shelves of one profile."""

    __slots__ = ("all", "by_host", "by_task_manager")

    def __init__(self) -> None:
        self.all: _Shelf[Slot] = _Shelf()
        self.by_host: defaultdict[str, _Shelf[Slot]] = defaultdict(_Shelf)
        self.by_task_manager: defaultdict[ResourceId, _Shelf[Slot]] = defaultdict(_Shelf)


class FreeSlots(Generic[Slot]):
    """Free slots in the order in which they became free.

    `utilization_of`: utilisation of a TaskManager, used only for spreading; `moved` must be called
    when it changes.
    """

    def __init__(
        self, utilization_of: Callable[[ResourceId], float], *, is_spreading: bool
    ) -> None:
        self._utilization_of = utilization_of
        self._is_spreading = is_spreading
        self._slots: OrderedDict[AllocationId, Slot] = OrderedDict()
        self._order: dict[AllocationId, int] = {}
        self._next_order = 0
        self._by_profile: dict[ResourceProfile, _Shelves[Slot]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, allocation_id: AllocationId) -> bool:
        return allocation_id in self._slots

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def add(self, slot: Slot) -> None:
        """Add a slot that has become free, behind all others."""
        allocation_id = slot.allocation_id
        self._slots[allocation_id] = slot
        self._order[allocation_id] = self._next_order
        self._next_order += 1
        shelves = self._by_profile.get(slot.profile)
        if shelves is None:
            self._by_profile[slot.profile] = shelves = _Shelves()
        shelves.all.slots[allocation_id] = slot
        shelves.by_host[slot.host].slots[allocation_id] = slot
        shelves.by_task_manager[slot.resource_id].slots[allocation_id] = slot

    def remove(self, slot: Slot) -> None:
        """Remove a slot that is no longer free. Does nothing if it was not free."""
        allocation_id = slot.allocation_id
        if self._slots.pop(allocation_id, None) is None:
            return
        del self._order[allocation_id]
        shelves = self._by_profile[slot.profile]
        del shelves.all.slots[allocation_id]
        del shelves.by_host[slot.host].slots[allocation_id]
        if not shelves.by_host[slot.host].slots:
            del shelves.by_host[slot.host]
        del shelves.by_task_manager[slot.resource_id].slots[allocation_id]
        if not shelves.by_task_manager[slot.resource_id].slots:
            del shelves.by_task_manager[slot.resource_id]
            shelves.all.rank(slot.resource_id, None)
            if slot.host in shelves.by_host:
                shelves.by_host[slot.host].rank(slot.resource_id, None)

    def moved(self, resource_id: ResourceId) -> None:
        """The TaskManager's utilisation or its free slots have changed."""
        if not self._is_spreading:
            return
        for shelves in self._by_profile.values():
            shelf = shelves.by_task_manager.get(resource_id)
            if shelf is None:
                continue
            first = shelf.first()
            rank = (self._utilization_of(resource_id), self._order[first.allocation_id])
            shelves.all.rank(resource_id, rank)
            shelves.by_host[first.host].rank(resource_id, rank)

    def select(self, selection: SlotSelection, wanted: SlotProfile) -> tuple[Slot, Locality] | None:
        """Return the best slot with its locality, or None."""
        if selection.is_previous_first:
            previous = [a for a in wanted.preferred_allocations if a in self._slots]
            if previous:
                return self._slots[min(previous, key=self._order.__getitem__)], Locality.LOCAL
            if wanted.reserved_allocations:  # Rare: the request's own former slot is gone.
                return selection.select(self, wanted, self._utilization_of)
        usable = [
            shelves
            for profile, shelves in self._by_profile.items()
            if shelves.all.slots and profile.is_matching(wanted.profile)
        ]
        if not usable:
            return None
        if not wanted.preferred_locations:
            return self._best([s.all for s in usable], usable), Locality.UNCONSTRAINED
        best = self._by_score(usable, wanted)
        return best or (self._best([s.all for s in usable], usable), Locality.NON_LOCAL)

    def _by_score(
        self, usable: list[_Shelves[Slot]], wanted: SlotProfile
    ) -> tuple[Slot, Locality] | None:
        """Return the best slot at the preferred places. On a host with a preferred TaskManager no
        other TaskManager can win.
        """
        local_weights = Counter(resource_id for resource_id, _ in wanted.preferred_locations)
        host_weights = Counter(host for _, host in wanted.preferred_locations)
        found: list[tuple[float, int, Slot, Locality]] = []
        settled: set[str] = set()
        for resource_id, weight in local_weights.items():
            shelves = [
                s.by_task_manager[resource_id] for s in usable if resource_id in s.by_task_manager
            ]
            if shelves:
                slot = min((shelf.first() for shelf in shelves), key=self._order_of)
                settled.add(slot.host)
                score = self._score(weight, host_weights[slot.host], slot)
                found.append((score, -self._order_of(slot), slot, Locality.LOCAL))
        for host, weight in host_weights.items():
            shelves = [s.by_host[host] for s in usable if host in s.by_host]
            if shelves and host not in settled:
                slot = self._best(shelves, usable)
                score = self._score(0, weight, slot)
                found.append((score, -self._order_of(slot), slot, Locality.HOST_LOCAL))
        if not found:
            return None
        _, _, slot, locality = max(found, key=lambda candidate: candidate[:2])
        return slot, locality

    def _score(self, local_weight: int, host_weight: int, slot: Slot) -> float:
        utilization = self._utilization_of(slot.resource_id) if self._is_spreading else 0.0
        return candidate_score(
            local_weight, host_weight, utilization, is_spreading=self._is_spreading
        )

    def _best(self, shelves: list[_Shelf[Slot]], usable: list[_Shelves[Slot]]) -> Slot:
        """Return the oldest of these slots; for spreading, that of the least used TaskManager."""
        if not self._is_spreading:
            return min((shelf.first() for shelf in shelves), key=self._order_of)
        best = min(
            (shelf.ranks[resource_id], resource_id)
            for shelf in shelves
            for resource_id in [shelf.least_used()]
        )[1]
        of_best = [s.by_task_manager[best] for s in usable if best in s.by_task_manager]
        return min((shelf.first() for shelf in of_best), key=self._order_of)

    def _order_of(self, slot: Slot) -> int:
        return self._order[slot.allocation_id]
