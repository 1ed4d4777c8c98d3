"""State of one job, and its creation. Source: the parts of Flink's DefaultScheduler.

Each part changes only itself. `JobTransitions` has changes of several parts, and `job_master.py`
decides when they happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.engine.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
)
from penstock.engine.machines.execution.regions import PartitionRelease
from penstock.engine.machines.failover import Restarts
from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.machines.job_state.attempts import Attempts
from penstock.engine.machines.job_state.job_settings import JobSettings, LoadBalanceMode
from penstock.engine.machines.job_state.job_slots import JobSlots, SlotSizes
from penstock.engine.machines.job_state.job_status import JobLifecycle, JobStatusEvent
from penstock.engine.machines.scheduling.bulks import (
    Bulk,
    BulkCheck,
    Bulks,
    BulkTimeout,
    is_fulfillable,
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
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.graph.job_graph import JobGraph, JobType
from penstock.engine.model.ids import AllocationId, ResourceId
from penstock.engine.model.messages import DeployTask, ReleasePartitions, ResetSubtasks, SetTimer
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
    policy: PartitionRelease,
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


TIMER_PREFIX = "slots-"


class Reserved:
    """Slots that some task has now, or had before a failure and may return to
    (docs/spec/slots.md#preferred-locations).

    Updated as tasks are placed, and looked up per slot: building a set of all of them for each
    region would cost more.
    """

    def __init__(self) -> None:
        self._claimants: dict[AllocationId, dict[int, ExecutionVertex]] = {}

    def add(self, vertex: ExecutionVertex, allocation_id: AllocationId) -> None:
        """The vertex sits in this slot now, and gives up the slot that it had before."""
        former = vertex.last_allocation_id
        if former is not None and former in self._claimants:
            self._claimants[former].pop(vertex.index, None)
            if not self._claimants[former]:
                del self._claimants[former]
        self._claimants.setdefault(allocation_id, {})[vertex.index] = vertex

    def __contains__(self, allocation_id: object) -> bool:
        return any(
            vertex.state is not ExecutionState.FINISHED
            for vertex in self._claimants.get(allocation_id, {}).values()  # type: ignore[call-overload] # Container takes any object
        )

    def __bool__(self) -> bool:
        return bool(self._claimants)


class Deployer:
    """From vertices to deployed tasks: asks for seats in slots, and deploys a bulk when all its slots
    are there.

    Knows no failures: it only reports a bulk that has waited too long. Source: Flink
    DefaultExecutionDeployer and PhysicalSlotRequestBulkCheckerImpl (docs/spec/scheduling.md#one-round,
    #bulks-that-wait-for-slots).

    Collects vertices in bulks that wait for slots, and deploys them. `next_bulk`: number of the next one.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        slots: JobSlots,
        bulks: Bulks,
        attempts: Attempts,
        deployments: TaskDeployments,
        event_log: EventLog,
    ) -> None:
        self._job = job_graph
        self._timeout_ms = settings.slot_request_timeout_ms
        self._pool = slots.pool
        self._shared_slots = slots.shared_slots
        self._bulks = bulks
        self._attempts = attempts
        self._deployments = deployments
        self._event_log = event_log
        self._reserved = Reserved() if settings.is_local_recovery else None
        self.next_bulk = 0

    @property
    def keeps_state_near(self) -> bool:
        """Whether TaskManagers keep copies of their state, so that tasks are to run where theirs are."""
        return self._reserved is not None

    def allocate(self, vertices: Iterable[ExecutionVertex]) -> None:
        """Schedule these vertices; deploy them at once if all their slots are there."""
        members = {vertex.index: vertex for vertex in vertices}
        for vertex in members.values():
            vertex.version += 1
            self._attempts.move(vertex, ExecutionEvent.SCHEDULE)
        shared = self._shared_slots.allocate(members.values(), self._reserved or frozenset())
        waits_for = {s.request.request_id for s in shared if s.slot is None}
        timer = f"{TIMER_PREFIX}{self.next_bulk}"
        self.next_bulk += 1
        now_ms = self._event_log.now_ms
        bulk = Bulk(timer, members, shared, waits_for, BulkTimeout(self._timeout_ms, now_ms))
        if not waits_for:
            self._deploy(bulk)
            return
        self._bulks.add(bulk)
        self._event_log.emit(SetTimer(timer, now_ms + self._timeout_ms))

    def serve(self) -> None:
        """Give free slots to waiting requests, and deploy the bulks that have all their slots now."""
        complete: list[Bulk] = []
        for request, slot in self._pool.serve_pending():
            self._shared_slots.serve(request.request_id, slot)
            complete += self._bulks.served(request.request_id)
        for bulk in complete:
            self._bulks.drop(bulk)
            self._deploy(bulk)

    def on_timer(self, timer: str) -> Bulk | None:
        """Return the bulk of this timer if it has waited too long; None: it has not, or the timer
        is not one of ours.
        """
        bulk = self._bulks.of_timer(timer)
        if bulk is None:
            return None
        now_ms = self._event_log.now_ms
        pending = [s.request.profile for s in bulk.shared if s.slot is None]
        served = {s.slot.allocation_id for s in bulk.shared if s.slot is not None}
        is_streaming = self._job.job_type is JobType.STREAMING
        reusable = self._pool.free if is_streaming else list(self._pool.slots.values())
        check = bulk.timeout.check(
            now_ms,
            has_pending=bool(pending),
            can_be_fulfilled=is_fulfillable(pending, reusable, served),
        )
        if check is BulkCheck.TIMEOUT:
            return bulk
        self._event_log.emit(SetTimer(timer, now_ms + self._timeout_ms))
        return None

    def _deploy(self, bulk: Bulk) -> None:
        """Place all vertices before deploying any, so that the places of pipelined producers are known to all."""
        placed = [v for v in bulk.vertices.values() if v.state is ExecutionState.SCHEDULED]
        for vertex in placed:
            slot = self._shared_slots.slot_of(vertex)
            assert slot is not None
            vertex.execution.location = slot.location
            vertex.execution.allocation_id = slot.allocation_id
            self._deployments.place(vertex)
            if self._reserved is not None:
                self._reserved.add(vertex, slot.allocation_id)
        for vertex in placed:
            self._attempts.move(vertex, ExecutionEvent.DEPLOY)
            location = vertex.execution.location
            assert location is not None
            self._event_log.emit(DeployTask(location.resource_id, self._deployments.of(vertex)))
        for vertex in placed:
            self._attempts.tell_readers(vertex)


_HAS_SLOT = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
    ExecutionState.CANCELING,
})


