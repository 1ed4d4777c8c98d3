"""One job with its driver and its TaskManagers: the host that starts and stops them, and what the
invariants observe.

Stands for Spark (`TaskManagerProvider`), for the coordinators' thread and for the console. If a job
ends early, its seed runs another cluster after it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.provider import HostChanges, HostLoss, MasterAddress, OnEnded
from penstock.engine.machines.checkpoints.job_checkpoints import can_be_snapshotted
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.model.ids import ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.job_events import TaskManagerLost
from penstock.engine.model.messages import (
    CancelTask,
    Committable,
    DeployTask,
    ExecutionStateChanged,
    FailureInfo,
    GraphReplaced,
    JobStatusChanged,
)
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize
from penstock.engine.model.states import ExecutionState, JobStatus
from simulation.bookkeeping import allocated_to
from simulation.checkpoints import SimCheckpoints
from simulation.clock import SimClock
from simulation.elastic import Generations
from simulation.faults import Faults
from simulation.invariants import Invariants, Name
from simulation.master import DriverParts, Master
from simulation.network import Connection
from simulation.scenario import FaultKind, JobPlan, Moment, Scenario
from simulation.takeover import Left
from simulation.task import SimTask
from simulation.taskmanager import SimTaskManager, Surroundings
from simulation.tasks import DataPlane
from simulation.watcher import Watcher

_START_MS: Final = (200, 300, 500, 1_000)
_KILL_MS: Final = (20, 300, 3_000)
_KILL_FAILS: Final = 0.15
_ENDED_MS: Final = (5, 50, 1_500)
_HOST_LOSS_NOTICED_MS: Final = 90_000
_RESET_NOTICED_MS: Final = 10_000
_COMMIT_MS: Final = (1, 50, 2_000)
_LATE_MS: Final = (4_000, 15_000, 35_000)
_EARLY: Final = 0.3
_WORK_SHORT_MS: Final = (500, 5_000, 30_000)


def _has_final_checkpoint(plan: JobPlan) -> bool:
    settings = plan.settings.checkpoints
    return settings is not None and settings.has_final_checkpoint and can_be_snapshotted(plan.graph)


class SimHost:
    """The part of `TaskManagerProvider` that the driver uses."""

    def __init__(self, cluster: Cluster, slots: int) -> None:
        self.slots_per_taskmanager = slots
        self._cluster = cluster

    @property
    def shares_files(self) -> bool:
        return True

    @property
    def control_endpoint(self) -> Endpoint:
        return Endpoint("sim")

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        return None

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None: ...
    def gone(self) -> str | None:
        return None

    def describe(self) -> str:
        return "a simulated host"

    def changes(self) -> HostChanges:
        return HostChanges()

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        self._cluster.leave(resource_ids)

    def has_free_slots(self) -> bool:
        return True

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None: ...
    def registered(self, resource_id: ResourceId) -> None:
        self._cluster.registered(resource_id)

    def progress(self, resource_id: ResourceId) -> int | None: ...
    def why_gone(self, executor: str) -> HostLoss | None: ...
    def close(self) -> None: ...

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        return 1

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        self._cluster.start_taskmanager(resource_id, size)

    def stop(self, resource_id: ResourceId) -> None:
        self._cluster.stop_taskmanager(resource_id)


class SimObserver(JobObserver):
    """Stands for the console: moves are checked here, and added to the trace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def on_job_status_changed(self, change: JobStatusChanged) -> None:
        self._cluster.status_changed(change)

    def on_execution_state_changed(self, change: ExecutionStateChanged) -> None:
        self._cluster.watcher.task_moved(change)

    def on_graph_replaced(self, replaced: GraphReplaced) -> None:
        self._cluster.generations.replaced(replaced)
        self._cluster.watcher.next_generation(replaced.first_attempt)

    def on_task_manager_lost(self, event: TaskManagerLost) -> None:
        self._cluster.trace(f"lost {event.resource_id}: {event.cause}")


