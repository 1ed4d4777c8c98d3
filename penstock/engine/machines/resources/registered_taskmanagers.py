"""TaskManagers that the ResourceManager knows: registered ones with their slots, and starting ones; and which of them can
give a slot.

Knows no need and no job's name. Source: Flink TaskManagerTracker, PendingTaskManager.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from penstock.engine.machines.resources.resource_allocation import Worker
from penstock.engine.machines.slots.resource_profile import ResourceProfile, profile_of
from penstock.engine.model.ids import AllocationId, JobId, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import TaskManagerRegistered
from penstock.engine.model.slot_size import UNSIZED, SlotSize

Need: TypeAlias = "tuple[JobId, SlotSize]"


@dataclass(slots=True)
class SlotOfTaskManager:
    """Free while `job_id` is None."""

    allocation_id: AllocationId | None = None
    job_id: JobId | None = None


@dataclass(slots=True)
class KnownTaskManager:
    """`number`: order of registration. `is_leaving`: the host takes it away soon, so its free slots are given to nobody."""

    location: TaskManagerLocation
    slots: list[SlotOfTaskManager]
    idle_since_ms: int | None
    size: SlotSize = UNSIZED
    number: int = 0
    is_leaving: bool = False

    @property
    def is_idle(self) -> bool:
        return all(slot.job_id is None for slot in self.slots)

    @property
    def free_slots(self) -> int:
        return sum(slot.job_id is None for slot in self.slots)


class Starting:
    """TaskManagers that were asked for and have not registered: since when, and how many of each size."""

    def __init__(self) -> None:
        self.since_ms: dict[ResourceId, int] = {}
        self.of_size: Counter[SlotSize] = Counter()
        self._awaited: set[ResourceId] = set()
        self._size: dict[ResourceId, SlotSize] = {}

    def __len__(self) -> int:
        return len(self.since_ms)

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self.since_ms

    def add(
        self, resource_id: ResourceId, size: SlotSize, now_ms: int, *, is_awaited: bool
    ) -> None:
        """`is_awaited`: others wait for it, so that slots can be spread over it too."""
        self.since_ms[resource_id] = now_ms
        if is_awaited:
            self._awaited.add(resource_id)
        self._size[resource_id] = size
        self.of_size[size] += 1

    def since(self, latest_ms: int) -> list[ResourceId]:
        """Return those that were asked for at that time or before."""
        return [name for name, since_ms in self.since_ms.items() if since_ms <= latest_ms]

    def are_awaited(self, since_ms: int) -> bool:
        """Whether others wait for one that was asked for after that time."""
        return any(self.since_ms[one] > since_ms for one in self._awaited)

    def pop(self, resource_id: ResourceId) -> bool:
        """Remove it. Returns: whether it was starting."""
        self._awaited.discard(resource_id)
        if self.since_ms.pop(resource_id, None) is None:
            return False
        self.of_size[self._size.pop(resource_id)] -= 1
        return True


class Registered(dict[ResourceId, KnownTaskManager]):
    """By id. `with_free_slots`: those that may give a slot: they have a free one, and do not leave. `slots_of_size`: of
    all, free or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.with_free_slots: set[ResourceId] = set()
        self.slots_of_size: Counter[SlotSize] = Counter()
        self._next_number = 0

    def register(self, event: TaskManagerRegistered, now_ms: int) -> None:
        resource_id = event.location.resource_id
        slots = [SlotOfTaskManager() for _ in range(event.slots)]
        self[resource_id] = KnownTaskManager(
            event.location, slots, now_ms, event.size, self._next_number
        )
        self._next_number += 1
        self.with_free_slots.add(resource_id)
        self.slots_of_size[event.size] += event.slots

    def forget(self, resource_id: ResourceId) -> KnownTaskManager | None:
        """Return it; None: it is not known."""
        known = self.pop(resource_id, None)
        self.with_free_slots.discard(resource_id)
        if known is not None:
            self.slots_of_size[known.size] -= len(known.slots)
        return known

    def leave(self, resource_id: ResourceId) -> None:
        """The host takes it away soon: its free slots are given to nobody."""
        if resource_id in self:
            self[resource_id].is_leaving = True
            self.with_free_slots.discard(resource_id)

    def has_left(self, resource_id: ResourceId) -> bool:
        """Whether it leaves, and nobody uses it any more."""
        known = self.get(resource_id)
        return known is not None and known.is_leaving and known.is_idle

    def occupy(self, resource_id: ResourceId, slot: SlotOfTaskManager) -> int:
        """Put the slot in the place of the first free one. Returns its index."""
        known = self[resource_id]
        index = next(i for i, one in enumerate(known.slots) if one.job_id is None)
        known.slots[index] = slot
        known.idle_since_ms = None
        if not known.free_slots:
            self.with_free_slots.discard(resource_id)
        return index

    def freed(self, resource_id: ResourceId, now_ms: int) -> None:
        """One of its slots is free again."""
        known = self[resource_id]
        if not known.is_leaving:
            self.with_free_slots.add(resource_id)
        if known.is_idle:
            known.idle_since_ms = now_ms

    @property
    def staying(self) -> int:
        """How many do not leave."""
        return sum(not known.is_leaving for known in self.values())

    def to_give(self, size: SlotSize, taken: int) -> int:
        """Return how many slots of that size those that stay can give. `taken`: of all."""
        leaving = [known for known in self.values() if known.is_leaving and known.size == size]
        return self.slots_of_size[size] - taken - sum(known.free_slots for known in leaving)

    def workers(self, size: SlotSize) -> list[Worker]:
        """Return TaskManagers of that size with free slots, in the order of registration."""
        known = [(resource_id, self[resource_id]) for resource_id in self.with_free_slots]
        return [
            Worker(
                resource_id,
                slots_profile(len(one.slots)),
                slots_profile(one.free_slots),
                slots_profile(1),
            )
            for resource_id, one in sorted(known, key=lambda entry: entry[1].number)
            if one.size == size
        ]

    def idle_since(self, latest_ms: int) -> list[tuple[ResourceId, KnownTaskManager]]:
        """Return those that nobody has used since that time or longer."""
        return [
            (resource_id, known)
            for resource_id, known in self.items()
            if known.idle_since_ms is not None and known.idle_since_ms <= latest_ms
            if known.is_idle
        ]


@lru_cache(maxsize=1024)
def slots_profile(count: int) -> ResourceProfile:
    """Return the profile of `count` slots."""
    return profile_of({"cpu": count})
