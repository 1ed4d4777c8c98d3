"""Looks at one cluster after every event, passes what it sees to the invariants, and writes the
trace.

Reads machines and TaskManagers, and changes nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, ResultPartitionId
from penstock.engine.model.messages import (
    Committable,
    ExecutionStateChanged,
    FinalCheckpointAwaited,
    JobEvent,
    JobStatusChanged,
    ResourceEvent,
    ResourceTick,
    SlotsOffered,
    TaskManagerEffect,
    TaskManagerEvent,
    TaskManagerGone,
    TaskReported,
    TimerFired,
)
from penstock.engine.model.states import ExecutionState, JobStatus
from simulation.clock import SimClock
from simulation.invariants import Invariants, Name
from simulation.scenario import HEARTBEAT_TIMEOUT_MS
from simulation.task import SimTask
from simulation.taskmanager import SimTaskManager
from simulation.tasks import DataPlane

if TYPE_CHECKING:
    from simulation.master import Master

_NOTICE_MS: Final = 3_000


class Watcher:
    """`is_touched`: a TaskManager's tasks or slots have changed since the last look."""

    def __init__(
        self,
        clock: SimClock,
        master: Callable[[], Master],
        taskmanagers: dict[ResourceId, SimTaskManager],
        data: DataPlane,
        invariants: Invariants,
        trace: Callable[[str], None],
    ) -> None:
        self.resets = 0
        self.registered_most = 0
        self.is_touched = False
        self._clock = clock
        self._master = master
        self._taskmanagers = taskmanagers
        self._data = data
        self._invariants = invariants
        self._trace = trace
        self._state: dict[AttemptId, ExecutionState] = {}
        self._newest: dict[ExecutionVertexId, int] = {}
        self._deployed: set[AttemptId] = set()
        self._finished: set[AttemptId] = set()
        self._at_end: set[AttemptId] = set()
        self._status = JobStatus.CREATED
        self._commits = 0
        self._first_attempt = 0

    # ------------------------------------------------------------------ machines

    def after_job_step(self, event: JobEvent) -> None:
        self._trace(f"job {_brief(event)}")
        shell = self._master().shell
        self._invariants.after_job_step(shell.job_master, self._clock.now_ms)
        if isinstance(event, FinalCheckpointAwaited):
            self._at_end.add(event.attempt_id)
            self._last_is_taken_at_once()

    def _last_is_taken_at_once(self) -> None:
        """When all running tasks wait for a final checkpoint, one is under way, or waits for
        another one or for its pause.
        """
        job = self._master().shell.job_master
        coordinator = job.checkpoints.coordinator
        vertices = job.state.graph.vertices
        waiting = [v for v in vertices if v.execution.attempt_id in self._at_end]
        are_all = all(v in waiting or v.state is ExecutionState.FINISHED for v in vertices)
        if coordinator is None or not coordinator.is_active or not are_all:
            return
        is_taken = bool(coordinator.pending) or len(coordinator._intake.queue) > 0
        self._invariants.expect(Name.LAST_AT_ONCE, is_taken, [str(vertex) for vertex in waiting])

    def after_resource_step(self, event: ResourceEvent) -> None:
        if not isinstance(event, ResourceTick):
            self._trace(f"resources {type(event).__name__}")
        resources = self._master().shell.resource_manager
        self._invariants.after_resource_step(resources)
        self.registered_most = max(self.registered_most, len(resources.taskmanagers))
        if isinstance(event, ResourceTick):
            self._silence_is_noticed()

    def _silence_is_noticed(self) -> None:
        """Check that every registered TaskManager was heard within the timeout. Pauses of the driver do not count."""
        now_ms = self._clock.now_ms
        if now_ms < self._master().paused_until_ms + _NOTICE_MS:
            return
        for resource_id in self._master().shell.resource_manager.taskmanagers:
            heard_ms = self._master().heard_ms.get(resource_id, now_ms)
            silent_ms = now_ms - heard_ms - self._master().paused_since(heard_ms)
            is_good = silent_ms <= HEARTBEAT_TIMEOUT_MS + _NOTICE_MS
            self._invariants.expect(
                Name.SILENCE_NOTICED,
                is_good,
                (resource_id, silent_ms),
                is_trivial=silent_ms < _NOTICE_MS,
            )

    # ------------------------------------------------------------------ moves

    def task_moved(self, change: ExecutionStateChanged) -> None:
        attempt_id = change.attempt_id
        self._trace(f"{attempt_id} {change.old}->{change.new} {change.cause}")
        before = self._state.get(attempt_id, ExecutionState.CREATED)
        if attempt_id not in self._state:
            self._is_new(attempt_id)
        self._invariants.task_moved(change, before)
        self._state[attempt_id] = change.new
        if change.new is ExecutionState.DEPLOYING:
            self._is_deployed(attempt_id)

    def _is_new(self, attempt_id: AttemptId) -> None:
        """Check a new attempt: the former one has ended, and no number was skipped."""
        vertex_id = attempt_id.execution_vertex_id
        newest = self._newest.get(vertex_id, -1)
        expected = max(newest + 1, self._first_attempt)
        is_next = attempt_id.attempt == expected
        former = AttemptId(vertex_id, newest)
        has_ended = newest < 0 or self._state[former].is_terminal
        self._invariants.expect(
            Name.RISING_ATTEMPTS, is_next and has_ended, attempt_id, is_trivial=expected == 0
        )
        self._newest[vertex_id] = attempt_id.attempt

    def next_generation(self, first_attempt: int) -> None:
        """All subtasks are new, and their attempts are numbered from this one on."""
        self._trace(f"next generation: attempts from {first_attempt}")
        self._first_attempt = first_attempt

    def newest_attempts(self) -> list[AttemptId]:
        """Return the newest attempt of each subtask that there ever was."""
        return [AttemptId(vertex_id, number) for vertex_id, number in self._newest.items()]

    def _is_deployed(self, attempt_id: AttemptId) -> None:
        vertex = self._master().shell.job_master.state.graph.current(attempt_id)
        location = vertex.execution.location if vertex is not None else None
        is_there = location is not None and location.resource_id in self._master().shell.links
        self._invariants.expect(Name.NO_GHOSTS, is_there, (attempt_id, location))

    def deploying(self, deployment: TaskDeployment) -> None:
        """Check a deployment that a TaskManager is about to get."""
        attempt_id = deployment.attempt_id
        self._invariants.expect(Name.RISING_ATTEMPTS, attempt_id not in self._deployed, attempt_id)
        self._deployed.add(attempt_id)
        for gate in deployment.gates:
            for channel in gate.channels:
                result_id, location = channel.result_partition_id, channel.location
                if result_id is None or location is None:
                    self._invariants.expect(Name.KNOWN_PRODUCERS, False, (attempt_id, channel))
                    return
                self._invariants.expect(Name.KNOWN_PRODUCERS, True)
                if gate.result_type.is_blocking:
                    self._result_is_there(attempt_id, result_id, location.resource_id)

    def _result_is_there(
        self, reader: AttemptId, result_id: ResultPartitionId, resource_id: ResourceId
    ) -> None:
        """Check that a blocking result exists. The results of a TaskManager that is gone, or about
        to be, are excused.
        """
        taskmanager = self._taskmanagers.get(resource_id)
        if taskmanager is None or not taskmanager.is_alive:
            return
        result = self._data.results.get(result_id)
        is_there = result is not None and result.is_complete
        self._invariants.expect(Name.RESULT_IS_THERE, is_there, f"{reader} is to read {result_id}")

    def job_moved(self, change: JobStatusChanged) -> None:
        self._trace(f"job is {change.status} {change.failure.kind if change.failure else ''}")
        self._invariants.job_moved(change, self._status)
        self._status = change.status
        if change.status is JobStatus.FAILED:
            self._invariants.job_failed(self._master().shell.job_master, change)

    # ------------------------------------------------------------------ TaskManagers

    def let_go(self, resource_id: ResourceId) -> None:
        """Check a TaskManager that the ResourceManager stops: nothing may run there."""
        taskmanager = self._taskmanagers.get(resource_id)
        if taskmanager is None:
            return
        tasks = list(taskmanager.tasks)
        self._invariants.expect(Name.IDLE_IS_IDLE, not tasks, (resource_id, tasks))
        if not self._status.is_terminal:
            wanted = self._wanted_of(resource_id)
            self._invariants.expect(Name.KEPT_FOR_READERS, not wanted, (resource_id, wanted))

    def _wanted_of(self, resource_id: ResourceId) -> list[str]:
        """Return the results there that are current in the job's books and that some reader has not
        yet read completely.
        """
        graph = self._master().shell.job_master.state.graph
        found = []
        for result in self._data.results.values():
            partition = graph.partitions.get(result.result_id.partition_id)
            if partition is None:
                continue  # Of a subtask that the job has no more.
            is_current = partition.producer.execution.attempt_id == result.result_id.producer
            is_read = len(result.has_read) >= result.subpartitions
            if result.host.resource_id == resource_id and is_current and not is_read:
                found.append(str(result.result_id))
        return found

    def taskmanager_steps(
        self, taskmanager: SimTaskManager, event: TaskManagerEvent
    ) -> Callable[[list[TaskManagerEffect]], None]:
        """Called before each step of a TaskManager's machine."""
        return self._invariants.taskmanager_steps(taskmanager, event)

    def task_changed(self, taskmanager: SimTaskManager, task: SimTask) -> None:
        self._trace(f"{taskmanager.resource_id} {task.attempt_id} {task.state}")
        if task.state is ExecutionState.FINISHED:
            self._finished.add(task.attempt_id)
        self.is_touched = True

    def after_event(self) -> None:
        """Check what TaskManagers that are not over run now."""
        if not self.is_touched:
            return
        self.is_touched = False
        links = self._master().shell.links
        there = [
            tm for tm in self._taskmanagers.values() if tm.is_alive and tm.resource_id in links
        ]
        self._invariants.after_task_event(there)

    # ------------------------------------------------------------------ the end

    def committed(self, committables: tuple[Committable, ...]) -> None:
        vertices = self._master().shell.job_master.state.graph.vertices
        current = [vertex.execution.attempt_id for vertex in vertices]
        made = sorted(committable.payload.decode() for committable in committables)
        self._commits += 1
        is_once = self._commits == 1 and made == sorted(map(str, current))
        is_finished = all(attempt_id in self._finished for attempt_id in current)
        self._invariants.expect(Name.COMMITTED_ONCE, is_once and is_finished, made)

    def unended(self) -> list[AttemptId]:
        """Return the attempts that were reported and never ended."""
        return [attempt_id for attempt_id, state in self._state.items() if not state.is_terminal]


def _brief(event: JobEvent) -> str:
    """Return as much of an event as is needed to follow a run."""
    name = type(event).__name__
    if isinstance(event, TaskReported):
        return f"{name} {event.report.attempt_id} {event.report.state}"
    if isinstance(event, TimerFired):
        return f"{name} {event.timer}"
    if isinstance(event, TaskManagerGone):
        return f"{name} {event.resource_id}"
    if isinstance(event, SlotsOffered):
        offers = ", ".join(f"{o.allocation_id}@{o.slot_index}" for o in event.offers)
        return f"{name} {event.location.resource_id} {offers}"
    return name
