"""A seeded world for the control plane: JobMaster, ResourceManager, TaskManagers that can be lost.

One clock, one random generator. A TaskManager's messages arrive in order, late, and sometimes
twice; different TaskManagers' messages overtake each other. Invariants are checked after every
event.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.machines.job_master import JobMaster
from penstock.machines.job_settings import JobSettings
from penstock.machines.resource_manager import ResourceManager
from penstock.machines.task_slots import TaskSlots
from penstock.model.deployment import TaskDeployment, TaskManagerLocation
from penstock.model.errors import ExternalError
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AttemptId, ResourceId
from penstock.model.messages import (
    AnswerOffers,
    CancelTask,
    Committable,
    DeclareRequirements,
    DeployTask,
    ExecutionStateChanged,
    FailJob,
    FailureInfo,
    FinalizeJob,
    FreeSlot,
    JobEvent,
    JobFinalized,
    JobStatusChanged,
    NotEnoughResources,
    RequestSlot,
    ResetSubtasks,
    ResourceEvent,
    ResourcesMissing,
    ResourceTick,
    SetTimer,
    SlotFreed,
    SlotOffer,
    SlotsOffered,
    StartScheduling,
    StartTaskManager,
    StopTaskManager,
    TaskManagerGone,
    TaskManagerLostEvent,
    TaskManagerRegistered,
    TaskManagerStartFailed,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.model.states import ExecutionState, JobStatus

S = ExecutionState


@dataclass
class Faults:
    """How bad the world is. `kills`: TaskManagers that die; `user_failures`: attempts that
    raise."""

    kills: int = 0
    user_failures: int = 0
    start_failure_chance: float = 0.0
    repeat_chance: float = 0.0
    finalize_fails: bool = False
    is_connection_noise: bool = True


@dataclass
class SimTaskManager:
    location: TaskManagerLocation
    slots: TaskSlots
    tasks: dict[AttemptId, TaskDeployment] = field(default_factory=dict)
    is_alive: bool = True
    inbox_ms: int = 0
    outbox_ms: int = 0


class Clock:
    """One time and one source of chance for all."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, call))

    def drain(self, until_ms: int) -> None:
        while self._queue and self.now_ms < until_ms:
            at_ms, _, call = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            call()

    def delay(self) -> int:
        return self.random.choice((0, 0, 1, 2, 5, 20, 120))


