"""State of one job, and its creation. Source: the parts of Flink's DefaultScheduler.

Each part changes only itself. `JobTransitions` has changes of several parts, and `job_master.py`
decides when they happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.engine.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
)
from penstock.engine.machines.execution.regions import ReleaseByRegion
from penstock.engine.machines.failover import Restarts
from penstock.engine.machines.job.deployer import Deployer
from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.machines.job_state.attempts import Attempts
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.job_state.job_slots import JobSlots, SlotSizes
from penstock.engine.machines.job_state.job_status import JobLifecycle, JobStatusEvent
from penstock.engine.machines.scheduling.bulks import (
    Bulks,
)
from penstock.engine.machines.scheduling.task_deployments import TaskDeployments
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.machines.slots.slot_sharing import (
    SharingGroup,
    local_input_preferred,
    task_balanced,
)
from penstock.engine.machines.story import EventLog, Story
from penstock.engine.model.checkpoints import CompletedCheckpoint
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import ReleasePartitions, ResetSubtasks
from penstock.engine.model.options.cluster import LoadBalanceMode
from penstock.engine.model.states import ExecutionState, JobStatus


@dataclass(frozen=True, slots=True)
class JobState:
    """The parts of one job's state."""

    graph: ExecutionGraph
    event_log: EventLog
    restarts: Restarts
    lifecycle: JobLifecycle
    checkpoints: JobCheckpoints
    bulks: Bulks
    attempts: Attempts
    slots: JobSlots
    results: JobResults
    deployer: Deployer


def job_state_of(
    graph: ExecutionGraph,
    settings: JobSettings,
    now_ms: int,
    completed: Sequence[CompletedCheckpoint],
    policy: ReleaseByRegion | None,
    left: HandedOver | None = None,
) -> JobState:
    """`left`: by the generation before; None: this is the first one.

    Raises: ConfigurationError: the program does not fit the last checkpoint.
    """
    job_graph, is_balanced = graph.job_graph, settings.load_balance is LoadBalanceMode.TASKS
    restarts, bulks, sizes = Restarts(), Bulks(), SlotSizes(job_graph)
    if left is None:
        event_log = EventLog(Story(f"JobMaster of {job_graph.job_id}", settings.story_size), now_ms)
        pool = SlotPool(settings.matching, settings.selection, settings.slot_idle_timeout_ms)
        lifecycle = JobLifecycle(event_log, restarts)
    else:
        event_log, pool = left.event_log, left.pool
        lifecycle = JobLifecycle(event_log, restarts, left.status)
    groups = _groups_of(graph, left, is_balanced=is_balanced)
    shared_slots = SharedSlots(
        groups, pool, are_free_slots_taken=not is_balanced, profile_of_group=sizes.wanted
    )
    checkpoints = JobCheckpoints(
        graph,
        settings.checkpoints,
        completed,
        event_log.emit,
        None if left is None else left.checkpoints,
    )
    deployments = TaskDeployments(job_graph, graph)
    attempts = Attempts(graph, event_log, bulks, shared_slots, restarts, checkpoints, deployments)
    slots = JobSlots(graph, pool, shared_slots, sizes, attempts, event_log)
    deployer = Deployer(job_graph, settings, slots, bulks, attempts, deployments, event_log)
    _go_on_with(left, slots, attempts, restarts, deployer)
    return JobState(
        graph,
        event_log,
        restarts,
        lifecycle,
        checkpoints,
        bulks,
        attempts,
        slots,
        JobResults(graph, policy, event_log),
        deployer,
    )


def _groups_of(
    graph: ExecutionGraph, left: HandedOver | None, *, is_balanced: bool
) -> list[SharingGroup]:
    """The subtasks that are to share slots, but for those that run on in theirs."""
    share = task_balanced if is_balanced else local_input_preferred
    return share(graph, frozenset() if left is None else left.kept)


def _go_on_with(
    left: HandedOver | None,
    slots: JobSlots,
    attempts: Attempts,
    restarts: Restarts,
    deployer: Deployer,
) -> None:
    if left is not None:
        slots.freed, slots.declared = left.freed, left.declared
        attempts.gone.update(left.gone)
        deployer.next_bulk, restarts.next_number, slots.shared_slots.next_request = left.numbers


