"""The master of one job: events in, effects out.

Knows no clock, thread or wire: `step` is told the time. Source: Flink JobMaster, DefaultScheduler,
ExecutionFailureHandler (spec 0, 7, 8.1). Differs: one failure per lost TaskManager, however many
regions it hits; a TaskManager that reports CANCELED unasked counts as lost; CancelJob while results
are being made visible comes too late; FailJob while cancelling changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.machines.deployer import Bulk
from penstock.machines.exception_history import ExceptionHistory
from penstock.machines.execution import Consequence, ExecutionEvent
from penstock.machines.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.machines.failover import FailoverStrategy, RestartAll, RestartRegions
from penstock.machines.failure_handler import FailureHandler
from penstock.machines.failures import (
    canceled_unasked,
    lost_task_manager,
    no_resources,
    unexpected_report,
)
from penstock.machines.job_checks import check_job
from penstock.machines.job_core import JobCore
from penstock.machines.job_settings import FailoverMode, JobSettings
from penstock.machines.job_status import JobStatusEvent
from penstock.machines.job_views import TaskPlace, places_of, progress_of, task_metrics_of
from penstock.machines.partition_release import ReleaseByRegion
from penstock.machines.regions import Regions
from penstock.machines.scheduling import PipelinedRegionScheduling, SchedulingStrategy
from penstock.machines.shared_slots import SharedSlots
from penstock.machines.story import Story
from penstock.machines.vertexwise import VertexwiseScheduling
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.graph.job_graph import JobGraph, JobType
from penstock.model.ids import AttemptId
from penstock.model.messages import (
    CancelJob,
    CheckpointNotStored,
    CheckpointStored,
    FailJob,
    FailureInfo,
    FinalizeJob,
    FreeSlot,
    JobEffect,
    JobEvent,
    JobFinalized,
    NotEnoughResources,
    PartitionDataProduced,
    SetTimer,
    SlotFreed,
    SlotsOffered,
    StartScheduling,
    SuspendJob,
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


class JobMaster:
    """One job from submission to its end. `status` starts as CREATED."""

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        now_ms: int,
        completed: Sequence[CompletedCheckpoint] = (),
    ) -> None:
        """`completed`: the checkpoints, oldest first, to go on from: of an earlier driver, or a savepoint.

        Raises: GraphError: a cycle, or co-location across regions. ConfigurationError: the program does not
        fit the last checkpoint.
        """
        self._core = core = JobCore(job_graph, settings, now_ms, completed)
        self._settings = settings
        regions = Regions(core.graph)
        self.regions = regions.regions
        if settings.is_released_during_job:
            core.partition_release = ReleaseByRegion(core.graph, regions)
        self._scheduling = _scheduling_of(core.graph, regions, job_graph.job_type, settings)
        failover: FailoverStrategy = RestartRegions(regions)
        if settings.failover is FailoverMode.FULL:
            failover = RestartAll(core.graph)
        self._failures = FailureHandler(
            core,
            self._scheduling,
            failover,
            settings.make_backoff(),
            settings.exception_history_size,
        )
        self._is_finalizing = False
        self._idle_timer_ms: int | None = None
        self._shortage: NotEnoughResources | None = None

    # ------------------------------------------------------------------ step

    def step(self, event: JobEvent) -> list[JobEffect]:
        """Take one event; returns the effects to carry out, in order."""
        self._core.event = type(event).__name__
        if not isinstance(event, PartitionDataProduced | SlotFreed):
            self._core.now_ms = event.now_ms
        if not self._core.status.is_terminal:
            self._take(event)
            self._settle()
        elif isinstance(event, SlotsOffered):
            self._core.reject_offers(event)
        elif isinstance(event, CheckpointStored | CheckpointNotStored):
            self._core.checkpoints.take_after_end(event, self._core.status)
        return self._core.take_effects()

    def _take(self, event: JobEvent) -> None:
        match event:
            case StartScheduling():
                self._core.move_job(JobStatusEvent.START)
                self._core.checkpoints.restore_coordinators()
                self._core.allocate(self._scheduling.start())
            case SlotsOffered():
                self._core.take_offers(event)
            case SlotFreed():
                self._on_slot_freed(event)
            case TaskReported():
                self._on_report(event.report)
            case PartitionDataProduced():
                self._on_data_produced(event)
            case TaskManagerGone():
                self._on_task_manager_gone(event)
            case CancelJob() | SuspendJob():
                self._on_stop(event)
            case FailJob():
                self._on_fail_job(event.failure)
            case JobFinalized():
                self._on_finalized()
            case NotEnoughResources():
                self._shortage = event
            case TimerFired():
                self._on_timer(event.timer)
            case _:
                self._core.checkpoints.take(event)

    def _settle(self) -> None:
        """What follows once the event is digested: restarts, the end, what is declared."""
        checkpoints = self._core.checkpoints
        failure = checkpoints.settle(self._core.status, self._core.now_ms)
        if failure is not None:
            self._failures.on_global_failure(failure)
        self._failures.settle()
        if self._failures.is_ending and self._core.alive == 0:
            self._core.end(JobStatusEvent.ALL_TASKS_TERMINAL)
        checkpoints.follow(self._core.status, self._core.now_ms)
        if self._core.status.is_terminal:
            return
        is_running = self._core.status is JobStatus.RUNNING and not self._is_finalizing
        if is_running and self._core.graph.is_finished:
            self._finalize()
        self._core.serve()
        if self._core.job_graph.job_type is not JobType.STREAMING:
            self._watch_idle_slots()
        self._core.declare()

    # ------------------------------------------------------------------ views

    def note_io(self, attempt_id: AttemptId, io: TaskIo) -> None:
        """Counters from a heartbeat; those of past attempts are ignored."""
        vertex = self._core.graph.current(attempt_id)
        if vertex is not None and not vertex.state.is_terminal:
            vertex.execution.io = io

    def producer_state(self, attempt_id: AttemptId) -> ExecutionState | None:
        """Of an attempt whose partition somebody misses; None for attempts of the past and strangers."""
        vertex = self._core.graph.current(attempt_id)
        return None if vertex is None else vertex.state

    def where_tasks_ran(self) -> list[TaskPlace]:
        return places_of(self._core.graph)

    def progress(self) -> list[VertexProgress]:
        return progress_of(self._core.graph)

    def task_metrics(self) -> list[tuple[str, int, TaskIo]]:
        """(vertex name, subtask, what it reported last) of the current attempts."""
        return task_metrics_of(self._core.graph)

    @property
    def story(self) -> Story:
        """The newest state changes, oldest first, each with the event that it came of."""
        return self._core.story

    @property
    def exceptions(self) -> ExceptionHistory:
        """The failures so far, with what failed beside each."""
        return self._failures.history

    @property
    def checkpoints(self) -> JobCheckpoints:
        """For looking only."""
        return self._core.checkpoints

    @property
    def status(self) -> JobStatus:
        return self._core.status

    @property
    def job_graph(self) -> JobGraph:
        return self._core.job_graph

    @property
    def execution_graph(self) -> ExecutionGraph:
        return self._core.graph

    @property
    def shared_slots(self) -> SharedSlots:
        return self._core.shared_slots

    @property
    def slots_required(self) -> int:
        """How many slots the job asks for now, those that it holds included."""
        return self._core.pool.total_required

    @property
    def failure(self) -> FailureInfo | None:
        """The root cause of the failure that the job is dealing with, or ended by."""
        return self._core.root.failure

    def check(self) -> None:
        """Raises BrokenInvariant. For tests, after each step."""
        check_job(self._core)

    # ------------------------------------------------------------------ slots

    def _watch_idle_slots(self) -> None:
        at_ms = self._core.pool.next_idle_ms()
        if at_ms is not None and at_ms != self._idle_timer_ms:
            self._idle_timer_ms = at_ms
            self._core.effects.append(SetTimer(IDLE_TIMER, at_ms))

    def _on_timer(self, timer: str) -> None:
        if timer == IDLE_TIMER:
            self._idle_timer_ms = None
            kept = self._core.places_of_results()
            for slot in self._core.pool.release_idle(self._core.now_ms, kept):
                self._core.effects.append(
                    FreeSlot(slot.resource_id, slot.allocation_id, "idle beyond slot.idle.timeout")
                )
            return
        self._core.checkpoints.on_timer(timer, self._core.now_ms)
        self._core.restarts.on_timer(timer)
        bulk = self._core.deployer.on_timer(timer, self._core.now_ms, self._core.effects.append)
        if bulk is not None:
            self._on_bulk_timeout(bulk)

    def _on_bulk_timeout(self, bulk: Bulk) -> None:
        held = len(self._core.pool.slots)
        failure = no_resources(self._core.job_graph, self._settings, bulk, held, self._shortage)
        waiting = list(bulk.vertices.values())
        for vertex in waiting:
            self._core.move(vertex, ExecutionEvent.FAIL, failure)
        self._failures.on_task_failure(waiting, failure)

    def _on_slot_freed(self, event: SlotFreed) -> None:
        """A TaskManager frees a slot when it is told to; by itself, when our answer to its offer came too late."""
        victims = self._core.lose_slot(event.allocation_id)
        failed = [vertex for vertex in victims if vertex.state is ExecutionState.FAILED]
        if failed:
            failure = failed[0].execution.failure
            assert failure is not None
            self._failures.on_task_failure(failed, failure)

    # ------------------------------------------------------------------ reports

    def _on_report(self, report: TaskStateChanged) -> None:
        vertex = self._core.graph.current(report.attempt_id)
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
        consequence = self._core.move(vertex, _EVENT_OF_REPORT[report.state], report.failure)
        self._follow_up(vertex, state, report, consequence)

    def _follow_up(
        self,
        vertex: ExecutionVertex,
        before: ExecutionState,
        report: TaskStateChanged,
        consequence: Consequence,
    ) -> None:
        if consequence is Consequence.FAIL_GLOBALLY:
            self._failures.on_global_failure(unexpected_report(vertex, before, report.state))
        elif consequence is Consequence.FAIL_TASK:
            failure = unexpected_report(vertex, before, report.state)
            self._core.send_cancel(vertex)
            self._core.move(vertex, ExecutionEvent.FAIL, failure)
            self._failures.on_task_failure([vertex], failure)
        elif vertex.state is before:
            return
        elif vertex.state is ExecutionState.FINISHED:
            self._core.release_unread(vertex)
            self._core.allocate(self._scheduling.on_finished(vertex))
        elif vertex.state is ExecutionState.FAILED:
            failure = report.failure or unexpected_report(vertex, before, report.state)
            self._failures.on_failed(vertex, failure)
        elif before is not ExecutionState.CANCELING and vertex.state is ExecutionState.CANCELED:
            self._failures.on_task_failure([vertex], canceled_unasked(vertex))
        elif before is ExecutionState.CANCELING and report.state is ExecutionState.FAILED:
            self._failures.on_failure_while_canceling(vertex, report.failure)

    def _on_data_produced(self, event: PartitionDataProduced) -> None:
        vertex = self._core.graph.current(event.attempt_id)
        partition = self._core.graph.partitions.get(event.partition_id)
        if vertex is None or partition is None or partition.producer is not vertex:
            return
        partition.mark_produced()
        self._core.deployer.tell_readers(vertex, self._core.effects.append)

    def _on_task_manager_gone(self, event: TaskManagerGone) -> None:
        failure = lost_task_manager(event)
        alive = self._core.lose_task_manager(event.resource_id, failure)
        failed = [vertex for vertex in alive if vertex.state is ExecutionState.FAILED]
        if failed:
            self._failures.on_task_failure(failed, failure)
        elif alive and self._core.root.failure is not None:
            self._core.root.note(failure)  # it explains the broken connections heard of before

    # ------------------------------------------------------------------ the end

    def _on_fail_job(self, failure: FailureInfo) -> None:
        if self._is_finalizing:  # some results may be visible already
            self._core.root.note(failure)
            self._core.stop_all(JobStatusEvent.FAIL)
        else:
            self._failures.on_global_failure(failure)

    def _on_stop(self, event: CancelJob | SuspendJob) -> None:
        if isinstance(event, SuspendJob):
            self._core.suspend()
        elif not self._is_finalizing:
            self._core.stop_all(JobStatusEvent.CANCEL)

    def _on_finalized(self) -> None:
        if self._is_finalizing:
            self._core.end(JobStatusEvent.FINALIZED)

    def _finalize(self) -> None:
        self._is_finalizing = True
        committables = tuple(
            committable
            for vertex in self._core.graph.vertices
            for committable in vertex.execution.committables
        )
        self._core.effects.append(FinalizeJob(committables))


def _scheduling_of(
    graph: ExecutionGraph, regions: Regions, job_type: JobType, settings: JobSettings
) -> SchedulingStrategy:
    if job_type is JobType.BATCH and settings.is_vertexwise:
        return VertexwiseScheduling(graph, settings.consume_constraint)
    return PipelinedRegionScheduling(graph, regions)
