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

from penstock.engine.machines.story import Story
from penstock.engine.machines.taskmanager.task_slots import (
    SlotConsequence,
    SlotEvent,
    TaskSlot,
    TaskSlots,
)
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import (
    NO_TOKEN,
    AllocationId,
    AttemptId,
    FencingToken,
    JobId,
    ResourceId,
)
from penstock.engine.model.messages import (
    AnswerOffers,
    AskTaskManager,
    CancelTask,
    CheckpointFailureReason,
    DeclineCheckpoint,
    DeployTask,
    EndTaskManager,
    FailureInfo,
    Fenced,
    FreeSlot,
    JobManagerLost,
    OfferSlots,
    PartitionStateAnswer,
    RegistrationAccepted,
    ReleaseLocalState,
    ReleasePartitions,
    RequestSlot,
    Shutdown,
    SlotFreed,
    SlotOffer,
    SlotTimedOut,
    StartSlotTimer,
    StartTask,
    StopTask,
    TaskEnded,
    TaskManagerEffect,
    TaskManagerEvent,
    TaskStateChanged,
    ToTask,
    TriggerCheckpoint,
)
from penstock.engine.model.slot_size import UNSIZED, SlotSize
from penstock.engine.model.states import ExecutionState, SlotState

_REFUSED = "TaskSubmissionError"
_RELEASED = "its slot was released: "


class TaskExecutor:
    """`leader`: the fencing token of the JobManager whose messages count; NO_TOKEN before the
    first.

    `is_ending`: no message counts any more.
    """

    def __init__(self, resource_id: ResourceId, slots: int, size: SlotSize = UNSIZED) -> None:
        """Raises ConfigurationError: less than one slot."""
        self.leader = NO_TOKEN
        self.is_ending = False
        self.slots = TaskSlots(slots)
        self.story = Story(f"TaskManager {resource_id}")
        self._resource_id = resource_id
        self._size = size
        self._jobs: set[JobId] = set()
        self._slot_of: dict[AttemptId, TaskSlot] = {}
        self._effects: list[TaskManagerEffect] = []
        self._event = ""

    def step(self, event: TaskManagerEvent) -> list[TaskManagerEffect]:
        """Take one event; returns the effects to carry out, in order."""
        self._event = type(event).__name__
        with self.story:
            self._take(event)
        effects, self._effects = self._effects, []
        return effects

    def _take(self, event: TaskManagerEvent) -> None:
        if self.is_ending:
            if isinstance(event, TaskEnded):
                self._on_task_ended(event.attempt_id)
            return
        match event:
            case RegistrationAccepted():
                self._on_leader(event.fencing_token)
            case SlotTimedOut():
                self._move(self.slots.slot(event.allocation_id), SlotEvent.TIME_OUT, "timed out")
            case TaskEnded():
                self._on_task_ended(event.attempt_id)
            case JobManagerLost():
                self._end(event.cause)
            case _ if self._counts(event):
                self._take_from_leader(event)

    def _counts(self, message: Fenced) -> bool:
        """Whether the message comes from the JobManager that we are registered with."""
        token = message.fencing_token
        if token == NO_TOKEN or token != self.leader:
            self.story.add(self._event, f"dropped: fencing token '{token}' is not '{self.leader}'")
            return False
        return True

    def _take_from_leader(self, message: Fenced) -> None:
        match message:
            case RequestSlot():
                self._on_request_slot(message)
            case AnswerOffers():
                for allocation_id in message.accepted:
                    self._move(self.slots.slot(allocation_id), SlotEvent.ACCEPT)
                for allocation_id in message.rejected:
                    self._free(allocation_id, "the JobMaster did not need it")
            case FreeSlot():
                self._free(message.allocation_id, message.cause)
            case DeployTask():
                self._on_deploy(message.deployment)
            case CancelTask():
                self._on_cancel(message.attempt_id)
            case ReleasePartitions() | PartitionStateAnswer() | AskTaskManager():
                self._effects.append(message)
            case Shutdown():
                self._end(message.reason)
            case _:
                self._pass_on(message)

    def check(self) -> None:
        """Raises BrokenInvariant. For tests, after each step."""
        with self.story:
            self.slots.check()
            seats = {attempt: slot for slot in self.slots for attempt in slot.attempts}
            if seats != self._slot_of:
                raise BrokenInvariant(
                    f"'every task sits in one slot' does not hold: {seats} and {self._slot_of}."
                )

    # ------------------------------------------------------------------ the JobManager

    def _on_leader(self, token: FencingToken) -> None:
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
        self._effects.append(EndTaskManager(cause))

    # ------------------------------------------------------------------ slots

    def _on_request_slot(self, message: RequestSlot) -> None:
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
            self._effects.append(StartSlotTimer(allocation_id))

    def _free(self, allocation_id: AllocationId, cause: str) -> None:
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
            offer = SlotOffer(slot.allocation_id, slot.index, self._size)
            self._effects.append(OfferSlots(self._resource_id, (offer,)))
        elif consequence is SlotConsequence.STOP_TASKS:
            self._effects += [StopTask(a, _RELEASED + cause) for a in sorted(slot.attempts)]
            if not slot.attempts:
                self._move(slot, SlotEvent.EMPTY)
        elif consequence is SlotConsequence.GIVE_BACK:
            self._give_back(slot)
        return consequence

    def _give_back(self, slot: TaskSlot) -> None:
        self.slots.drop(slot)
        self._effects.append(ReleaseLocalState(slot.allocation_id))
        self._effects.append(SlotFreed(self._resource_id, slot.index, slot.allocation_id))

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
            self._effects.append(StartTask(deployment))

    def _refuse(self, deployment: TaskDeployment, why: str) -> None:
        """Report the refusal; the JobMaster places the task again."""
        attempt_id = deployment.attempt_id
        self.story.add(self._event, f"{attempt_id} refused: {why}")
        where = f"  while deploying {deployment.vertex_name} on {self._resource_id}"
        text = f"{_REFUSED}: {attempt_id}: {why}. The JobMaster will place the task again.\n{where}"
        failure = FailureInfo(_REFUSED, text)
        self._effects.append(TaskStateChanged(attempt_id, ExecutionState.FAILED, failure))

    def _on_cancel(self, attempt_id: AttemptId) -> None:
        if attempt_id in self._slot_of:  # Otherwise it has ended in the meantime.
            self.story.add(self._event, f"{attempt_id} is to stop")
            self._effects.append(StopTask(attempt_id, "its JobMaster cancels it"))

    def _on_task_ended(self, attempt_id: AttemptId) -> None:
        slot = self._slot_of.pop(attempt_id, None)
        if slot is None:
            return
        self.story.add(self._event, f"{attempt_id} has left {slot.allocation_id}")
        if slot.leave(attempt_id):
            self._move(slot, SlotEvent.EMPTY)

    def _pass_on(self, message: ToTask) -> None:
        """Pass a message on to its task. If the task has ended, only a checkpoint's trigger is
        answered, by declining.
        """
        if message.attempt_id in self._slot_of:
            self._effects.append(message)
        elif isinstance(message, TriggerCheckpoint):
            reason = CheckpointFailureReason.TASK_CLOSING
            declined = DeclineCheckpoint(message.attempt_id, message.checkpoint_id, reason)
            self._effects.append(declined)