class JobTransitions:
    """Changes of many tasks of a job at once, in all parts of its state: a start, a restart, the end.

    This module knows how; `job_master.py` and `failure_handler.py` decide when. Source: Flink
    DefaultScheduler, SchedulerBase.

    Every method keeps all parts of the state consistent.
    """

    def __init__(self, state: JobState) -> None:
        self._state = state

    def allocate(self, regions: Iterable[list[ExecutionVertex]]) -> None:
        for vertices in regions:
            self._state.deployer.allocate(vertices)

    def reset(self, vertices: Sequence[ExecutionVertex], *, is_global: bool) -> None:
        """Make new attempts of these vertices. Their coordinators know it before anything is deployed."""
        state = self._state
        for vertex in vertices:
            state.results.on_reset(vertex)
            state.attempts.reset(vertex)
        checkpoint_id = state.checkpoints.restore(vertices)
        ids = tuple(vertex.vertex_id for vertex in vertices)
        state.event_log.emit(ResetSubtasks(ids, is_global, checkpoint_id))
        if is_global:
            state.checkpoints.restore_coordinators()

    def stop_all(self, event: JobStatusEvent) -> None:
        state = self._state
        state.restarts.clear()
        state.lifecycle.move(event)
        for vertex in state.graph.vertices:
            vertex.version += 1
            state.attempts.cancel(vertex)

    def suspend(self) -> None:
        """Let go of everything at once without waiting. All results stay for the next driver."""
        state = self._state
        state.checkpoints.follow(JobStatus.SUSPENDED, state.event_log.now_ms)
        state.restarts.clear()
        for vertex in state.graph.vertices:
            vertex.version += 1
            if vertex.execution.location is not None and not vertex.state.is_terminal:
                state.attempts.send_cancel(vertex)
            state.attempts.move(vertex, ExecutionEvent.SUSPEND)
        state.slots.give_back("job is SUSPENDED")
        state.lifecycle.move(JobStatusEvent.SUSPEND)

    def end(self, event: JobStatusEvent) -> None:
        """Give everything back, then report the end."""
        state = self._state
        for vertex in state.graph.vertices:
            state.results.release(vertex, vertex.partitions)
        state.slots.give_back(f"job is {state.lifecycle.after(event)}")
        state.lifecycle.move(event)


class JobResults:
    """Results that outlive their tasks: where they are, and when they are released.

    Source: Flink JobMasterPartitionTracker. `regions.py` decides when a result is no longer needed.

    The results of one job.
    """

    def __init__(
        self, graph: ExecutionGraph, policy: ReleaseByRegion | None, event_log: EventLog
    ) -> None:
        """`policy` None: nothing is released before the job ends."""
        self._graph = graph
        self._policy = policy
        self._event_log = event_log

    def places(self) -> set[ResourceId]:
        """Return the TaskManagers with results that are still to be read; they must stay even without slots in use."""
        found: set[ResourceId] = set()
        for vertex in self._graph.vertices:
            location = vertex.execution.location
            if vertex.state is not ExecutionState.FINISHED or location is None:
                continue
            if any(partition.is_wanted for partition in vertex.partitions):
                found.add(location.resource_id)
        return found

    def on_finished(self, vertex: ExecutionVertex) -> None:
        """A vertex has finished: release results that no other vertex will read."""
        for partition in () if self._policy is None else self._policy.on_finished(vertex):
            self.release(partition.producer, (partition,))

    def on_reset(self, vertex: ExecutionVertex) -> None:
        """A vertex starts again and will make its results again."""
        self.release(vertex, vertex.partitions)
        if vertex.state is ExecutionState.FINISHED and self._policy is not None:
            self._policy.on_unfinished(vertex)

    def release(self, vertex: ExecutionVertex, partitions: Iterable[ResultPartition]) -> None:
        """Release a vertex's results that outlive their task; the others end with the task."""
        location = vertex.execution.location
        kept = tuple(
            (partition.partition_id, vertex.execution.attempt_id)
            for partition in partitions
            if partition.is_available
            and partition.result_type.is_released_by_scheduler
            and vertex.state is ExecutionState.FINISHED
        )
        if kept and location is not None:
            self._event_log.emit(ReleasePartitions(location.resource_id, kept))
            for partition_id, _ in kept:
                self._graph.partitions[partition_id].is_available = False