def check_job(job: JobState) -> None:
    """Invariants of a JobMaster, checked after each step in tests.

    Changes nothing. Each check has a name, which its error shows.

    Raises BrokenInvariant with the name of the check.
    """
    job.slots.pool.check()
    job.checkpoints.check()
    _check_seats(job)
    _check_rule_of_one(job)
    _check_counters(job)
    _check_status(job)


def _check_seats(job: JobState) -> None:
    for vertex in job.graph.vertices:
        slot = job.slots.shared_slots.slot_of(vertex)
        if vertex.state in _HAS_SLOT:
            held = slot is not None and slot.allocation_id == vertex.execution.allocation_id
            _expect("every deployed task sits in a slot that the job holds", vertex, held)
        elif vertex.state is ExecutionState.SCHEDULED:
            waiting = job.bulks.is_waiting(vertex)
            _expect("every scheduled task waits in a bulk", vertex, waiting)
        else:
            seat = job.slots.shared_slots.shared_slot_of(vertex)
            _expect("no other task has a seat", vertex, seat is None)


def _check_rule_of_one(job: JobState) -> None:
    for shared in job.slots.shared_slots:
        kinds = Counter(id(vertex.job_vertex) for vertex in shared.members.values())
        _expect("two subtasks of one vertex never share a slot", shared, max(kinds.values()) == 1)
        groups = {vertex.job_vertex.slot_sharing_group for vertex in shared.members.values()}
        _expect("a slot serves one slot sharing group", shared, len(groups) == 1)


def _check_counters(job: JobState) -> None:
    for job_vertex in job.graph.job_vertices:
        finished = sum(v.state is ExecutionState.FINISHED for v in job_vertex.vertices)
        _expect("finished subtasks are counted", job_vertex.name, finished == job_vertex.finished)
    for group in job.graph.consumed_groups:
        unfinished = sum(not partition.is_all_data_produced for partition in group.partitions)
        _expect("unfinished partitions are counted", group.edge, unfinished == group.unfinished)


def _check_status(job: JobState) -> None:
    if job.lifecycle.status.is_terminal:
        ended = job.graph.are_all_terminal
        _expect("all tasks of an ended job have ended", job.lifecycle.status, ended)
        _expect("an ended job holds no slot", job.lifecycle.status, not job.slots.pool.slots)
    if job.lifecycle.status is JobStatus.FINISHED:
        done = job.graph.is_finished
        _expect("all tasks of a finished job have finished", job.lifecycle.status, done)
    waiting = job.restarts.is_any_waiting
    _expect(
        "a job is restarting while tasks wait for their restart",
        job.lifecycle.status,
        job.lifecycle.awaits_next or waiting == job.lifecycle.is_restarting,
    )


def _expect(name: str, what: object, holds: bool) -> None:
    if not holds:
        raise BrokenInvariant(f"'{name}' does not hold for {what}.")


class JobResults:
    """Results that outlive their tasks: where they are, and when they are released.

    Source: Flink JobMasterPartitionTracker. `regions.py` decides when a result is no longer needed.

    The results of one job.
    """

    def __init__(
        self, graph: ExecutionGraph, policy: PartitionRelease, event_log: EventLog
    ) -> None:
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
        for partition in self._policy.on_finished(vertex):
            self.release(partition.producer, (partition,))

    def on_reset(self, vertex: ExecutionVertex) -> None:
        """A vertex starts again and will make its results again."""
        self.release(vertex, vertex.partitions)
        if vertex.state is ExecutionState.FINISHED:
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
