"""One simulated TaskManager: a shell around the real machine `TaskExecutor`, like
`engine/hosting/taskmanager/taskmanager.py`.

Both sides watch each other by `engine/machines/leases.py`: a TaskManager that has not heard its
driver for the heartbeat timeout ends. All of its actions pass through `after`, so that a paused one
does nothing until it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from penstock.engine.machines.leases import Liveness
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
)
from penstock.engine.model.messages import (
    FENCED,
    AcknowledgeCheckpoint,
    AskTaskManager,
    CheckpointFailureReason,
    Committable,
    DeclineCheckpoint,
    EndTaskManager,
    FailureInfo,
    Heartbeat,
    JobManagerLost,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OfferSlots,
    RegisterTaskManager,
    RegistrationAccepted,
    ReleaseLocalState,
    ReleasePartitions,
    SlotFreed,
    SlotTimedOut,
    StartSlotTimer,
    StartTask,
    StopTask,
    TaskEnded,
    TaskManagerEffect,
    TaskManagerEvent,
    TaskStateChanged,
    TriggerCheckpoint,
    UpdatePartitions,
    WaitsForFinalCheckpoint,
)
from penstock.engine.model.slot_size import SlotSize
from penstock.engine.model.states import ExecutionState
from simulation.clock import SimClock
from simulation.network import Closed, Connection
from simulation.scenario import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS, Moment
from simulation.task import SimTask
from simulation.tasks import DataPlane

SLOT_TIMEOUT_MS: Final = 10_000
_INIT_MS: Final = (1, 5, 50, 400)
_CANCEL_MS: Final = (0, 1, 20, 300)
_DRIVER: Final = "driver"


class Surroundings:
    """What surrounds a TaskManager; the world provides it. `on_step`: called before a step; returns
    a function for its effects.
    """

    clock: SimClock
    data: DataPlane
    on_moment: Callable[[Moment, ResourceId | None], None]
    on_ended: Callable[[SimTaskManager, str, bool], None]
    on_task: Callable[[SimTaskManager, SimTask], None]
    on_step: Callable[[SimTaskManager, TaskManagerEvent], OnEffects]
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
        self.executor = TaskExecutor(resource_id, slots, size)
        self.freed: set[AllocationId] = set()
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
        """Run a call in this process after a delay, unless the process is over or paused then."""
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
        """The process is over. `is_told` False: its whole host is gone, so that no end is sent."""
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
            self._feed(JobManagerLost("the driver has been silent for too long"))
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
        """End a task as its own thread would: it leaves its slot, then reports."""
        if task.state.is_terminal or not self.is_alive:
            return
        task.state = state
        del self.tasks[task.attempt_id]
        if state is not ExecutionState.FINISHED:
            self._around.data.drop(task, has_failed=state is ExecutionState.FAILED)
        self._feed(TaskEnded(task.attempt_id))
        done = (Committable(1, str(task.attempt_id).encode()),) if _is_finished(state) else ()
        self.send(TaskStateChanged(task.attempt_id, state, failure, done))
        self._around.on_task(self, task)

    # ------------------------------------------------------------------ what the driver says

    def _handle(self, message: Any) -> None:
        self._driver.heard(_DRIVER, self._around.clock.now_ms)
        if isinstance(message, Closed):
            self._feed(JobManagerLost(message.cause))
        elif type(message) in FENCED or isinstance(message, RegistrationAccepted):
            self._feed(message)

    def _feed(self, event: TaskManagerEvent) -> None:
        on_effects = self._around.on_step(self, event)
        effects = self.executor.step(event)
        for effect in effects:
            _EFFECTS[type(effect)](self, effect)
        on_effects(effects)

    def _do_offer(self, effect: OfferSlots) -> None:
        self.send(effect)
        self._around.on_moment(Moment.OFFER_TO_ACCEPT, self.resource_id)

    def _do_start_timer(self, effect: StartSlotTimer) -> None:
        timed_out = partial(self._on_slot_timeout, effect.allocation_id)
        self.after(SLOT_TIMEOUT_MS, "SlotTimeout", timed_out)

    def _on_slot_timeout(self, allocation_id: AllocationId) -> None:
        self._feed(SlotTimedOut(allocation_id))

    def _do_start(self, effect: StartTask) -> None:
        task = SimTask(effect.deployment, self, ExecutionState.INITIALIZING)
        self.tasks[task.attempt_id] = task
        self._around.on_task(self, task)
        self.send(TaskStateChanged(task.attempt_id, ExecutionState.INITIALIZING))
        delay_ms = self._around.clock.random.choice(_INIT_MS)
        self.after(delay_ms, "Init", lambda: self._start(task))

    def _start(self, task: SimTask) -> None:
        if not task.state.is_terminal:
            self._around.data.start(task)

    def _do_stop(self, effect: StopTask) -> None:
        task = self.tasks.get(effect.attempt_id)
        if task is None or task.is_cancelled:
            return
        task.is_cancelled = True
        if self._around.is_deaf_to_cancel():
            return
        delay_ms = self._around.clock.random.choice(_CANCEL_MS)
        ended = partial(self.end_task, task, ExecutionState.CANCELED)
        self.after(delay_ms, "Cancelled", ended)

    def _do_release_partitions(self, effect: ReleasePartitions) -> None:
        for partition_id, producer in effect.partitions:
            self._around.data.release(ResultPartitionId(partition_id, producer))

    def _do_end(self, effect: EndTaskManager) -> None:
        self.end(effect.cause)

    def _ignore(self, effect: TaskManagerEffect) -> None:
        """Ignore a message that has no counterpart here."""

    # ------------------------------------------------------------------ checkpoints

    def _do_trigger(self, effect: TriggerCheckpoint) -> None:
        for attempt_id in effect.attempt_ids:
            task = self.tasks[attempt_id]
            if task.state is not ExecutionState.RUNNING:
                reason = CheckpointFailureReason.TASK_NOT_READY
                self.send(DeclineCheckpoint(attempt_id, effect.checkpoint_id, reason))
            else:
                if effect.options.is_held:
                    task.holds.add(effect.checkpoint_id)
                self._around.data.barriers.snapshot(task, effect.checkpoint_id)

    def snapshot_taken(self, task: SimTask, message: AcknowledgeCheckpoint) -> None:
        """The snapshot was written, or writing failed."""
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

    def _do_complete(self, effect: NotifyCheckpointComplete) -> None:
        for attempt_id in effect.attempt_ids:
            self._around.data.checkpoint_completed(self.tasks[attempt_id], effect.checkpoint_id)

    def _do_aborted(self, effect: NotifyCheckpointAborted) -> None:
        for attempt_id in effect.attempt_ids:
            self._around.data.checkpoint_aborted(self.tasks[attempt_id], effect.checkpoint_id)


def _is_finished(state: ExecutionState) -> bool:
    return state is ExecutionState.FINISHED


OnEffects: TypeAlias = Callable[[list[TaskManagerEffect]], None]
_EFFECTS: Final[dict[type, Callable[[SimTaskManager, Any], None]]] = {
    OfferSlots: SimTaskManager._do_offer,
    SlotFreed: SimTaskManager.send,
    TaskStateChanged: SimTaskManager.send,
    DeclineCheckpoint: SimTaskManager.send,
    StartSlotTimer: SimTaskManager._do_start_timer,
    StartTask: SimTaskManager._do_start,
    StopTask: SimTaskManager._do_stop,
    ReleasePartitions: SimTaskManager._do_release_partitions,
    ReleaseLocalState: SimTaskManager._ignore,
    UpdatePartitions: SimTaskManager._ignore,
    AskTaskManager: SimTaskManager._ignore,
    TriggerCheckpoint: SimTaskManager._do_trigger,
    NotifyCheckpointComplete: SimTaskManager._do_complete,
    NotifyCheckpointAborted: SimTaskManager._do_aborted,
    EndTaskManager: SimTaskManager._do_end,
}
