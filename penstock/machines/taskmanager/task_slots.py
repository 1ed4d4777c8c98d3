"""The TaskManager's side: its slots, and which attempts sit in each.

Knows no threads and no clock: whoever arms a timer brings its ticket back. Source: Flink
TaskSlotTableImpl (flink-runtime spec 1.7). Differs: slots have no resource budget of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.model.errors import ConfigurationError, ExternalError
from penstock.model.ids import AllocationId, AttemptId, JobId, ResourceId
from penstock.model.messages import SlotFreed, SlotOffer
from penstock.model.states import SlotState


@dataclass(slots=True)
class TaskSlot:
    """`ticket`: of the timeout that is armed, None while none is. `owner`: whom to tell of the
    end. `ended`: attempts that were in it: a repeated message starts none of them again."""

    index: int
    job_id: JobId
    allocation_id: AllocationId
    ticket: int | None
    state: SlotState = SlotState.ALLOCATED
    attempts: set[AttemptId] = field(default_factory=set)
    ended: set[AttemptId] = field(default_factory=set)
    owner: ResourceId | None = None


class TaskSlots:
    """Slots 0 to n-1, and dynamic ones from n on for requests without an index."""

    def __init__(self, slots: int) -> None:
        """Raises ConfigurationError: less than one slot."""
        if slots < 1:
            raise ConfigurationError(
                f"a TaskManager of {slots} slots can run nothing. Set "
                "taskmanager.numberOfTaskSlots to 1 or more."
            )
        self._count = slots
        self._by_allocation: dict[AllocationId, TaskSlot] = {}
        self._by_index: dict[int, TaskSlot] = {}
        self._past: set[AllocationId] = set()
        self._next_ticket = 0

    def allocate(self, index: int, job_id: JobId, allocation_id: AllocationId) -> bool:
        """Give the slot to the job; again for the same allocation is fine. `index` -1: any,
        dynamic.

        A timeout starts for it: arm a timer with `ticket_of(allocation_id)`. False: the place is taken, or this
        allocation is over: a repeated request does not bring it back.
        """
        if allocation_id in self._past:
            return False
        known = self._by_allocation.get(allocation_id)
        if known is not None:
            is_same_place = index < 0 or known.index == index
            return known.job_id == job_id and is_same_place
        if index < 0:
            index = next(i for i in self._dynamic_indices() if i not in self._by_index)
        elif index >= self._count or index in self._by_index:
            return False
        slot = TaskSlot(index, job_id, allocation_id, self._new_ticket())
        self._by_allocation[allocation_id] = self._by_index[index] = slot
        return True

    def ticket_of(self, allocation_id: AllocationId) -> int | None:
        """Of the timeout that runs for this slot now."""
        slot = self._by_allocation.get(allocation_id)
        return slot.ticket if slot else None

    def mark_active(self, allocation_id: AllocationId) -> bool:
        """Its JobMaster wants it: no timeout any more. False: unknown or being released."""
        slot = self._by_allocation.get(allocation_id)
        if slot is None or slot.state is SlotState.RELEASING:
            return False
        slot.state, slot.ticket = SlotState.ACTIVE, None
        return True

    def mark_inactive(self, allocation_id: AllocationId) -> bool:
        """Its JobMaster is gone: the timeout starts anew."""
        slot = self._by_allocation.get(allocation_id)
        if slot is None or slot.state is SlotState.RELEASING:
            return False
        slot.state, slot.ticket = SlotState.ALLOCATED, self._new_ticket()
        return True

    def is_timed_out(self, allocation_id: AllocationId, ticket: int) -> bool:
        """Whether a timer that fired still counts: then free the slot."""
        slot = self._by_allocation.get(allocation_id)
        return slot is not None and slot.ticket == ticket

    def add_task(self, allocation_id: AllocationId, attempt_id: AttemptId) -> None:
        """An attempt moves in. Raises ExternalError: no such slot, not active, or already there."""
        slot = self._by_allocation.get(allocation_id)
        if slot is None or slot.state is not SlotState.ACTIVE:
            state = f"it is {slot.state}" if slot else "slot not found here"
            raise ExternalError(
                f"attempt {attempt_id} cannot run in slot {allocation_id}: {state}, and it must "
                "be ACTIVE. The JobMaster will place the task anew."
            )
        if attempt_id in slot.attempts or attempt_id in slot.ended:
            has = "has run" if attempt_id in slot.ended else "runs"
            raise ExternalError(f"attempt {attempt_id} {has} in slot {allocation_id} already.")
        slot.attempts.add(attempt_id)

    def task_ended(self, allocation_id: AllocationId, attempt_id: AttemptId) -> list[SlotFreed]:
        """An attempt has ended; the last one of a slot that is being released frees it."""
        slot = self._by_allocation.get(allocation_id)
        if slot is None:
            return []
        slot.attempts.discard(attempt_id)
        slot.ended.add(attempt_id)
        return self._drop(slot) if slot.state is SlotState.RELEASING else []

    def free(self, resource_id: ResourceId, allocation_id: AllocationId) -> list[SlotFreed]:
        """Give the slot back. With tasks in it, it is freed when the last one has ended: fail them.

        Returns: SlotFreed for the ResourceManager, or nothing yet. Unknown allocations: nothing.
        """
        slot = self._by_allocation.get(allocation_id)
        if slot is None:
            return []
        slot.owner, slot.state, slot.ticket = resource_id, SlotState.RELEASING, None
        return self._drop(slot)

    def slot(self, allocation_id: AllocationId) -> TaskSlot | None:
        return self._by_allocation.get(allocation_id)

    def offers_to(self, job_id: JobId) -> list[SlotOffer]:
        """Slots of the job that its JobMaster has not taken yet."""
        return [
            SlotOffer(slot.allocation_id, slot.index)
            for slot in self._by_allocation.values()
            if slot.job_id == job_id and slot.state is SlotState.ALLOCATED
        ]

    def __len__(self) -> int:
        return len(self._by_allocation)

    def _drop(self, slot: TaskSlot) -> list[SlotFreed]:
        if slot.attempts or slot.owner is None:
            return []
        del self._by_allocation[slot.allocation_id]
        del self._by_index[slot.index]
        self._past.add(slot.allocation_id)
        return [SlotFreed(slot.owner, slot.index, slot.allocation_id)]

    def _dynamic_indices(self) -> Iterator[int]:
        return iter(range(self._count, self._count + len(self._by_index) + 1))

    def _new_ticket(self) -> int:
        self._next_ticket += 1
        return self._next_ticket