class SimCoordinators:
    """Commits. It has no splits to take back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def reset(
        self, vertices: Sequence[ExecutionVertexId], checkpoint_id: int | None = None
    ) -> None:
        self._cluster.watcher.resets += 1

    def rescale(self, parallelism: Mapping[VertexId, int]) -> None:
        """Does nothing: it has no readers."""

    def restore(
        self, states: Sequence[tuple[str, bytes]], kept: Container[VertexId] = frozenset()
    ) -> None:
        """Does nothing: it has no state."""

    def finalize(self, committables: Sequence[Committable]) -> None:
        self._cluster.commit(tuple(committables))


class Cluster(Surroundings):
    """`taskmanagers`: all that were ever started, by id, including those that have ended."""

    def __init__(
        self,
        clock: SimClock,
        scenario: Scenario,
        plan: JobPlan,
        faults: Faults,
        invariants: Invariants,
        trace: Callable[[str], None],
        left: Left | None = None,
    ) -> None:
        """`left`: by a former driver of the job; None: there was none."""
        self.clock = clock
        self.plan = plan
        self.trace = trace
        self.taskmanagers: dict[ResourceId, SimTaskManager] = {}
        self.data = DataPlane(
            clock, self._work_ms, has_final_checkpoint=_has_final_checkpoint(plan)
        )
        self.generations = Generations(self)
        self._scenario = scenario
        self._faults = faults
        self._is_endless = clock.chance(0.7)
        self._ends_early: dict[VertexId, bool] = {}
        self.on_moment = faults.at_moment
        self.checkpoints = SimCheckpoints(
            clock, lambda: self.master, invariants, faults.at_moment, trace, left
        )
        self.is_declining = self.checkpoints.is_declining
        self.on_snapshot = self.checkpoints.on_snapshot
        self.watcher = Watcher(
            clock, lambda: self.master, self.taskmanagers, self.data, invariants, trace
        )
        self.on_step = self.watcher.taskmanager_steps
        host = SimHost(self, plan.slots_each)
        around = DriverParts(
            SimCoordinators(self), self.checkpoints, self.watcher, self._on_send, left
        )
        self.master: Master = Master(clock, plan, host, SimObserver(self), around)
        self.is_deaf_to_cancel = lambda: faults.take(FaultKind.DEAF_TO_CANCEL)
        self.can_reach = lambda resource_id: self.alive(resource_id) is not None

    @property
    def job(self) -> JobMaster:
        return self.master.shell.job_master

    @property
    def status(self) -> JobStatus:
        return self.master.shell.status

    def alive(self, resource_id: ResourceId) -> SimTaskManager | None:
        taskmanager = self.taskmanagers.get(resource_id)
        return taskmanager if taskmanager is not None and taskmanager.is_alive else None

    def left(self) -> Left | None:
        """Return what another driver goes on with; None: the job is over."""
        if self.status is not JobStatus.SUSPENDED:
            return None
        return self.checkpoints.left(self.master.guard.recorded)

    def close(self) -> None:
        """The driver's process ends after its job. Spark then ends what it started for the driver."""
        self.master.close()
        for taskmanager in self.taskmanagers.values():
            self.clock.later(0, "HostCloses", partial(taskmanager.end, "the application ended"))

    # ------------------------------------------------------------------ the host

    def start_taskmanager(self, resource_id: ResourceId, size: SlotSize) -> None:
        delay_ms = self.clock.random.choice(_START_MS)
        if self._faults.take(FaultKind.START_FAILS):
            self.clock.later(delay_ms, "StartFails", lambda: self._fail_start(resource_id))
            return
        if self._faults.take(FaultKind.START_NEVER):
            return
        if self._faults.take(FaultKind.START_LATE):
            delay_ms += self.clock.random.choice(_LATE_MS)
        slots = 1 if size else self.plan.slots_each
        if slots > 1 and self._faults.take(FaultKind.FEWER_SLOTS):
            slots -= 1
        at_ms = max(self.clock.now_ms, self._faults.no_capacity_until_ms) + delay_ms
        taskmanager = SimTaskManager(resource_id, slots, size, self)
        self.taskmanagers[resource_id] = taskmanager
        self.clock.at(at_ms, "Started", lambda: self._started(taskmanager))

    def _fail_start(self, resource_id: ResourceId) -> None:
        self.master.host_ended(resource_id, "no core")

    def _started(self, taskmanager: SimTaskManager) -> None:
        if not taskmanager.is_alive:
            return
        if self.master.is_closed:
            taskmanager.end("there is no driver")
            return
        connection = Connection(
            self.clock,
            taskmanager.resource_id,
            self.master.receive,
            taskmanager.receive,
            self._faults.touched,
        )
        taskmanager.connect(connection)
        self.on_moment(Moment.REGISTER_TO_REQUEST, taskmanager.resource_id)

    def stop_taskmanager(self, resource_id: ResourceId) -> None:
        """Stop a TaskManager. Most are killed soon; some cannot be reached and must end by themselves."""
        taskmanager = self.taskmanagers.get(resource_id)
        if taskmanager is None or self.clock.chance(_KILL_FAILS):
            return
        delay_ms = self.clock.random.choice(_KILL_MS)
        self.clock.later(delay_ms, "Kill", lambda: taskmanager.end("killed by its host"))

    def registered(self, resource_id: ResourceId) -> None:
        """Does nothing: this host has no use for it."""

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        """Does nothing: hosts of the simulation fail without a word."""

    def on_ended(self, taskmanager: SimTaskManager, cause: str, is_told: bool) -> None:
        self.trace(f"end {taskmanager.resource_id}: {cause}")
        resource_id = taskmanager.resource_id
        self.data.lose_host(resource_id, 0 if is_told else _RESET_NOTICED_MS)
        delay_ms = self.clock.random.choice(_ENDED_MS) if is_told else _HOST_LOSS_NOTICED_MS
        ended = partial(self.master.host_ended, resource_id, cause)
        self.clock.later(delay_ms, "ProcessEnds", ended)

    # ------------------------------------------------------------------ tasks and results

    def on_task(self, taskmanager: SimTaskManager, task: SimTask) -> None:
        self.watcher.task_changed(taskmanager, task)

    def _work_ms(self, task: SimTask) -> int:
        """Return how long a task works.

        A task whose results are waited for ends soon. In an endless job, most other tasks work
        until the job's end.
        """
        is_waited_for = any(made.result_type.is_blocking for made in task.deployment.partitions)
        vertex_id = task.attempt_id.vertex_id
        if vertex_id not in self._ends_early:
            self._ends_early[vertex_id] = self.clock.chance(_EARLY)
        if is_waited_for or not self._is_endless or self._ends_early[vertex_id]:
            return self.clock.random.choice(_WORK_SHORT_MS)
        return max(self._scenario.ends_ms - self.clock.now_ms, 100)

    def commit(self, committables: tuple[Committable, ...]) -> None:
        self.watcher.committed(committables)
        failure = None
        if self._faults.take(FaultKind.COMMIT_FAILS):
            failure = FailureInfo("CommitFailed", "disk full")
        delay_ms = self.clock.random.choice(_COMMIT_MS)
        self.clock.later(delay_ms, "Committed", lambda: self.master.finalized(failure))

    # ------------------------------------------------------------------ what happens at the driver

    def status_changed(self, change: JobStatusChanged) -> None:
        self.watcher.job_moved(change)
        if change.status is JobStatus.RESTARTING:
            self.clock.later(0, "Moment", lambda: self.on_moment(Moment.FAIL_TO_RESTART, None))

    def _on_send(self, resource_id: ResourceId, message: object) -> None:
        self.checkpoints.on_send(message)
        if isinstance(message, DeployTask):
            self.watcher.deploying(message.deployment)
            self.on_moment(Moment.DEPLOY_TO_ACK, resource_id)
        elif isinstance(message, CancelTask):
            self.on_moment(Moment.CANCEL_TO_END, resource_id)

    def has_settled(self) -> bool:
        """Whether the job has ended, or runs with no task on its way."""
        if self.status.is_terminal:
            return True
        waiting = {ExecutionState.CREATED, ExecutionState.RUNNING, ExecutionState.FINISHED}
        vertices = self.job.state.graph.vertices
        return self.status is JobStatus.RUNNING and all(v.state in waiting for v in vertices)

    def is_given_back(self) -> bool:
        """Whether the books have no need, no slot and no TaskManager after the end."""
        resources = self.master.shell.resource_manager
        left = (resources.needs, resources.taskmanagers, resources.starting)
        return not any(left) and allocated_to(resources, self.job.job_graph.job_id) == 0

    def end_is_clean(self, invariants: Invariants) -> None:
        """Raises Violation: something of the job is left."""
        watcher = self.watcher
        unended = sorted(str(a) for a in watcher.unended())
        invariants.expect(Name.ATTEMPTS_END, not unended, unended)
        tasks = [tm.resource_id for tm in self.taskmanagers.values() if tm.tasks or tm.is_alive]
        invariants.expect(Name.NOTHING_LEFT, not tasks, f"TaskManagers {tasks}")
        state = self.job.state
        left = {
            "requests": state.slots.pool.pending,
            "slots": state.slots.pool.slots,
            "seats": list(state.slots.shared_slots),
            "bulks": len(state.bulks),
            "restarts": state.restarts._restarts,
            "effects": len(state.event_log),
            "cancels": self.master.shell.cancelling,
            "events": self.master.shell._events,
            "timers": self.master.shell._timers,
        }
        names = [name for name, state in left.items() if state]
        invariants.expect(Name.NOTHING_LEFT, not names, names)
