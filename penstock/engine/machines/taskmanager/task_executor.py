"""The control plane of one TaskManager: events in, effects out.

It decides which job has which slot, which attempt runs in it, and whose messages count: those of
the one JobManager that it is registered with, known by its fencing token. Knows no clock, thread or
wire, and tasks only by their ids.

Source: Flink TaskExecutor, JobTable (docs/spec/tasks.md#submission, #slot-table;
docs/spec/slots.md#taskmanager-and-its-jobs). Differs: one JobManager is master and resource manager
of all its jobs. Messages of another JobManager are dropped without an answer, because there is no
connection back to it. When a new leader registers, all slots are given back, because it begins with
none. The loss of the JobManager ends the TaskManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Final, TypeAlias

from penstock.engine.machines.story import Story
from penstock.engine.model import ids, messages
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import ConfigurationError, IllegalTransition
from penstock.engine.model.slot_size import UNSIZED, SlotSize
from penstock.engine.model.states import ExecutionState, SlotState

_REFUSED = "TaskSubmissionError"
_RELEASED = "its slot was released: "


class TaskExecutor:
    """`leader`: the fencing token of the JobManager whose messages count; NO_TOKEN before the first.

    `is_ending`: no message counts any more.
    """

    def __init__(self, resource_id: ids.ResourceId, slots: int, size: SlotSize = UNSIZED) -> None:
        """Raises ConfigurationError: less than one slot."""
        self.leader = ids.NO_TOKEN
        self.is_ending = False
        self.slots = TaskSlots(slots)
        self.story = Story(f"TaskManager {resource_id}")
        self._resource_id = resource_id
        self._size = size
        self._jobs: set[ids.JobId] = set()
        self._slot_of: dict[ids.AttemptId, TaskSlot] = {}
        self._effects: list[messages.TaskManagerEffect] = []
        self._event = ""

    def step(self, event: messages.TaskManagerEvent) -> list[messages.TaskManagerEffect]:
        """Take one event; returns the effects to carry out, in order."""
        self._event = type(event).__name__
        with self.story:
            self._take(event)
        effects, self._effects = self._effects, []
        return effects

    def _take(self, event: messages.TaskManagerEvent) -> None:
        if self.is_ending:
            if isinstance(event, messages.TaskEnded):
                self._on_task_ended(event.attempt_id)
            return
        match event:
            case messages.RegistrationAccepted():
                self._on_leader(event.fencing_token)
            case messages.SlotTimedOut():
                self._move(self.slots.slot(event.allocation_id), SlotEvent.TIME_OUT, "timed out")
            case messages.TaskEnded():
                self._on_task_ended(event.attempt_id)
            case messages.JobManagerLost():
                self._end(event.cause)
            case _ if self._counts(event):
                self._take_from_leader(event)

    def _counts(self, message: messages.Fenced) -> bool:
        """Whether the message comes from the JobManager that we are registered with."""
        token = message.fencing_token
        if token == ids.NO_TOKEN or token != self.leader:
            self.story.add(self._event, f"dropped: fencing token '{token}' is not '{self.leader}'")
            return False
        return True

    def _take_from_leader(self, message: messages.Fenced) -> None:
        match message:
            case messages.RequestSlot():
                self._on_request_slot(message)
            case messages.AnswerOffers():
                for allocation_id in message.accepted:
                    self._move(self.slots.slot(allocation_id), SlotEvent.ACCEPT)
                for allocation_id in message.rejected:
                    self._free(allocation_id, "the JobMaster did not need it")
            case messages.FreeSlot():
                self._free(message.allocation_id, message.cause)
            case messages.DeployTask():
                self._on_deploy(message.deployment)
            case messages.CancelTask():
                self._on_cancel(message.attempt_id)
            case (
                messages.ReleasePartitions()
                | messages.PartitionStateAnswer()
                | messages.AskTaskManager()
            ):
                self._effects.append(message)
            case messages.Shutdown():
                self._end(message.reason)
            case (
                messages.TriggerCheckpoint()
                | messages.NotifyCheckpointComplete()
                | messages.NotifyCheckpointAborted()
            ):
                self._pass_on_to_many(message)
            case _ if message.attempt_id in self._slot_of:
                self._effects.append(message)

    # ------------------------------------------------------------------ the JobManager

    def _on_leader(self, token: ids.FencingToken) -> None:
        if token == self.leader:
            return  # A repeated message.
        former, self.leader = self.leader, token
        self.story.add(self._event, f"leader '{former}'->'{token}'")
        self._jobs.clear()
        for slot in self.slots:
            self._move(slot, SlotEvent.FREE, "another JobManager leads")

    def _end(self, cause: str) -> None:
        self.is_ending = True
        self.story.add(self._event, "ends:", cause)
        self._effects.append(messages.EndTaskManager(cause))

    # ------------------------------------------------------------------ slots

    def _on_request_slot(self, message: messages.RequestSlot) -> None:
        self._jobs.add(message.job_id)
        allocation_id, index = message.allocation_id, message.slot_index
        slot = self.slots.requested(index, message.job_id, allocation_id)
        if slot is None:
            owner = self.slots.owner(index)
            self.story.add(self._event, f"{allocation_id} refused: slot {index} belongs to {owner}")
            return
        is_new = slot.state is SlotState.FREE
        self._move(slot, SlotEvent.REQUEST)
        if is_new:
            self._effects.append(messages.StartSlotTimer(allocation_id))

    def _free(self, allocation_id: ids.AllocationId, cause: str) -> None:
        self._move(self.slots.slot(allocation_id), SlotEvent.FREE, cause)

    def _move(
        self, slot: TaskSlot | None, event: SlotEvent, cause: str = ""
    ) -> SlotConsequence | None:
        """Move a slot by its table, and do what follows. None: there is no such slot."""
        if slot is None:
            return None
        old = slot.state
        consequence = slot.move(event)
        if slot.state is not old:
            moved = f"{slot.allocation_id} {old}->{slot.state}"
            self.story.add(self._event, moved, f"cause={cause or event.lower()}")
        if consequence is SlotConsequence.OFFER:
            offer = messages.SlotOffer(slot.allocation_id, slot.index, self._size)
            self._effects.append(messages.OfferSlots(self._resource_id, (offer,)))
        elif consequence is SlotConsequence.STOP_TASKS:
            self._effects += [
                messages.StopTask(a, _RELEASED + cause) for a in sorted(slot.attempts)
            ]
            if not slot.attempts:
                self._move(slot, SlotEvent.EMPTY)
        elif consequence is SlotConsequence.GIVE_BACK:
            self._give_back(slot)
        return consequence

    def _give_back(self, slot: TaskSlot) -> None:
        self.slots.drop(slot)
        self._effects.append(messages.ReleaseLocalState(slot.allocation_id))
        self._effects.append(messages.SlotFreed(self._resource_id, slot.index, slot.allocation_id))

    # ------------------------------------------------------------------ tasks

    def _on_deploy(self, deployment: TaskDeployment) -> None:
        """Check in Flink's order. A refused deployment changes nothing."""
        attempt_id, allocation_id = deployment.attempt_id, deployment.allocation_id
        if attempt_id in self._slot_of:
            return  # A repeated message; the task that is here stays.
        slot = self.slots.slot(allocation_id)
        if slot is not None and attempt_id in slot.ended:
            return  # A repeated message; the end of this attempt was reported.
        if deployment.job_id not in self._jobs:
            known = ", ".join(sorted(self._jobs)) or "none"
            self._refuse(
                deployment,
                f"job {deployment.job_id} has asked for no slot here; jobs that have: {known}",
            )
        elif slot is None:
            self._refuse(deployment, f"slot {allocation_id} not found here")
        elif slot.job_id != deployment.job_id:
            self._refuse(deployment, f"slot {allocation_id} belongs to job {slot.job_id}")
        elif self._move(slot, SlotEvent.SUBMIT) is SlotConsequence.REFUSE:
            self._refuse(deployment, f"slot {allocation_id} is {slot.state}, but must be ACTIVE")
        else:
            slot.add(attempt_id)
            self._slot_of[attempt_id] = slot
            self.story.add(self._event, f"{attempt_id} starts in {allocation_id}")
            self._effects.append(messages.StartTask(deployment))

    def _refuse(self, deployment: TaskDeployment, why: str) -> None:
        """Report the refusal; the JobMaster places the task again."""
        attempt_id = deployment.attempt_id
        self.story.add(self._event, f"{attempt_id} refused: {why}")
        where = f"  while deploying {deployment.vertex_name} on {self._resource_id}"
        text = f"{_REFUSED}: {attempt_id}: {why}. The JobMaster will place the task again.\n{where}"
        failure = messages.FailureInfo(_REFUSED, text)
        self._effects.append(messages.TaskStateChanged(attempt_id, ExecutionState.FAILED, failure))

    def _on_cancel(self, attempt_id: ids.AttemptId) -> None:
        if attempt_id in self._slot_of:  # Otherwise it has ended in the meantime.
            self.story.add(self._event, f"{attempt_id} is to stop")
            self._effects.append(messages.StopTask(attempt_id, "its JobMaster cancels it"))

    def _on_task_ended(self, attempt_id: ids.AttemptId) -> None:
        slot = self._slot_of.pop(attempt_id, None)
        if slot is None:
            return
        self.story.add(self._event, f"{attempt_id} has left {slot.allocation_id}")
        if slot.leave(attempt_id):
            self._move(slot, SlotEvent.EMPTY)

    def _pass_on_to_many(self, message: messages.ToTasks) -> None:
        """Pass a message on to its tasks. For those that have ended, only a checkpoint's trigger is
        answered, by declining.
        """
        here = tuple(one for one in message.attempt_ids if one in self._slot_of)
        if here:
            self._effects.append(replace(message, attempt_ids=here))
        if isinstance(message, messages.TriggerCheckpoint):
            reason = messages.CheckpointFailureReason.TASK_CLOSING
            for one in message.attempt_ids:
                if one not in self._slot_of:
                    declined = messages.DeclineCheckpoint(one, message.checkpoint_id, reason)
                    self._effects.append(declined)


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
    job_id: ids.JobId
    allocation_id: ids.AllocationId
    state: SlotState = SlotState.FREE
    attempts: set[ids.AttemptId] = field(default_factory=set)
    ended: set[ids.AttemptId] = field(default_factory=set)

    def move(self, event: SlotEvent) -> SlotConsequence:
        """Raises: IllegalTransition."""
        self.state, consequence = step(self.allocation_id, self.state, event)
        return consequence

    def add(self, attempt_id: ids.AttemptId) -> None:
        """Add an attempt. Raises: IllegalTransition: the slot is not active, or the attempt is or was in it."""
        is_known = attempt_id in self.attempts or attempt_id in self.ended
        if self.state is not SlotState.ACTIVE or is_known:
            why = "the attempt is or was in it" if is_known else f"it is {self.state}, not active"
            raise IllegalTransition(f"slot {self.allocation_id} cannot take {attempt_id}: {why}.")
        self.attempts.add(attempt_id)

    def leave(self, attempt_id: ids.AttemptId) -> bool:
        """The attempt has ended. Returns: whether none is left."""
        self.attempts.remove(attempt_id)
        self.ended.add(attempt_id)
        return not self.attempts


class TaskSlots:
    """The slots of a TaskManager: the states of an allocation as a table, and which attempts are in
    each slot.

    Knows no thread, clock and message. Source: Flink TaskSlotTableImpl (docs/spec/tasks.md#slot-table).
    Differs: slots have no resource budget of their own. An allocation never becomes inactive again,
    because a TaskManager ends with its JobManager. So its timeout needs no ticket: one that fires late
    finds the allocation taken or over.

    Slots 0 to n-1, and dynamic ones from n on for requests without an index. An allocation that
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
        self._by_allocation: dict[ids.AllocationId, TaskSlot] = {}
        self._by_index: dict[int, TaskSlot] = {}
        self._past: set[ids.AllocationId] = set()

    def requested(
        self, index: int, job_id: ids.JobId, allocation_id: ids.AllocationId
    ) -> TaskSlot | None:
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

    def slot(self, allocation_id: ids.AllocationId) -> TaskSlot | None:
        """Return the slot; None: the allocation was never here, or is over."""
        return self._by_allocation.get(allocation_id)

    def owner(self, index: int) -> ids.AllocationId | None:
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
