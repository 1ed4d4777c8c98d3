"""The slots that a job has asked for, holds and gives back.

Knows no tasks: it serves requests. Source: Flink DefaultDeclarativeSlotPool and
DeclarativeSlotPoolBridge (docs/spec/slots.md#the-pools-slots, #the-pools-requests); differs: one
class, and what changed is returned, so that the owner declares requirements once per event instead
of debouncing by time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from penstock.engine.machines.slots.free_slots import FreeSlots
from penstock.engine.machines.slots.resource_profile import ANY, ResourceProfile
from penstock.engine.machines.slots.slot_matching import Matching, SlotRequest, match_requests
from penstock.engine.machines.slots.slot_selection import Locality, SlotProfile, SlotSelection
from penstock.engine.machines.story import Story
from penstock.engine.model.errors import BrokenInvariant
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

    `floor`: the job wants to hold at least so many, whatever its requests are.
    """

    def __init__(
        self,
        matching: Matching = Matching.SIMPLE,
        selection: SlotSelection | None = None,
        idle_timeout_ms: int = 50_000,
    ) -> None:
        self.story = Story("slot pool")
        self._matching = matching
        self._selection = selection or SlotSelection()
        self._idle_timeout_ms = idle_timeout_ms
        self._task_managers: dict[ResourceId, dict[AllocationId, PooledSlot]] = {}
        self._free_per_task_manager: Counter[ResourceId] = Counter()
        self._free: FreeSlots[PooledSlot] = FreeSlots(
            self.utilization, is_spreading=self._selection.is_spreading
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
        return list(self._free)

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
        best = self._free.select(self._selection, wanted)
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
        if not self.pending or not self._free:
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
                    self._free.remove(slot)
                    self._free.add(slot)  # It is now last in the order of idle times.
                    self._free.moved(slot.resource_id)
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
        for slot in self._free if excess else ():
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

    def check(self) -> None:
        """Raises BrokenInvariant: the pool's counters do not match the slots."""
        with self.story:
            self._check()

    def _check(self) -> None:
        fulfilled = Counter(slot.counts_for for slot in self.slots.values())
        used = Counter(slot.counts_for for slot in self._by_request.values())
        waiting = Counter(request.profile for request in self.pending.values())
        _expect("fulfilled requirements", +self.fulfilled, fulfilled)
        _expect("required slots", +self.required, used + waiting)
        _expect("free slots", len(self._free), len(self.slots) - len(self._by_request))
        per_task_manager = Counter(slot.resource_id for slot in self._free)
        _expect("free per TaskManager", +self._free_per_task_manager, per_task_manager)
        for slot in self.slots.values():
            is_free = slot.allocation_id in self._free
            _expect(f"{slot.allocation_id} is free", slot.serves is None, is_free)

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
        self._free.add(slot)
        self._free_per_task_manager[slot.resource_id] += 1
        self._free.moved(slot.resource_id)

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
        self._free.remove(slot)
        self._free_per_task_manager[slot.resource_id] -= 1
        self._free.moved(slot.resource_id)
        slot.free_since_ms = None
        slot.serves = request
        self._by_request[request.request_id] = slot

    def _remove(self, slot: PooledSlot) -> None:
        self._forget(slot)
        if slot.free_since_ms is not None:
            self._free_per_task_manager[slot.resource_id] -= 1
        self._task_managers[slot.resource_id].pop(slot.allocation_id, None)
        self._free.moved(slot.resource_id)

    def _forget(self, slot: PooledSlot) -> None:
        self.slots.pop(slot.allocation_id, None)
        self._free.remove(slot)
        self.fulfilled[slot.counts_for] -= 1
        if slot.serves is not None:
            self._by_request.pop(slot.serves.request_id, None)


def _expect(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise BrokenInvariant(
            f"slot pool: {what}: the counters say {got}, the slots say {expected}."
        )
