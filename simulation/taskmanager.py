"""One simulated TaskManager: the slots are `machines/taskmanager/task_slots.py`, the rest does what `hosting/taskmanager/taskmanager.py` does.

Both sides watch each other by `machines/leases/liveness.py`: a TaskManager that has not heard its driver for the heartbeat
timeout ends. Everything it does passes through `after`, so that a paused one does nothing until it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.machines.leases.liveness import Liveness
from penstock.machines.taskmanager.task_slots import TaskSlots
from penstock.model.deployment import TaskManagerLocation
from penstock.model.errors import ExternalError
from penstock.model.ids import AllocationId, AttemptId, ResourceId, ResultPartitionId
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    AnswerOffers,
    CancelTask,
    CheckpointFailureReason,
    Committable,
    DeclineCheckpoint,
    DeployTask,
    FailureInfo,
    FreeSlot,
    Heartbeat,
    MasterHeartbeat,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OfferSlots,
    PutBlob,
    RegisterTaskManager,
    RegistrationAccepted,
    ReleasePartitions,
    RequestSlot,
    Shutdown,
    SlotFreed,
    SlotOffer,
    TaskStateChanged,
    TriggerCheckpoint,
    UpdatePartitions,
    WaitsForFinalCheckpoint,
)
from penstock.model.slot_size import SlotSize
from penstock.model.states import ExecutionState
from simulation.clock import SimClock
from simulation.network import Closed, Connection
from simulation.scenario import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS, Moment
from simulation.tasks import DataPlane, SimTask

SLOT_TIMEOUT_MS: Final = 10_000
_INIT_MS: Final = (1, 5, 50, 400)
_CANCEL_MS: Final = (0, 1, 20, 300)
_DRIVER: Final = "driver"


class Surroundings:
    """What a TaskManager finds around it; the world fills it."""

    clock: SimClock
    data: DataPlane
    on_moment: Callable[[Moment, ResourceId | None], None]
    on_ended: Callable[[SimTaskManager, str, bool], None]
    on_task: Callable[[SimTaskManager, SimTask], None]
    is_deaf_to_cancel: Callable[[], bool]
    can_reach: Callable[[ResourceId], bool]
    on_snapshot: Callable[[AcknowledgeCheckpoint], None]
    is_declining: Callable[[], bool]


class SimTaskManager:
    """`paused_until_ms`: it does nothing before. `are_timers_first`: on its return, timers run before messages."""

    def __init__(
        self, resource_id: ResourceId, slots: int, size: SlotSize, around: Surroundings
    ) -> None:
        self.resource_id = resource_id
        self.size = size
        self.slots_count = slots
        self.location = TaskManagerLocation(resource_id, f"host-{resource_id}", 7000)
        self.slots = TaskSlots(slots)
        self.tasks: dict[AttemptId, SimTask] = {}
        self.is_alive = True
        self.paused_until_ms = 0
        self.are_timers_first = False
        self.connection: Connection | None = None
        self._around = around
        self._driver = Liveness[str](HEARTBEAT_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)
        self._progress = 0

    # ------------------------------------------------------------------ life

    def connect(self, connection: Connection) -> None:
        self.connection = connection
        self._driver.watch(_DRIVER, self._around.clock.now_ms)
        self.send(
            RegisterTaskManager(
                self.resource_id,
                self.location.host,
                data_port=7000,
                slots=self.slots_count,
                pid=1,
                supervisor_pid=0,
                python_version="3",
                size=self.size,
            )
        )
        self._beat()

    def after(self, delay_ms: int, kind: str, call: Callable[[], None]) -> None:
        """Run it in this process, if that is there and not paused by then."""
        self._around.clock.later(delay_ms, kind, lambda: self._run(kind, call, rank=0))

    def receive(self, message: object) -> None:
        kind = type(message).__name__
        self._run(kind, lambda: self._handle(message), rank=1)

    def _run(self, kind: str, call: Callable[[], None], rank: int) -> None:
        if not self.is_alive:
            return
        if self._around.clock.now_ms < self.paused_until_ms:
            rank = rank if self.are_timers_first else 1
            again = partial(self._run, kind, call, rank)
            self._around.clock.at(self.paused_until_ms, kind, again, rank)
            return
        call()

    def end(self, cause: str, *, is_told: bool = True) -> None:
        """Its process is over. `is_told` False: with its whole host, so that nobody sends an end."""
        if not self.is_alive:
            return
        self.is_alive = False
        for task in self.tasks.values():
            task.state = ExecutionState.CANCELED
        self.tasks.clear()
        if self.connection is not None:
            self.connection.close_taskmanager(cause, is_told=is_told)
        self._around.on_ended(self, cause, is_told)

    def send(self, message: object) -> None:
        if self.connection is not None:
            self.connection.up.send(message)

    def can_reach(self, resource_id: ResourceId) -> bool:
        return self._around.can_reach(resource_id)

    def _beat(self) -> None:
        if self._driver.tick(self._around.clock.now_ms):
            self.end("the driver has been silent for too long")
            return
        self._progress += 1
        self.send(Heartbeat(self.resource_id, self._progress))
        self.after(HEARTBEAT_INTERVAL_MS, "Beat", self._beat)

    # ------------------------------------------------------------------ tasks

    def task_runs(self, task: SimTask) -> None:
        task.state = ExecutionState.RUNNING
        self.send(TaskStateChanged(task.attempt_id, ExecutionState.RUNNING))

    def end_task(
        self, task: SimTask, state: ExecutionState, failure: FailureInfo | None = None
    ) -> None:
        """Like a task's own thread: it leaves its slot, then reports."""
        if task.state.is_terminal or not self.is_alive:
            return
        task.state = state
        del self.tasks[task.attempt_id]
        if state is not ExecutionState.FINISHED:
            self._around.data.drop(task)
        self._tell_freed(self.slots.task_ended(task.deployment.allocation_id, task.attempt_id))
        done = (Committable(1, str(task.attempt_id).encode()),) if _is_finished(state) else ()
        self.send(TaskStateChanged(task.attempt_id, state, failure, done))
        self._around.on_task(self, task)

    def _tell_freed(self, freed: list[SlotFreed]) -> None:
        for message in freed:
            self.send(message)

    # ------------------------------------------------------------------ what the driver says

    def _handle(self, message: Any) -> None:
        self._driver.heard(_DRIVER, self._around.clock.now_ms)
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)

    def _on_request_slot(self, message: RequestSlot) -> None:
        allocation_id = message.allocation_id
        if not self.slots.allocate(message.slot_index, message.job_id, allocation_id):
            return
        ticket = self.slots.ticket_of(allocation_id)
        if ticket is not None:
            timed_out = partial(self._on_slot_timeout, allocation_id, ticket)
            self.after(SLOT_TIMEOUT_MS, "SlotTimeout", timed_out)
        offer = SlotOffer(allocation_id, message.slot_index, self.size)
        self.send(OfferSlots(self.resource_id, (offer,)))
        self._around.on_moment(Moment.OFFER_TO_ACCEPT, self.resource_id)

    def _on_slot_timeout(self, allocation_id: AllocationId, ticket: int) -> None:
        if self.slots.is_timed_out(allocation_id, ticket):
            self._free(allocation_id)

    def _on_answer_offers(self, message: AnswerOffers) -> None:
        for allocation_id in message.accepted:
            self.slots.mark_active(allocation_id)
        for allocation_id in message.rejected:
            self._free(allocation_id)

    def _on_free_slot(self, message: FreeSlot) -> None:
        self._free(message.allocation_id)

    def _free(self, allocation_id: AllocationId) -> None:
        self._tell_freed(self.slots.free(self.resource_id, allocation_id))
        for task in list(self.tasks.values()):
            if task.deployment.allocation_id == allocation_id:
                self._cancel(task)

    def _on_deploy(self, message: DeployTask) -> None:
        deployment = message.deployment
        attempt_id = deployment.attempt_id
        if attempt_id in self.tasks:
            return  # repeated message: the task that is there stays
        try:
            self.slots.mark_active(deployment.allocation_id)  # it may overtake the answer
            self.slots.add_task(deployment.allocation_id, attempt_id)
        except ExternalError as error:
            failure = FailureInfo(type(error).__name__, str(error))
            self.send(TaskStateChanged(attempt_id, ExecutionState.FAILED, failure))
            return
        task = SimTask(deployment, self, ExecutionState.INITIALIZING)
        self.tasks[attempt_id] = task
        self._around.on_task(self, task)
        self.send(TaskStateChanged(attempt_id, ExecutionState.INITIALIZING))
        delay_ms = self._around.clock.random.choice(_INIT_MS)
        self.after(delay_ms, "Init", lambda: self._start(task))

    def _start(self, task: SimTask) -> None:
        if not task.state.is_terminal:
            self._around.data.start(task)

    def _on_cancel(self, message: CancelTask) -> None:
        task = self.tasks.get(message.attempt_id)
        if task is not None:
            self._cancel(task)

    def _cancel(self, task: SimTask) -> None:
        if task.is_cancelled:
            return
        task.is_cancelled = True
        if self._around.is_deaf_to_cancel():
            return
        delay_ms = self._around.clock.random.choice(_CANCEL_MS)
        ended = partial(self.end_task, task, ExecutionState.CANCELED)
        self.after(delay_ms, "Cancelled", ended)

    def _on_release_partitions(self, message: ReleasePartitions) -> None:
        for partition_id, producer in message.partitions:
            self._around.data.release(ResultPartitionId(partition_id, producer))

    # ------------------------------------------------------------------ checkpoints

    def _on_trigger_checkpoint(self, message: TriggerCheckpoint) -> None:
        task = self.tasks.get(message.attempt_id)
        if task is None or task.state is not ExecutionState.RUNNING:
            reason = CheckpointFailureReason.TASK_NOT_READY
            self.send(DeclineCheckpoint(message.attempt_id, message.checkpoint_id, reason))
        else:
            self._around.data.barriers.snapshot(task, message.checkpoint_id)

    def snapshot_taken(self, task: SimTask, message: AcknowledgeCheckpoint) -> None:
        """Written, or not."""
        if task.state is not ExecutionState.RUNNING or not self.is_alive:
            return
        if self._around.is_declining():
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED
            self.send(DeclineCheckpoint(message.attempt_id, message.checkpoint_id, reason))
            return
        self._around.on_snapshot(message)
        self.send(message)

    def wait_for_final_checkpoint(self, task: SimTask) -> None:
        self.send(WaitsForFinalCheckpoint(task.attempt_id))
        self._around.on_moment(Moment.END_TO_FINAL, self.resource_id)

    def _on_checkpoint_complete(self, message: NotifyCheckpointComplete) -> None:
        task = self.tasks.get(message.attempt_id)
        if task is not None:
            self._around.data.checkpoint_completed(task, message.checkpoint_id)

    def _on_shutdown(self, message: Shutdown) -> None:
        self.end(message.reason)

    def _on_closed(self, message: Closed) -> None:
        self.end(message.cause)

    def _ignore(self, message: object) -> None:
        """Nothing to do but to have heard it."""


def _is_finished(state: ExecutionState) -> bool:
    return state is ExecutionState.FINISHED


_HANDLERS: Final[dict[type, Callable[[SimTaskManager, Any], None]]] = {
    RequestSlot: SimTaskManager._on_request_slot,
    AnswerOffers: SimTaskManager._on_answer_offers,
    FreeSlot: SimTaskManager._on_free_slot,
    DeployTask: SimTaskManager._on_deploy,
    CancelTask: SimTaskManager._on_cancel,
    ReleasePartitions: SimTaskManager._on_release_partitions,
    Shutdown: SimTaskManager._on_shutdown,
    Closed: SimTaskManager._on_closed,
    PutBlob: SimTaskManager._ignore,
    RegistrationAccepted: SimTaskManager._ignore,
    UpdatePartitions: SimTaskManager._ignore,
    MasterHeartbeat: SimTaskManager._ignore,
    TriggerCheckpoint: SimTaskManager._on_trigger_checkpoint,
    NotifyCheckpointComplete: SimTaskManager._on_checkpoint_complete,
    NotifyCheckpointAborted: SimTaskManager._ignore,
}
