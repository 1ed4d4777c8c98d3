"""The slots of a TaskManager: the states of an allocation as a table, and which attempts are in
each slot.

Knows no thread, clock and message. Source: Flink TaskSlotTableImpl (docs/spec/tasks.md#slot-table).
Differs: slots have no resource budget of their own. An allocation never becomes inactive again,
because a TaskManager ends with its JobManager. So its timeout needs no ticket: one that fires late
finds the allocation taken or over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Final, TypeAlias

from penstock.engine.model.errors import BrokenInvariant, ConfigurationError, IllegalTransition
from penstock.engine.model.ids import AllocationId, AttemptId, JobId
from penstock.engine.model.states import SlotState


class SlotEvent(StrEnum):
    """What can happen to an allocation."""

    REQUEST = "REQUEST"
    """The ResourceManager gives the slot to a job."""
    ACCEPT = "ACCEPT"
    """The job's JobMaster takes it."""
    SUBMIT = "SUBMIT"
    """A task comes; it may overtake the answer to the offer."""
    FREE = "FREE"
    TIME_OUT = "TIME_OUT"
    EMPTY = "EMPTY"
    """Its last task has ended."""


class SlotConsequence(StrEnum):
    """What the caller must do beyond taking the new state."""

    NONE = "NONE"
    OFFER = "OFFER"
    MOVE_IN = "MOVE_IN"
    REFUSE = "REFUSE"
    """The task cannot run here: report that."""
    STOP_TASKS = "STOP_TASKS"
    """Stop the slot's tasks. EMPTY follows when none is left, at once if there are none."""
    GIVE_BACK = "GIVE_BACK"


SlotSquare: TypeAlias = tuple[SlotState, SlotConsequence]

_S, _E, _C = SlotState, SlotEvent, SlotConsequence

# FREE is the state of an allocation that was never here, and of one that is over; `TaskSlots` never
# reuses the latter.
# fmt: off
TABLE: Final[Mapping[tuple[SlotState, SlotEvent], SlotSquare]] = {
    (_S.FREE, _E.REQUEST):       (_S.ALLOCATED, _C.OFFER),
    (_S.ALLOCATED, _E.REQUEST):  (_S.ALLOCATED, _C.OFFER),  # repeated: the offer may have been lost
    (_S.ALLOCATED, _E.ACCEPT):   (_S.ACTIVE, _C.NONE),
    (_S.ALLOCATED, _E.SUBMIT):   (_S.ACTIVE, _C.MOVE_IN),
    (_S.ACTIVE, _E.SUBMIT):      (_S.ACTIVE, _C.MOVE_IN),
    (_S.FREE, _E.SUBMIT):        (_S.FREE, _C.REFUSE),
    (_S.RELEASING, _E.SUBMIT):   (_S.RELEASING, _C.REFUSE),
    (_S.ALLOCATED, _E.TIME_OUT): (_S.RELEASING, _C.STOP_TASKS),
    (_S.ALLOCATED, _E.FREE):     (_S.RELEASING, _C.STOP_TASKS),
    (_S.ACTIVE, _E.FREE):        (_S.RELEASING, _C.STOP_TASKS),
    (_S.RELEASING, _E.EMPTY):    (_S.FREE, _C.GIVE_BACK),
}
STALE: Final = frozenset({  # events that were right when sent, but are late when read
    (_S.FREE, _E.ACCEPT), (_S.FREE, _E.FREE), (_S.FREE, _E.TIME_OUT),
    (_S.ACTIVE, _E.REQUEST), (_S.ACTIVE, _E.ACCEPT), (_S.ACTIVE, _E.TIME_OUT),
    (_S.ACTIVE, _E.EMPTY),  # a job keeps its slot between two tasks
    (_S.RELEASING, _E.REQUEST), (_S.RELEASING, _E.ACCEPT), (_S.RELEASING, _E.FREE),
    (_S.RELEASING, _E.TIME_OUT),
})
IMPOSSIBLE: Final = frozenset({  # a slot without tasks cannot lose its last one
    (_S.FREE, _E.EMPTY), (_S.ALLOCATED, _E.EMPTY),
})
# fmt: on


def step(who: object, state: SlotState, event: SlotEvent) -> SlotSquare:
    """Return the next state and the consequence. Raises IllegalTransition: the event can never be
    right in this state.
    """
    if (state, event) in STALE:
        return state, SlotConsequence.NONE
    if (state, event) in IMPOSSIBLE:
        takes = ", ".join(e.name for s, e in TABLE if s is state)
        raise IllegalTransition(
            f"slot {who}: got {event.name} in {state.name}, which takes only {takes}. See the "
            "story of the TaskManager for what led to it."
        )
    return TABLE[state, event]


