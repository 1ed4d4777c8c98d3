"""The slots that a job has asked for, holds and gives back.

Knows no tasks: it serves requests. Source: Flink DefaultDeclarativeSlotPool and
DeclarativeSlotPoolBridge (docs/spec/slots.md#the-pools-slots, #the-pools-requests); differs: one
class, and what changed is returned, so that the owner declares requirements once per event instead
of debouncing by time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

from penstock.engine.machines.slots.resource_profile import ANY, ResourceProfile
from penstock.engine.machines.slots.slot_matching import (
    FreeSlot,
    Locality,
    Matching,
    SlotProfile,
    SlotRequest,
    SlotSelection,
    match_requests,
)
from penstock.engine.machines.story import Story
from penstock.engine.model.ids import AllocationId, ResourceId, SlotRequestId, TaskManagerLocation
from penstock.engine.model.messages import SlotOffer


@dataclass(slots=True, eq=False)
class PooledSlot:
    """A slot of the pool. `counts_for`: the requirement that it fulfils. `serves`: its request, if in use."""

    allocation_id: AllocationId
    location: TaskManagerLocation
    slot_index: int
    profile: ResourceProfile
    counts_for: ResourceProfile
    free_since_ms: int | None
    serves: SlotRequest | None = None

    @property
    def resource_id(self) -> ResourceId:
        return self.location.resource_id

    @property
    def host(self) -> str:
        return self.location.host


@dataclass(frozen=True, slots=True)
class OfferAnswer:
    accepted: tuple[AllocationId, ...]
    rejected: tuple[AllocationId, ...]


class SlotPool:
    """All slots of one job by allocation id, in the order they came.

    `floor`: the job holds at least this number of slots, whatever its requests are.
    """

    def __init__(
        self,
        matching: Matching = Matching.SIMPLE,
        selection: SlotSelection | None = None,
        idle_timeout_ms: int = 50_000,
    ) -> None:
        self.story = Story("slot pool")
        self._matching = matching
        self._idle_timeout_ms = idle_timeout_ms
        self._task_managers: dict[ResourceId, dict[AllocationId, PooledSlot]] = {}
        self._free_per_task_manager: Counter[ResourceId] = Counter()
        self.free_slots: FreeSlots[PooledSlot] = FreeSlots(
            selection or SlotSelection(), self.utilization
        )
        self._by_request: dict[SlotRequestId, PooledSlot] = {}
        self.slots: dict[AllocationId, PooledSlot] = {}
        self.floor = 0
        # An OrderedDict, because finding the first entry of a dict is slow after many entries
        # before it were removed.
        self.pending: OrderedDict[SlotRequestId, SlotRequest] = OrderedDict()
        self.required: Counter[ResourceProfile] = Counter()
        self.fulfilled: Counter[ResourceProfile] = Counter()

    # ------------------------------------------------------------------ views

    @property
    def total_required(self) -> int:
        return max(self.floor, self.required.total())

    @property
    def free(self) -> list[PooledSlot]:
        return list(self.free_slots)

    def slot_of(self, request_id: SlotRequestId) -> PooledSlot | None:
        return self._by_request.get(request_id)

    def utilization(self, resource_id: ResourceId) -> float:
        """Return the share of the TaskManager's slots in this pool that are in use."""
        held = len(self._task_managers.get(resource_id, ()))
        return (held - self._free_per_task_manager[resource_id]) / held if held else 0.0

    def loads(self) -> dict[ResourceId, float]:
        """Return the tasks per TaskManager, from the requests that its slots serve."""
        found: dict[ResourceId, float] = {}
        for slot in self._by_request.values():
            if slot.serves is not None:
                found[slot.resource_id] = found.get(slot.resource_id, 0) + slot.serves.load
        return found

    # ------------------------------------------------------------------ TaskManagers and offers

    def register_task_manager(self, resource_id: ResourceId) -> None:
        """Accept offers of this TaskManager from now on."""
        self._task_managers.setdefault(resource_id, {})

    def offer(
        self,
        location: TaskManagerLocation,
        offers: Iterable[SlotOffer],
        now_ms: int,
        *,
        profile: ResourceProfile = ANY,
        is_any_welcome: bool = False,
    ) -> OfferAnswer:
        """Accept offers that fulfil an outstanding requirement, and repeated offers of slots that
        are held.

        Args: is_any_welcome: the job restarts and will soon ask for slots, so every slot is
        accepted.
        """
        accepted: list[AllocationId] = []
        rejected: list[AllocationId] = []
        known = self._task_managers.get(location.resource_id)
        for offer in offers:
            if known is None:
                rejected.append(offer.allocation_id)
                continue
            if offer.allocation_id not in self.slots:
                counts_for = self._outstanding(profile)
                if counts_for is None and not is_any_welcome:
                    rejected.append(offer.allocation_id)
                    continue
                slot = PooledSlot(
                    offer.allocation_id,
                    location,
                    offer.slot_index,
                    profile,
                    ANY if counts_for is None else counts_for,
                    now_ms,
                )
                self._add(slot, known)
            accepted.append(offer.allocation_id)
        resource_id = location.resource_id
        self.story.add("offer", resource_id, "accepted:", *accepted, "rejected:", *rejected)
        return OfferAnswer(tuple(accepted), tuple(rejected))

    def release_task_manager(self, resource_id: ResourceId) -> list[PooledSlot]:
        """Forget a TaskManager and its slots. Slots in use no longer count as required either."""
        lost = list(self._task_managers.pop(resource_id, {}).values())
        for slot in lost:
            self._forget(slot)
            if slot.serves is not None:
                self.required[slot.counts_for] -= 1
        self._free_per_task_manager.pop(resource_id, None)
        self.story.add("release_task_manager", resource_id, "and", len(lost), "slots are gone")
        return lost

    def lose_slot(self, allocation_id: AllocationId) -> PooledSlot | None:
        """A TaskManager has freed a slot by itself. Returns: the slot; None: it is not held."""
        slot = self.slots.get(allocation_id)
        if slot is None:
            return None
        is_free = slot.serves is None
        self.story.add("lose_slot", allocation_id, "of", slot.resource_id)
        self._remove(slot)
        if not is_free:
            self.required[slot.counts_for] -= 1
        return slot

    # ------------------------------------------------------------------ requests

    def allocate(self, request: SlotRequest, wanted: SlotProfile) -> Locality | None:
        """Serve the request with a free slot now, or return None and change nothing."""
        best = self.free_slots.select(wanted)
        if best is None:
            return None
        slot, locality = best
        self.required[request.profile] += 1
        self._reserve(slot, request)
        return locality

    def request_new(self, request: SlotRequest) -> None:
        """Wait for a slot that is offered, or freed by another request."""
        self.pending[request.request_id] = request
        self.story.add("request_new", request.request_id, "waits")
        self.required[request.profile] += 1

    def serve_pending(self) -> list[tuple[SlotRequest, PooledSlot]]:
        """Match waiting requests with free slots; all matches are reserved before any is returned."""
        if not self.pending or not self.free_slots:
            return []
        loads = self.loads() if self._matching.is_by_load else {}
        matches = match_requests(self._matching, self.free, self.pending.values(), loads)
        served: list[tuple[SlotRequest, PooledSlot]] = []
        for request_id, matched in matches.items():
            slot = self.slots[matched.allocation_id]
            request = self.pending.pop(request_id)
            self._reserve(slot, request)
            served.append((request, slot))
        return served

    def release(self, request_id: SlotRequestId, now_ms: int) -> bool:
        """A request is no longer needed. Unknown ones are ignored. Returns: whether it was waiting."""
        request = self.pending.pop(request_id, None)
        if request is not None:
            self.required[request.profile] -= 1
            self.story.add("release", request_id, "waits no more")
            return True
        slot = self._by_request.pop(request_id, None)
        if slot is not None:
            self.story.add("release", request_id, "gives back", slot.allocation_id)
            slot.serves = None
            slot.free_since_ms = now_ms
            self._set_free(slot)
            self.required[slot.counts_for] -= 1
        return False

    # ------------------------------------------------------------------ giving back

    def release_idle(
        self, now_ms: int, kept: Collection[ResourceId] = frozenset()
    ) -> list[PooledSlot]:
        """Forget free slots beyond the requirements that have been free for too long.

        Args: kept: TaskManagers that keep one slot; the idle time of that slot starts again.
        """
        excess = self.fulfilled - self.required
        idle: list[PooledSlot] = []
        for slot in self.free:
            assert slot.free_since_ms is not None
            is_old = slot.free_since_ms + self._idle_timeout_ms <= now_ms
            if is_old and excess[slot.counts_for] > 0:
                excess[slot.counts_for] -= 1
                if slot.resource_id in kept and len(self._task_managers[slot.resource_id]) == 1:
                    slot.free_since_ms = now_ms
                    self.free_slots.remove(slot)
                    self.free_slots.add(slot)  # It is now last in the order of idle times.
                    self.free_slots.moved(slot.resource_id)
                    continue
                self._remove(slot)
                self.story.add("release_idle", slot.allocation_id, "of", slot.resource_id)
                idle.append(slot)
        return idle

    def release_surplus(self, count: int) -> list[PooledSlot]:
        """Forget free slots until no more than `count` are held. TaskManagers with the fewest slots lose theirs first."""
        by_size = sorted(self.free, key=lambda one: len(self._task_managers[one.resource_id]))
        for slot in (surplus := by_size[: max(0, len(self.slots) - count)]):
            self._remove(slot)
        return surplus

    def next_idle_ms(self) -> int | None:
        """Return when `release_idle` may find something, or None.

        Called after every event of a BATCH job. Free slots are in the order in which they became
        free, so the first surplus one decides.
        """
        excess = self.fulfilled - self.required
        for slot in self.free_slots if excess else ():
            if slot.free_since_ms is not None and excess[slot.counts_for] > 0:
                return slot.free_since_ms + self._idle_timeout_ms
        return None

    def clear(self) -> list[PooledSlot]:
        """The job has ended: forget all slots and requests."""
        held = list(self.slots.values())
        for slot in held:
            self._remove(slot)
        self.pending.clear()
        self.required.clear()
        self.floor = 0
        return held

    # ------------------------------------------------------------------ private

    def _outstanding(self, profile: ResourceProfile) -> ResourceProfile | None:
        """Return a requirement that no slot fulfils yet: an equal one first, else any that matches."""
        if self.required[profile] > self.fulfilled[profile]:
            return profile
        for wanted, count in self.required.items():
            if count > self.fulfilled[wanted] and profile.is_matching(wanted):
                return wanted
        return ANY if len(self.slots) < self.floor else None

    def _add(self, slot: PooledSlot, of_task_manager: dict[AllocationId, PooledSlot]) -> None:
        self.slots[slot.allocation_id] = slot
        of_task_manager[slot.allocation_id] = slot
        self._set_free(slot)
        self.fulfilled[slot.counts_for] += 1

    def _set_free(self, slot: PooledSlot) -> None:
        self.free_slots.add(slot)
        self._free_per_task_manager[slot.resource_id] += 1
        self.free_slots.moved(slot.resource_id)

    def _reserve(self, slot: PooledSlot, request: SlotRequest) -> None:
        """Reserve a slot for a request. If it came for another profile, the two requirements are exchanged."""
        if slot.counts_for != request.profile:
            self.fulfilled[slot.counts_for] -= 1
            self.fulfilled[request.profile] += 1
            if slot.counts_for != ANY and self.required[slot.counts_for] > 0:
                self.required[slot.counts_for] -= 1
                self.required[request.profile] += 1
            slot.counts_for = request.profile
        self.story.add("reserve", slot.allocation_id, "for", request.request_id)
        self.free_slots.remove(slot)
        self._free_per_task_manager[slot.resource_id] -= 1
        self.free_slots.moved(slot.resource_id)
        slot.free_since_ms = None
        slot.serves = request
        self._by_request[request.request_id] = slot

    def _remove(self, slot: PooledSlot) -> None:
        self._forget(slot)
        if slot.free_since_ms is not None:
            self._free_per_task_manager[slot.resource_id] -= 1
        self._task_managers[slot.resource_id].pop(slot.allocation_id, None)
        self.free_slots.moved(slot.resource_id)

    def _forget(self, slot: PooledSlot) -> None:
        self.slots.pop(slot.allocation_id, None)
        self.free_slots.remove(slot)
        self.fulfilled[slot.counts_for] -= 1
        if slot.serves is not None:
            self._by_request.pop(slot.serves.request_id, None)


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
    """The free slots of a pool, indexed so that the best one for a request is found without a scan.

    Knows no requests. Chooses the same slot as `SlotSelection.select` (a property test compares them),
    at a lower cost: constant for the default, logarithmic for spreading, times the number of places
    that the request prefers. Source: Flink FreeSlotTracker (docs/spec/slots.md#choosing-a-slot), which
    is scanned.

    Free slots in the order in which they became free.

    `utilization_of`: utilisation of a TaskManager, used only for spreading; `moved` must be called
    when it changes.
    """

    def __init__(
        self, selection: SlotSelection, utilization_of: Callable[[ResourceId], float]
    ) -> None:
        self.selection = selection
        self._utilization_of = utilization_of
        self._slots: OrderedDict[AllocationId, Slot] = OrderedDict()
        self._order: dict[AllocationId, int] = {}
        self._next_order = 0
        self.by_profile: dict[ResourceProfile, _Shelves[Slot]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, allocation_id: AllocationId) -> bool:
        return allocation_id in self._slots

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def add(self, slot: Slot) -> None:
        """Append a slot that has become free."""
        allocation_id = slot.allocation_id
        self._slots[allocation_id] = slot
        self._order[allocation_id] = self._next_order
        self._next_order += 1
        shelves = self.by_profile.get(slot.profile)
        if shelves is None:
            self.by_profile[slot.profile] = shelves = _Shelves()
        shelves.all.slots[allocation_id] = slot
        shelves.by_host[slot.host].slots[allocation_id] = slot
        shelves.by_task_manager[slot.resource_id].slots[allocation_id] = slot

    def remove(self, slot: Slot) -> None:
        """Remove a slot that is no longer free. Does nothing if it was not free."""
        allocation_id = slot.allocation_id
        if self._slots.pop(allocation_id, None) is None:
            return
        del self._order[allocation_id]
        shelves = self.by_profile[slot.profile]
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
        if not self.selection.is_spreading:
            return
        for shelves in self.by_profile.values():
            shelf = shelves.by_task_manager.get(resource_id)
            if shelf is None:
                continue
            first = shelf.first()
            rank = (self._utilization_of(resource_id), self._order[first.allocation_id])
            shelves.all.rank(resource_id, rank)
            shelves.by_host[first.host].rank(resource_id, rank)

    def select(self, wanted: SlotProfile) -> tuple[Slot, Locality] | None:
        """Return the best slot with its locality, or None."""
        if self.selection.is_previous_first:
            previous = [a for a in wanted.preferred_allocations if a in self._slots]
            if previous:
                return self._slots[min(previous, key=self._order.__getitem__)], Locality.LOCAL
            if wanted.reserved_allocations:  # Rare: the request's own former slot is gone.
                return self._without(wanted.reserved_allocations).select(
                    replace(wanted, reserved_allocations=frozenset())
                )
        usable = [
            shelves
            for profile, shelves in self.by_profile.items()
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

    def _without(self, reserved: Container[AllocationId]) -> FreeSlots[Slot]:
        left = FreeSlots[Slot](self.selection, self._utilization_of)
        for slot in self:
            if slot.allocation_id not in reserved:
                left.add(slot)
                left.moved(slot.resource_id)
        return left

    def _score(self, local_weight: int, host_weight: int, slot: Slot) -> float:
        used = self._utilization_of(slot.resource_id) if self.selection.is_spreading else 0.0
        return self.selection.score(local_weight, host_weight, used)

    def _best(self, shelves: list[_Shelf[Slot]], usable: list[_Shelves[Slot]]) -> Slot:
        """Return the oldest of these slots; for spreading, that of the least used TaskManager."""
        if not self.selection.is_spreading:
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
