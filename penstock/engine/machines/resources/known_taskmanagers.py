"""TaskManagers that the ResourceManager knows: registered ones with their slots, and starting ones.

Knows no need. Source: Flink TaskManagerTracker, PendingTaskManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import AllocationId, JobId, ResourceId, TaskManagerLocation
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


def check_taskmanagers(
    taskmanagers: Mapping[ResourceId, KnownTaskManager], starting: Starting, most: int | None
) -> None:
    """Raises BrokenInvariant."""
    staying = sum(not one.is_leaving for one in taskmanagers.values())
    both = taskmanagers.keys() & starting.since_ms.keys()
    if both:
        raise BrokenInvariant(f"TaskManagers {sorted(both)} are registered and starting.")
    if most is not None and staying + len(starting) > most:
        raise BrokenInvariant(f"more than {most} TaskManagers.")


def check_slots(
    taskmanagers: Mapping[ResourceId, KnownTaskManager],
    allocated: Counter[Need],
    with_free_slots: AbstractSet[ResourceId],
    slots_of_size: Counter[SlotSize],
) -> None:
    """Raises BrokenInvariant: the counters of slots do not match the TaskManagers' slots."""
    taken = [
        (known, slot) for known in taskmanagers.values() for slot in known.slots if slot.job_id
    ]
    owners = Counter((slot.job_id, known.size) for known, slot in taken)
    if owners != +allocated:
        raise BrokenInvariant(
            f"slots per job: the counters say {dict(allocated)}, the slots say {dict(owners)}."
        )
    if len(taken) != len({slot.allocation_id for _, slot in taken}):
        raise BrokenInvariant("one allocation id names two slots.")
    with_free = {
        name for name, known in taskmanagers.items() if known.free_slots and not known.is_leaving
    }
    if with_free != with_free_slots:
        raise BrokenInvariant(
            f"free slots are on {with_free}, but the counters say {with_free_slots}."
        )
    if slots_of_size.total() != sum(len(known.slots) for known in taskmanagers.values()):
        raise BrokenInvariant(
            f"slots by size do not match the counters, which say {slots_of_size}."
        )