@dataclass(slots=True)
class TaskSlot:
    """One allocation. `ended`: attempts that were in it; a repeated message does not start them again."""

    index: int
    job_id: JobId
    allocation_id: AllocationId
    state: SlotState = SlotState.FREE
    attempts: set[AttemptId] = field(default_factory=set)
    ended: set[AttemptId] = field(default_factory=set)

    def move(self, event: SlotEvent) -> SlotConsequence:
        """Raises: IllegalTransition."""
        self.state, consequence = step(self.allocation_id, self.state, event)
        return consequence

    def add(self, attempt_id: AttemptId) -> None:
        """Add an attempt. Raises: IllegalTransition: the slot is not active, or the attempt is or was in it."""
        is_known = attempt_id in self.attempts or attempt_id in self.ended
        if self.state is not SlotState.ACTIVE or is_known:
            why = "the attempt is or was in it" if is_known else f"it is {self.state}, not active"
            raise IllegalTransition(f"slot {self.allocation_id} cannot take {attempt_id}: {why}.")
        self.attempts.add(attempt_id)

    def leave(self, attempt_id: AttemptId) -> bool:
        """The attempt has ended. Returns: whether none is left."""
        self.attempts.remove(attempt_id)
        self.ended.add(attempt_id)
        return not self.attempts


class TaskSlots:
    """Slots 0 to n-1, and dynamic ones from n on for requests without an index. An allocation that
    is over never returns.
    """

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

    def requested(self, index: int, job_id: JobId, allocation_id: AllocationId) -> TaskSlot | None:
        """Return the slot of this allocation; a new one is made. `index` -1: any, dynamic.

        None: the place is taken, or the allocation is over; a repeated request does not bring it
        back.
        """
        if allocation_id in self._past:
            return None
        known = self._by_allocation.get(allocation_id)
        if known is not None:
            is_same = known.job_id == job_id and (index < 0 or known.index == index)
            return known if is_same else None
        if index < 0:
            index = next(i for i in count(self._count) if i not in self._by_index)
        elif index >= self._count or index in self._by_index:
            return None
        slot = TaskSlot(index, job_id, allocation_id)
        self._by_allocation[allocation_id] = self._by_index[index] = slot
        return slot

    def slot(self, allocation_id: AllocationId) -> TaskSlot | None:
        """Return the slot; None: the allocation was never here, or is over."""
        return self._by_allocation.get(allocation_id)

    def owner(self, index: int) -> AllocationId | None:
        """Return the allocation that has the place now."""
        slot = self._by_index.get(index)
        return None if slot is None else slot.allocation_id

    def drop(self, slot: TaskSlot) -> None:
        """Forget a slot that was given back."""
        del self._by_allocation[slot.allocation_id]
        del self._by_index[slot.index]
        self._past.add(slot.allocation_id)

    def __iter__(self) -> Iterator[TaskSlot]:
        return iter(list(self._by_allocation.values()))

    def __len__(self) -> int:
        return len(self._by_allocation)

    def check(self) -> None:
        """Raises BrokenInvariant with the name of the law."""
        places = [slot.index for slot in self._by_allocation.values()]
        _expect("a place has one allocation", places, len(places) == len(set(places)))
        is_mutual = {s.allocation_id for s in self._by_index.values()} == set(self._by_allocation)
        _expect("every allocation has its place", self._by_index, is_mutual)
        for slot in self._by_allocation.values():
            _expect("what is counted as taken is not free", slot, slot.state is not SlotState.FREE)
            is_new = slot.allocation_id not in self._past
            _expect("an allocation that is over stays over", slot, is_new)
            may_run = slot.state in {SlotState.ACTIVE, SlotState.RELEASING} or not slot.attempts
            _expect("tasks sit in slots that a job has taken", slot, may_run)
            is_busy = slot.state is not SlotState.RELEASING or bool(slot.attempts)
            _expect("a slot that is being released has tasks", slot, is_busy)
            _expect("no task runs after its end", slot, not slot.attempts & slot.ended)


def _expect(name: str, what: object, holds: bool) -> None:
    if not holds:
        raise BrokenInvariant(f"'{name}' does not hold for {what}.")
