"""The master of one job: events in, effects out.

Knows no clock, thread or wire: `step` is told the time. Source: Flink JobMaster, DefaultScheduler,
ExecutionFailureHandler (spec 0, 7, 8.1). Differs: one failure per lost TaskManager, however many
regions it hits; a TaskManager that reports CANCELED unasked counts as lost; CancelJob while results
are being made visible comes too late; FailJob while cancelling changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from penstock.machines import job_status as job_machine
from penstock.machines.deployer import Bulk, Deployer
from penstock.machines.execution import Consequence, ExecutionEvent
from penstock.machines.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.machines.failover import FailoverStrategy, RestartAll, RestartRegions
from penstock.machines.failures import (
    RootCause,
    canceled_unasked,
    lost_task_manager,
    no_resources,
    unexpected_report,
)
from penstock.machines.job_checks import check_job
from penstock.machines.job_settings import FailoverMode, JobSettings, LoadBalanceMode
from penstock.machines.job_status import JobStatusEvent
from penstock.machines.job_views import TaskPlace, places_of, progress_of
from penstock.machines.regions import Regions
from penstock.machines.restart_backoff import InfrastructureOnlyRestart, is_infrastructure
from penstock.machines.restarts import Restarts
from penstock.machines.scheduling import PipelinedRegionScheduling
from penstock.machines.shared_slots import SharedSlots
from penstock.machines.slot_pool import SlotPool
from penstock.machines.slot_sharing import local_input_preferred, task_balanced
from penstock.machines.story import Story
from penstock.model.graph.job_graph import JobGraph, JobType
from penstock.model.ids import AttemptId, PartitionId, ResourceId
from penstock.model.messages import (
    AnswerOffers,
    CancelJob,
    CancelTask,
    DeclareRequirements,
    ExecutionStateChanged,
    FailJob,
    FailureInfo,
    FinalizeJob,
    FreeSlot,
    JobEffect,
    JobEvent,
    JobFinalized,
    JobStatusChanged,
    NotEnoughResources,
    PartitionDataProduced,
    ReleasePartitions,
    ResetSubtasks,
    SetTimer,
    SlotsOffered,
    StartScheduling,
    TaskIo,
    TaskManagerGone,
    TaskReported,
    TaskStateChanged,
    TimerFired,
    VertexProgress,
)
from penstock.model.states import ExecutionState, JobStatus

IDLE_TIMER = "idle-slots"
_EVENT_OF_REPORT = {
    ExecutionState.INITIALIZING: ExecutionEvent.REPORT_INITIALIZING,
    ExecutionState.RUNNING: ExecutionEvent.REPORT_RUNNING,
    ExecutionState.FINISHED: ExecutionEvent.REPORT_FINISHED,
    ExecutionState.CANCELED: ExecutionEvent.REPORT_CANCELED,
    ExecutionState.FAILED: ExecutionEvent.FAIL,
}
_PROGRESS_RANK = {ExecutionState.INITIALIZING: 1, ExecutionState.RUNNING: 2}
_ENDING = frozenset({JobStatus.FAILING, JobStatus.CANCELLING})


class JobMaster:
    """One job from submission to its end. `status` starts as CREATED."""

    def __init__(self, job_graph: JobGraph, settings: JobSettings, now_ms: int) -> None:
        """Raises GraphError: a cycle, or co-location across regions."""
        self.job_graph = job_graph
        self.status = JobStatus.CREATED
        self.execution_graph = ExecutionGraph(job_graph, settings.attempts_history_size)
        self._settings = settings
        self._now_ms = now_ms
        regions = Regions(self.execution_graph)
        is_balanced = settings.load_balance is LoadBalanceMode.TASKS
        share = task_balanced if is_balanced else local_input_preferred
        self.regions = regions.regions
        self._pool = SlotPool(settings.matching, settings.selection, settings.slot_idle_timeout_ms)
        self.shared_slots = SharedSlots(
            share(self.execution_graph), self._pool, are_free_slots_taken=not is_balanced
        )
        self._deployer = Deployer(
            job_graph,
            self.execution_graph,
            self.shared_slots,
            self._pool,
            settings.slot_request_timeout_ms,
            is_local_recovery=settings.is_local_recovery,
        )
        self._scheduling = PipelinedRegionScheduling(self.execution_graph, regions)
        self._failover: FailoverStrategy = RestartRegions(regions)
        if settings.failover is FailoverMode.FULL:
            self._failover = RestartAll(self.execution_graph)
        self._backoff = settings.make_backoff()
        self._restarts = Restarts()
        self._root = RootCause()
        self._story: Story[ExecutionStateChanged | JobStatusChanged] = Story(settings.story_size)
        self._effects: list[JobEffect] = []
        self._alive = len(self.execution_graph.vertices)
        self._declared = 0
        self._is_finalizing = False
        self._idle_timer_ms: int | None = None
        self._gone: set[ResourceId] = set()
        self._shortage: NotEnoughResources | None = None

    # ------------------------------------------------------------------ step

    def step(self, event: JobEvent) -> list[JobEffect]:
        """Take one event; returns the effects to carry out, in order."""
        if not isinstance(event, PartitionDataProduced):
            self._now_ms = event.now_ms
        if not self.status.is_terminal:
            self._take(event)
            self._settle()
        elif isinstance(event, SlotsOffered):
            self._reject_all(event)
        effects, self._effects = self._effects, []
        return effects

    def _take(self, event: JobEvent) -> None:
        match event:
            case StartScheduling():
                self._move_job(JobStatusEvent.START)
                self._allocate(self._scheduling.start())
            case SlotsOffered():
                self._on_offers(event)
            case TaskReported():
                self._on_report(event.report)
            case PartitionDataProduced():
                self._on_data_produced(event)
            case TaskManagerGone():
                self._on_task_manager_gone(event)
            case CancelJob():
                self._on_cancel()
            case FailJob():
                self._on_fail_job(event.failure)
            case JobFinalized():
                if self._is_finalizing:
                    self._end(JobStatusEvent.FINALIZED)
            case NotEnoughResources():
                self._shortage = event
            case TimerFired():
                self._on_timer(event.timer)
            case _:
                assert_never(event)

    def _settle(self) -> None:
        """What follows once the event is digested: restarts, the end, what is declared."""
        if self.status is JobStatus.RESTARTING:
            self._carry_out_restarts()
        if self.status in _ENDING and self._alive == 0:
            self._end(JobStatusEvent.ALL_TASKS_TERMINAL)
        if self.status.is_terminal:
            return
        is_running = self.status is JobStatus.RUNNING and not self._is_finalizing
        if is_running and self.execution_graph.is_finished:
            self._finalize()
        self._deployer.serve(self._move, self._effects.append)
        if self.job_graph.job_type is not JobType.STREAMING:
            self._watch_idle_slots()
        self._declare(self._pool.total_required)

    # ------------------------------------------------------------------ views

    def note_io(self, attempt_id: AttemptId, io: TaskIo) -> None:
        """Counters from a heartbeat; those of past attempts are ignored."""
        vertex = self.execution_graph.current(attempt_id)
        if vertex is not None and not vertex.state.is_terminal:
            vertex.execution.io = io

    def where_tasks_ran(self) -> list[TaskPlace]:
        return places_of(self.execution_graph)

    def progress(self) -> list[VertexProgress]:
        return progress_of(self.execution_graph)

    def story(self, limit: int | None = None) -> list[ExecutionStateChanged | JobStatusChanged]:
        """The newest state changes, oldest first."""
        return self._story.last(limit)

    @property
    def failure(self) -> FailureInfo | None:
        """The root cause of the failure that the job is dealing with, or ended by."""
        return self._root.failure

    def check(self) -> None:
        """Raises BrokenInvariant. For tests, after each step."""
        check_job(self)

    @property
    def pool(self) -> SlotPool:
        return self._pool

    @property
    def deployer(self) -> Deployer:
        return self._deployer

    @property
    def is_any_waiting_for_restart(self) -> bool:
        return self._restarts.is_any_waiting

    # ------------------------------------------------------------------ slots

    def _on_offers(self, event: SlotsOffered) -> None:
        location = event.location
        if location.resource_id in self._gone:
            self._reject_all(event)
            return
        self._pool.register_task_manager(location.resource_id)
        answer = self._pool.offer(
            location,
            event.offers,
            self._now_ms,
            is_any_welcome=self.status is JobStatus.RESTARTING,
        )
        self._effects.append(AnswerOffers(location.resource_id, answer.accepted, answer.rejected))

    def _reject_all(self, event: SlotsOffered) -> None:
        rejected = tuple(offer.allocation_id for offer in event.offers)
        self._effects.append(AnswerOffers(event.location.resource_id, (), rejected))

    def _allocate(self, regions: Iterable[list[ExecutionVertex]]) -> None:
        for vertices in regions:
            self._deployer.allocate(vertices, self._now_ms, self._move, self._effects.append)

    def _declare(self, slots: int) -> None:
        if slots != self._declared:
            self._declared = slots
            job_id = self.job_graph.job_id
            self._effects.append(DeclareRequirements(job_id, slots, self._now_ms))

    def _watch_idle_slots(self) -> None:
        at_ms = self._pool.next_idle_ms()
        if at_ms is not None and at_ms != self._idle_timer_ms:
            self._idle_timer_ms = at_ms
            self._effects.append(SetTimer(IDLE_TIMER, at_ms))

    def _on_timer(self, timer: str) -> None:
        if timer == IDLE_TIMER:
            self._idle_timer_ms = None
            for slot in self._pool.release_idle(self._now_ms):
                self._effects.append(
                    FreeSlot(slot.resource_id, slot.allocation_id, "idle beyond slot.idle.timeout")
                )
            return
        self._restarts.on_timer(timer)
        bulk = self._deployer.on_timer(timer, self._now_ms, self._effects.append)
        if bulk is not None:
            self._on_bulk_timeout(bulk)

    def _on_bulk_timeout(self, bulk: Bulk) -> None:
        held = len(self._pool.slots)
        failure = no_resources(self.job_graph, self._settings, bulk, held, self._shortage)
        waiting = list(bulk.vertices.values())
        for vertex in waiting:
            self._move(vertex, ExecutionEvent.FAIL, failure)
        self._on_task_failure(waiting, failure)

    # ------------------------------------------------------------------ reports

    def _on_report(self, report: TaskStateChanged) -> None:
        vertex = self.execution_graph.current(report.attempt_id)
        if vertex is None or report.state not in _EVENT_OF_REPORT:
            return  # of a past attempt, or of another job
        state = vertex.state
        if state.is_terminal:
            return  # the first word counts
        rank = _PROGRESS_RANK.get(report.state)
        if rank is not None and rank <= _PROGRESS_RANK.get(state, 0):
            return  # said twice: the wire may repeat itself
        if report.io is not None:
            vertex.execution.io = report.io
        is_finishing = report.state is ExecutionState.FINISHED
        if is_finishing and state is not ExecutionState.CANCELING:
            vertex.execution.committables = report.committables
        consequence = self._move(vertex, _EVENT_OF_REPORT[report.state], report.failure)
        self._follow_up(vertex, state, report, consequence)

    def _follow_up(
        self,
        vertex: ExecutionVertex,
        before: ExecutionState,
        report: TaskStateChanged,
        consequence: Consequence,
    ) -> None:
        if consequence is Consequence.FAIL_GLOBALLY:
            self._on_fail_job(unexpected_report(vertex, before, report.state))
        elif consequence is Consequence.FAIL_TASK:
            failure = unexpected_report(vertex, before, report.state)
            self._send_cancel(vertex)
            self._move(vertex, ExecutionEvent.FAIL, failure)
            self._on_task_failure([vertex], failure)
        elif vertex.state is before:
            return
        elif vertex.state is ExecutionState.FINISHED:
            self._allocate(self._scheduling.on_finished(vertex))
        elif vertex.state is ExecutionState.FAILED:
            failure = report.failure or unexpected_report(vertex, before, report.state)
            self._on_task_failure([vertex], failure, failure.lost_partition)
        elif before is not ExecutionState.CANCELING and vertex.state is ExecutionState.CANCELED:
            self._on_task_failure([vertex], canceled_unasked(vertex))
        elif before is ExecutionState.CANCELING and report.state is ExecutionState.FAILED:
            self._on_failure_while_canceling(report.failure)

    def _on_failure_while_canceling(self, failure: FailureInfo | None) -> None:
        """A peer's broken connection may arrive before the user error that broke it."""
        if failure is None or is_infrastructure(failure):
            return
        is_known_secondary = self._root.is_infrastructure
        self._root.note(failure)
        is_default = isinstance(self._backoff, InfrastructureOnlyRestart)
        if self.status is JobStatus.RESTARTING and is_known_secondary and is_default:
            self._fail_job()

    def _on_data_produced(self, event: PartitionDataProduced) -> None:
        vertex = self.execution_graph.current(event.attempt_id)
        partition = self.execution_graph.partitions.get(event.partition_id)
        if vertex is None or partition is None or partition.producer is not vertex:
            return
        partition.mark_produced()

    def _on_task_manager_gone(self, event: TaskManagerGone) -> None:
        self._gone.add(event.resource_id)
        seated = self.shared_slots.lose(self._pool.release_task_manager(event.resource_id))
        victims = {vertex.index: vertex for vertex in seated}
        for vertex in self.execution_graph.vertices:
            location = vertex.execution.location
            if location is None or location.resource_id != event.resource_id:
                continue
            victims[vertex.index] = vertex
            for partition in vertex.partitions:
                partition.is_available = False
        failure = lost_task_manager(event)
        alive = [victims[i] for i in sorted(victims) if not victims[i].state.is_terminal]
        for vertex in alive:
            self._move(vertex, ExecutionEvent.FAIL, failure)
        failed = [vertex for vertex in alive if vertex.state is ExecutionState.FAILED]
        if failed:
            self._on_task_failure(failed, failure)

    # ------------------------------------------------------------------ failures

    def _on_task_failure(
        self,
        failed: list[ExecutionVertex],
        failure: FailureInfo,
        unreadable: PartitionId | None = None,
    ) -> None:
        self._root.note(failure)
        if self.status in _ENDING or self.status.is_terminal:
            return
        if self._may_restart(failure):
            self._begin_restart(self._failover.to_restart(failed, unreadable), is_global=False)
        else:
            self._fail_job()

    def _on_fail_job(self, failure: FailureInfo) -> None:
        if self.status in _ENDING:
            self._root.note(failure)
            return
        self._root.note(failure)
        if self._is_finalizing or not self._may_restart(failure):
            self._fail_job()
            return
        vertices = self.execution_graph.vertices
        started = [v for v in vertices if v.state is not ExecutionState.CREATED]
        self._begin_restart(started, is_global=True)

    def _may_restart(self, failure: FailureInfo) -> bool:
        if not failure.is_recoverable or self.status is JobStatus.CREATED:
            return False
        self._backoff.notify(self._now_ms, failure)
        return self._backoff.can_restart()

    def _begin_restart(self, vertices: list[ExecutionVertex], *, is_global: bool) -> None:
        restart = self._restarts.add(vertices, is_global=is_global)
        self._move_job(JobStatusEvent.RESTARTABLE_FAILURE)
        for vertex in restart.vertices.values():
            self._cancel(vertex)
        at_ms = self._now_ms + self._backoff.delay_ms(self._now_ms)
        self._effects.append(SetTimer(restart.timer, at_ms))

    def _carry_out_restarts(self) -> None:
        ready = self._restarts.take_ready()
        for restart in ready:
            vertices = restart.valid
            if not vertices:
                continue
            for vertex in vertices:
                self._release_partitions(vertex)
                if vertex.state is not ExecutionState.CREATED:
                    vertex.reset()
                    self._alive += 1
            ids = tuple(vertex.vertex_id for vertex in vertices)
            self._effects.append(ResetSubtasks(ids, restart.is_global))
            if not self._restarts.is_any_waiting:
                self._root.clear()
                self._move_job(JobStatusEvent.RESTARTED)
            self._allocate(self._scheduling.restart(vertices))

    def _fail_job(self) -> None:
        self._stop_all(JobStatusEvent.FAIL)

    def _on_cancel(self) -> None:
        if not self._is_finalizing:
            self._stop_all(JobStatusEvent.CANCEL)

    def _stop_all(self, event: JobStatusEvent) -> None:
        self._restarts.clear()
        self._move_job(event)
        for vertex in self.execution_graph.vertices:
            vertex.version += 1
            self._cancel(vertex)

    def _cancel(self, vertex: ExecutionVertex) -> None:
        if vertex.state.is_terminal:
            return
        if self._move(vertex, ExecutionEvent.CANCEL) is Consequence.SEND_CANCEL:
            self._send_cancel(vertex)

    def _send_cancel(self, vertex: ExecutionVertex) -> None:
        location = vertex.execution.location
        if location is not None and location.resource_id not in self._gone:
            attempt_id = vertex.execution.attempt_id
            self._effects.append(CancelTask(location.resource_id, attempt_id))

    # ------------------------------------------------------------------ the end

    def _finalize(self) -> None:
        self._is_finalizing = True
        committables = tuple(
            committable
            for vertex in self.execution_graph.vertices
            for committable in vertex.execution.committables
        )
        self._effects.append(FinalizeJob(committables))

    def _end(self, event: JobStatusEvent) -> None:
        """Give everything back, then say so."""
        for vertex in self.execution_graph.vertices:
            self._release_partitions(vertex)
        following = job_machine.step(self.status, event)
        cause = f"job is {following}"
        for slot in self._pool.clear():
            self._effects.append(FreeSlot(slot.resource_id, slot.allocation_id, cause))
        self._declare(0)
        self._move_job(event)

    def _release_partitions(self, vertex: ExecutionVertex) -> None:
        """Results that outlive their task; the others go with it."""
        location = vertex.execution.location
        kept = tuple(
            (partition.partition_id, vertex.execution.attempt_id)
            for partition in vertex.partitions
            if partition.is_available
            and partition.result_type.is_released_by_scheduler
            and vertex.state is ExecutionState.FINISHED
        )
        if kept and location is not None:
            self._effects.append(ReleasePartitions(location.resource_id, kept))

    # ------------------------------------------------------------------ moves

    def _move_job(self, event: JobStatusEvent) -> None:
        following = job_machine.step(self.status, event)
        if following is self.status:
            return
        self.status = following
        is_failing = following in {JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING}
        changed = JobStatusChanged(
            following, self._now_ms, self._root.failure if is_failing else None
        )
        self._story.add(changed)
        self._effects.append(changed)

    def _move(
        self, vertex: ExecutionVertex, event: ExecutionEvent, failure: FailureInfo | None = None
    ) -> Consequence:
        """Move an attempt by its table, and keep the books of slots and counters."""
        execution = vertex.execution
        old = execution.state
        consequence = execution.apply(event, self._now_ms)
        new = execution.state
        if new is old:
            return consequence
        if old is ExecutionState.SCHEDULED:
            self._deployer.forget(vertex)
        if failure is not None and new is ExecutionState.FAILED:
            execution.failure = failure
        if new.is_terminal:
            self._alive -= 1
            self._restarts.on_terminal(vertex)
            self.shared_slots.leave(vertex, self._now_ms)
            if new is ExecutionState.FINISHED:
                self.execution_graph.mark_finished(vertex)
        cause = failure.kind if failure is not None else ""
        changed = ExecutionStateChanged(execution.attempt_id, old, new, self._now_ms, cause)
        self._story.add(changed)
        self._effects.append(changed)
        return consequence