class World(Clock):
    """Everything in one thread; `run` ends when the job has ended and nothing is left to do."""

    def __init__(
        self,
        seed: int,
        job_graph: JobGraph,
        faults: Faults,
        settings: JobSettings | None = None,
        slots_each: int = 2,
    ) -> None:
        super().__init__(seed)
        self.faults = faults
        self.job = JobMaster(job_graph, settings or JobSettings(), 0)
        self.resources = ResourceManager(slots_each, None, now_ms=0)
        self.task_managers: dict[ResourceId, SimTaskManager] = {}
        self.gone: set[ResourceId] = set()
        self.statuses: list[JobStatusChanged] = []
        self.committed: tuple[Committable, ...] = ()
        self.user_failures_left = faults.user_failures
        self.resets = 0

    def run(self, until_ms: int = 3_600_000) -> None:
        self.feed_job(StartScheduling(0))
        for _ in range(self.faults.kills):
            self.later(self.random.randrange(1, 4000), self._kill_one)
        self.later(500, self._tick)
        self.drain(until_ms)

    def _tick(self) -> None:
        self.feed_resources(ResourceTick(self.now_ms))
        if not self.job.status.is_terminal or self.task_managers.keys() - self.gone:
            self.later(500, self._tick)

    def feed_job(self, event: JobEvent) -> None:
        effects = self.job.step(event)
        self.job.check()
        for effect in effects:
            self._do(effect)

    def feed_resources(self, event: ResourceEvent) -> None:
        effects = self.resources.step(event)
        self.resources.check()
        for effect in effects:
            match effect:
                case StartTaskManager():
                    self._start(effect)
                case StopTaskManager():
                    self._stop(effect.resource_id)
                case RequestSlot():
                    self._send(effect.resource_id, lambda tm, e=effect: self._request_slot(tm, e))
                case ResourcesMissing():
                    missing = NotEnoughResources(effect.available, effect.reason, self.now_ms)
                    self.later(0, lambda m=missing: self.feed_job(m))

    def _do(self, effect: object) -> None:
        match effect:
            case DeclareRequirements():
                self.feed_resources(effect)
            case AnswerOffers():
                self._send(effect.resource_id, lambda tm: self._answer(tm, effect))
            case DeployTask():
                self._check_deploy(effect)
                self._send(effect.resource_id, lambda tm: self._deploy(tm, effect.deployment))
            case CancelTask():
                self._send(effect.resource_id, lambda tm: self._cancel(tm, effect.attempt_id))
            case FreeSlot():
                self._send(effect.resource_id, lambda tm: self._free(tm, effect.allocation_id))
            case SetTimer():
                delay_ms = max(0, effect.at_ms - self.now_ms)
                self.later(delay_ms, lambda: self.feed_job(TimerFired(effect.timer, self.now_ms)))
            case FinalizeJob():
                self.later(self.delay(), lambda: self._finalize(effect))
            case JobStatusChanged():
                self.statuses.append(effect)
            case ResetSubtasks():
                self.resets += 1
            case ExecutionStateChanged():
                pass
            case _:
                raise AssertionError(f"unexpected effect {effect}")

    def _check_deploy(self, effect: DeployTask) -> None:
        """Named invariant: no second attempt of a subtask lives beside the first."""
        vertex_id = effect.deployment.attempt_id.execution_vertex_id
        for task_manager in self.task_managers.values():
            if task_manager.location.resource_id in self.gone or not task_manager.is_alive:
                continue
            for attempt_id in task_manager.tasks:
                assert attempt_id.execution_vertex_id != vertex_id, f"{attempt_id} still lives"
        for gate in effect.deployment.gates:
            for channel in gate.channels:
                assert channel.location is not None, "pipelined producers are known"
                assert channel.location.resource_id not in self.gone, "a lost producer is named"

    def _finalize(self, effect: FinalizeJob) -> None:
        if self.faults.finalize_fails:
            self.feed_job(FailJob(FailureInfo("CommitFailed", "disk full"), self.now_ms))
            return
        self.committed = effect.committables
        self.feed_job(JobFinalized(self.now_ms))

    # ------------------------------------------------------------------ the wire

    def _send(self, resource_id: ResourceId, call: Callable[[SimTaskManager], None]) -> None:
        """To a TaskManager, in order; lost ones hear nothing."""
        task_manager = self.task_managers.get(resource_id)
        if task_manager is None:
            return
        task_manager.inbox_ms = max(task_manager.inbox_ms, self.now_ms + self.delay())
        self._repeat(
            task_manager.inbox_ms - self.now_ms, lambda: self._if_alive(task_manager, call)
        )

    def _if_alive(self, task_manager: SimTaskManager, call: Callable) -> None:
        if task_manager.is_alive:
            call(task_manager)

    def _report(self, task_manager: SimTaskManager, call: Callable[[], None]) -> None:
        """From a TaskManager, in order; not after it is known to be gone: its token is fenced."""
        resource_id = task_manager.location.resource_id
        task_manager.outbox_ms = max(task_manager.outbox_ms, self.now_ms + self.delay())

        def deliver() -> None:
            if resource_id not in self.gone or self.random.random() < 0.1:
                call()

        self._repeat(task_manager.outbox_ms - self.now_ms, deliver)

    def _repeat(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.later(delay_ms, call)
        if self.random.random() < self.faults.repeat_chance:
            self.later(delay_ms, call)

    # ------------------------------------------------------------------ TaskManagers

    def _start(self, effect: StartTaskManager) -> None:
        if self.random.random() < self.faults.start_failure_chance:
            failed = TaskManagerStartFailed(effect.resource_id, "no core", self.now_ms)
            self.later(self.delay(), lambda: self.feed_resources(failed))
            return
        location = TaskManagerLocation(effect.resource_id, f"host-{effect.resource_id}", 7000)

        def register() -> None:
            self.task_managers[effect.resource_id] = SimTaskManager(
                location, TaskSlots(effect.slots)
            )
            self.feed_resources(TaskManagerRegistered(location, effect.slots, self.now_ms))

        self.later(200 + self.delay(), register)

    def _stop(self, resource_id: ResourceId) -> None:
        task_manager = self.task_managers.get(resource_id)
        if task_manager is not None:
            assert not task_manager.tasks, "an idle TaskManager runs nothing"
            task_manager.is_alive = False
        self.gone.add(resource_id)

    def _request_slot(self, task_manager: SimTaskManager, effect: RequestSlot) -> None:
        done = task_manager.slots.allocate(effect.slot_index, effect.job_id, effect.allocation_id)
        if done:
            offer = SlotOffer(effect.allocation_id, effect.slot_index)
            self._report(
                task_manager,
                lambda: self.feed_job(SlotsOffered(task_manager.location, (offer,), self.now_ms)),
            )

    def _answer(self, task_manager: SimTaskManager, effect: AnswerOffers) -> None:
        for allocation_id in effect.accepted:
            task_manager.slots.mark_active(allocation_id)
        for allocation_id in effect.rejected:
            self._free(task_manager, allocation_id)

    def _free(self, task_manager: SimTaskManager, allocation_id: object) -> None:
        freed = task_manager.slots.free(task_manager.location.resource_id, allocation_id)
        self._tell_freed(task_manager, freed)

    def _tell_freed(self, task_manager: SimTaskManager, freed: list[SlotFreed]) -> None:
        for message in freed:
            self._report(task_manager, lambda m=message: self.feed_resources(m))

    def _deploy(self, task_manager: SimTaskManager, deployment: TaskDeployment) -> None:
        attempt_id = deployment.attempt_id
        try:
            task_manager.slots.add_task(deployment.allocation_id, attempt_id)
        except ExternalError:
            assert self.faults.repeat_chance > 0, "a deployment always finds its slot"
            return
        task_manager.tasks[attempt_id] = deployment
        self._tell(task_manager, attempt_id, S.INITIALIZING)
        self._tell(task_manager, attempt_id, S.RUNNING)
        is_failing = self.user_failures_left > 0 and self.random.random() < 0.3
        self.later(
            self.random.randrange(1, 3000),
            lambda: self._finish(task_manager, attempt_id, is_failing),
        )

    def _finish(self, task_manager: SimTaskManager, attempt_id: AttemptId, fails: bool) -> None:
        """A task ends after its producers, as pipelined tasks do; a failing one does not wait."""
        if not task_manager.is_alive or attempt_id not in task_manager.tasks:
            return
        if fails and self.user_failures_left:
            self.user_failures_left -= 1
            self._break_peers(task_manager, attempt_id)
            failure = FailureInfo("ValueError", "user code raised", is_user_code=True)
            self._end_task(task_manager, attempt_id, S.FAILED, failure)
            return
        deployment = task_manager.tasks[attempt_id]
        producers = {
            channel.result_partition_id.producer
            for gate in deployment.gates
            for channel in gate.channels
        }
        if any(producers & other.tasks.keys() for other in self.task_managers.values()):
            self.later(50, lambda: self._finish(task_manager, attempt_id, fails))
            return
        self._end_task(task_manager, attempt_id, S.FINISHED)

    def _end_task(
        self,
        task_manager: SimTaskManager,
        attempt_id: AttemptId,
        state: ExecutionState,
        failure: FailureInfo | None = None,
    ) -> None:
        deployment = task_manager.tasks.pop(attempt_id)
        freed = task_manager.slots.task_ended(deployment.allocation_id, attempt_id)
        self._tell(task_manager, attempt_id, state, failure)
        self._tell_freed(task_manager, freed)

    def _cancel(self, task_manager: SimTaskManager, attempt_id: AttemptId) -> None:
        def end() -> None:
            if task_manager.is_alive and attempt_id in task_manager.tasks:
                self._end_task(task_manager, attempt_id, S.CANCELED)

        self.later(self.delay(), end)

    def _tell(
        self,
        task_manager: SimTaskManager,
        attempt_id: AttemptId,
        state: ExecutionState,
        failure: FailureInfo | None = None,
    ) -> None:
        done = (Committable(1, str(attempt_id)),) if state is S.FINISHED else ()
        report = TaskStateChanged(attempt_id, state, failure, done)
        self._report(task_manager, lambda: self.feed_job(TaskReported(report, self.now_ms)))

    def _kill_one(self) -> None:
        alive = [tm for tm in self.task_managers.values() if tm.is_alive]
        if not alive or self.job.status.is_terminal:
            return
        victim = self.random.choice(alive)
        resource_id = victim.location.resource_id
        victim.is_alive = False
        for attempt_id in list(victim.tasks):
            self._break_peers(victim, attempt_id)
        victim.tasks.clear()

        def notice() -> None:
            self.gone.add(resource_id)
            lost = TaskManagerLostEvent(resource_id, "killed", self.now_ms)
            gone = TaskManagerGone(resource_id, "killed", self.now_ms)
            first, second = (
                (lambda: self.feed_resources(lost)),
                (lambda: self.feed_job(gone)),
            )
            if self.random.random() < 0.5:
                first, second = second, first
            first()
            second()

        self.later(self.random.choice((0, 5, 300)), notice)

    def _break_peers(self, lost: SimTaskManager, producer: AttemptId) -> None:
        """Consumers on other TaskManagers see their connection break, maybe before anybody else."""
        if not self.faults.is_connection_noise:
            return
        for task_manager in self.task_managers.values():
            if task_manager is lost or not task_manager.is_alive:
                continue
            for attempt_id, deployment in list(task_manager.tasks.items()):
                read = next(
                    (
                        channel.partition_id
                        for gate in deployment.gates
                        for channel in gate.channels
                        if channel.result_partition_id.producer == producer
                    ),
                    None,
                )
                if read is None or self.random.random() < 0.4:
                    continue
                failure = FailureInfo("PartitionConnectionError", "broken", lost_partition=read)
                self._end_task(task_manager, attempt_id, S.FAILED, failure)

    @property
    def last_status(self) -> JobStatus:
        return self.statuses[-1].status
