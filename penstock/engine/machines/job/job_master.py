"""The master of one job: events in, effects out.

Knows no clock, thread or wire: `step` gets the time. Source: Flink JobMaster, DefaultScheduler,
ExecutionFailureHandler (docs/spec/scheduling.md#one-round,
docs/spec/execution-graph.md#states-of-a-job, docs/spec/failover.md#from-failure-to-restart).
Differs: one failure per lost TaskManager, however many regions it affects. A TaskManager that
reports CANCELED without being asked counts as lost. CancelJob is ignored while results are being
made visible; FailJob is ignored while the job is cancelling.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.machines.checkpoints.restore import adopt_max_parallelism
from penstock.engine.machines.execution.execution import Consequence, ExecutionEvent
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.execution.regions import Regions, ReleaseByRegion
from penstock.engine.machines.failover import RestartAll, RestartRegions, grows_for_memory
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.machines.job.failure_handler import FailureHandler
from penstock.engine.machines.job.handed_over import HandedOver, adopt_attempts
from penstock.engine.machines.job.handover_changes import GenerationChange, HandoverChanges
from penstock.engine.machines.job.job_state import JobState, JobTransitions, job_state_of
from penstock.engine.machines.job.job_views import (
    SeatsView,
    SubtaskView,
    TaskPlace,
    places_of,
    seats_of,
    subtasks_of,
)
from penstock.engine.machines.job_state.failures import (
    canceled_unasked,
    lost_task_manager,
    no_resources,
    unexpected_report,
)
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.machines.scheduling.bulks import Bulk
from penstock.engine.machines.scheduling.scheduling import (
    PipelinedRegionScheduling,
    SchedulingStrategy,
    VertexwiseScheduling,
)
from penstock.engine.machines.story import Story
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CompletedCheckpoint
from penstock.engine.model.graph.job_graph import JobGraph, JobType
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.options.scheduling import FailoverMode
from penstock.engine.model.states import ExecutionState, JobStatus

IDLE_TIMER = "idle-slots"


class JobMaster:
    """One job from submission to its end, or one generation of it. `status` starts as CREATED. `state`: read only."""

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        now_ms: int,
        completed: Sequence[CompletedCheckpoint] = (),
        left: HandedOver | None = None,
        *,
        leaves_restarts: bool = False,
    ) -> None:
        """`completed`: checkpoints to continue from, oldest first: of an earlier driver, or a savepoint. `left`: by the generation of this
        job before; None: this is the first one. `leaves_restarts`: see `HandoverChanges.leave_restarts`.

        Raises: GraphError: a cycle, or co-location across regions. ConfigurationError: the program does not fit the last checkpoint.
        """
        if completed:
            adopt_max_parallelism(job_graph, completed[-1])
        first_attempt = 0 if left is None else left.first_attempt
        graph = ExecutionGraph(job_graph, settings.attempts_history_size, first_attempt)
        regions = Regions(graph)
        scheduling = _scheduling_of(graph, regions, settings)
        is_full = settings.failover is FailoverMode.FULL
        failover = RestartAll(graph) if is_full else RestartRegions(regions)
        is_released = settings.is_released_during_job
        release = ReleaseByRegion(graph, regions) if is_released else None
        self.state = state = job_state_of(graph, settings, now_ms, completed, release, left)
        if left is not None:
            adopt_attempts(graph, left)
            state.attempts.alive = sum(not one.state.is_terminal for one in graph.vertices)
        self.graph = graph
        self._event_log = state.event_log
        self._lifecycle = state.lifecycle
        self._attempts = state.attempts
        self._slots = state.slots
        self.checkpoints = state.checkpoints
        self._transitions = JobTransitions(state)
        self.settings = settings
        self.regions = regions.regions
        self._failures = FailureHandler(
            state,
            self._transitions,
            scheduling,
            failover,
            settings.make_backoff() if left is None else left.backoff,
            ExceptionHistory(settings.exception_history_size) if left is None else left.history,
            is_replaced_at_restart=leaves_restarts,
        )
        self._reports = TaskReports(state, self._transitions, self._failures, scheduling)
        self.handover_view = HandoverChanges(state, self._transitions, self._failures, scheduling)
        self._is_finalizing = False
        self._idle_timer_ms: int | None = None
        self._shortage: messages.NotEnoughResources | None = None

    # ------------------------------------------------------------------ step

    def step(self, event: messages.JobEvent | GenerationChange) -> list[messages.JobEffect]:
        """Take one event; returns the effects to carry out, in order."""
        name = event.name if isinstance(event, GenerationChange) else event
        # Some have no time: they belong to that of the event before.
        self._event_log.begin(name, getattr(event, "now_ms", self._event_log.now_ms))
        with self.story:
            self._step(event)
        return self._event_log.take()

    def _step(self, event: messages.JobEvent | GenerationChange) -> None:
        if isinstance(event, GenerationChange):
            event.make(self.handover_view)
            self._settle()
        elif not self._lifecycle.status.is_terminal:
            self._take(event)
            self._settle()
        elif isinstance(event, messages.SlotsOffered):
            self._slots.reject_offers(event)
        elif isinstance(event, messages.CheckpointStored | messages.CheckpointNotStored):
            self.checkpoints.take_after_end(event, self._lifecycle.status)

    def _take(self, event: messages.JobEvent) -> None:
        match event:
            case messages.StartScheduling():
                self.handover_view.start()
            case messages.SlotsOffered():
                self._slots.take_offers(event, is_any_welcome=self._lifecycle.is_restarting)
            case messages.SlotFreed():
                self._on_slot_freed(event)
            case messages.TaskReported() | messages.PartitionDataProduced():
                self._reports.take(event)
            case messages.TaskManagerGone():
                self._on_task_manager_gone(event)
            case messages.CancelJob() | messages.SuspendJob():
                self._on_stop(event)
            case messages.FailJob():
                self._on_fail_job(event.failure)
            case messages.JobFinalized():
                self._on_finalized()
            case messages.RescaleJob() | messages.TaskManagersLeaving():
                """Its graph never changes: `engine/machines/generations` takes these events."""
            case messages.NotEnoughResources():
                self._shortage = event
            case messages.TimerFired():
                self._on_timer(event.timer)
            case _:
                self.checkpoints.take(event)

    def _settle(self) -> None:
        """Do what follows from the event: restarts, the end of the job, new requirements."""
        checkpoints = self.checkpoints
        failure = checkpoints.settle(self._lifecycle.status, self._event_log.now_ms)
        if failure is not None:
            self._failures.on_global_failure(failure)
        if checkpoints.handover.is_complete:
            self._lifecycle.has_handed_over = True
        self._failures.settle()
        if self._failures.is_ending and self._attempts.alive == 0:
            self._transitions.end(JobStatusEvent.ALL_TASKS_TERMINAL)
        checkpoints.follow(self._lifecycle.status, self._event_log.now_ms)
        if self._lifecycle.status.is_terminal:
            return
        is_running = self._lifecycle.status is JobStatus.RUNNING and not self._is_finalizing
        if is_running and self.graph.is_finished and not self._lifecycle.has_handed_over:
            self._finalize()
        self.state.deployer.serve()
        if self.graph.job_graph.job_type is not JobType.STREAMING:
            self._watch_idle_slots()
        self._slots.declare()

    # ------------------------------------------------------------------ views

    def producer_state(self, attempt_id: AttemptId) -> ExecutionState | None:
        """Return the state of an attempt whose partition a consumer misses; None: a past or unknown attempt."""
        vertex = self.graph.current(attempt_id)
        return None if vertex is None else vertex.state

    def subtasks(self) -> list[SubtaskView]:
        """Return all subtasks as the program defines them, by index."""
        return subtasks_of(self.graph, self.regions)

    def seats(self) -> list[SeatsView]:
        """Return which subtasks sit in which slot now."""
        return seats_of(self._slots.shared_slots)

    def sharing_groups(self) -> list[list[int]]:
        """Return which subtasks are to share a slot, by index."""
        groups = self._slots.shared_slots.groups
        return [[vertex.index for vertex in group.vertices] for group in groups]

    def where_tasks_ran(self) -> list[TaskPlace]:
        return places_of(self.graph)

    @property
    def kept_checkpoint(self) -> str | None:
        coordinator = self.checkpoints.coordinator
        kept = None if coordinator is None else coordinator.store.kept
        return None if kept is None else kept.location

    @property
    def story(self) -> Story:
        """The newest state changes, oldest first, each with the event that caused it."""
        return self._event_log.story

    @property
    def exceptions(self) -> ExceptionHistory:
        """The failures so far, each with the failures that came with it."""
        return self._failures.history

    @property
    def status(self) -> JobStatus:
        return self._lifecycle.status

    @property
    def job_graph(self) -> JobGraph:
        return self.graph.job_graph

    @property
    def failure(self) -> messages.FailureInfo | None:
        """The root cause of the failure that the job is dealing with, or that ended it."""
        return self._lifecycle.root.failure

    # ------------------------------------------------------------------ slots

    def _watch_idle_slots(self) -> None:
        at_ms = self._slots.pool.next_idle_ms()
        if at_ms is not None and at_ms != self._idle_timer_ms:
            self._idle_timer_ms = at_ms
            self._event_log.emit(messages.SetTimer(IDLE_TIMER, at_ms))

    def _on_timer(self, timer: str) -> None:
        if timer == IDLE_TIMER:
            self._idle_timer_ms = None
            self._slots.release_idle(self.state.results.places())
            return
        self.checkpoints.on_timer(timer, self._event_log.now_ms)
        self.state.restarts.on_timer(timer)
        self._failures.on_timer(timer)
        bulk = self.state.deployer.on_timer(timer)
        if bulk is not None:
            self._on_bulk_timeout(bulk)

    def _on_bulk_timeout(self, bulk: Bulk) -> None:
        held = len(self._slots.pool.slots)
        failure = no_resources(self.graph.job_graph, self.settings, bulk, held, self._shortage)
        waiting = list(bulk.vertices.values())
        self._attempts.fail(waiting, failure)
        self._failures.on_task_failure(waiting, failure)

    def _on_slot_freed(self, event: messages.SlotFreed) -> None:
        """A TaskManager has freed a slot: on request, or because our answer to its offer came too late."""
        victims = self._slots.lose_slot(event.allocation_id)
        failed = [vertex for vertex in victims if vertex.state is ExecutionState.FAILED]
        if failed:
            failure = failed[0].execution.failure
            assert failure is not None
            self._failures.on_task_failure(failed, failure)

    # ------------------------------------------------------------------ losses

    def _on_task_manager_gone(self, event: messages.TaskManagerGone) -> None:
        failure = lost_task_manager(event)
        alive = self._slots.lose_task_manager(event.resource_id, failure)
        failed = [vertex for vertex in alive if vertex.state is ExecutionState.FAILED]
        if event.for_memory and grows_for_memory(self._failures.backoff):
            failed = alive  # Also if its peers were first and it restarts already: it has to wait.
        if failed:
            self._failures.on_task_failure(failed, failure)
        elif alive and self._lifecycle.root.failure is not None:
            # The loss explains broken connections that were reported before.
            self._lifecycle.root.note(failure)

    # ------------------------------------------------------------------ the end

    def _on_fail_job(self, failure: messages.FailureInfo) -> None:
        if self._is_finalizing:  # Some results may be visible already.
            self._lifecycle.root.note(failure)
            self._transitions.stop_all(JobStatusEvent.FAIL)
        else:
            self._failures.on_global_failure(failure)

    def _on_stop(self, event: messages.CancelJob | messages.SuspendJob) -> None:
        if isinstance(event, messages.SuspendJob):
            self._transitions.suspend()
        elif not self._is_finalizing:
            self._transitions.stop_all(JobStatusEvent.CANCEL)

    def _on_finalized(self) -> None:
        if self._is_finalizing:
            self._transitions.end(JobStatusEvent.FINALIZED)

    def _finalize(self) -> None:
        self._is_finalizing = True
        committables = tuple(
            committable
            for vertex in self.graph.vertices
            for committable in vertex.execution.committables
        )
        self._event_log.emit(messages.FinalizeJob(committables))


def _scheduling_of(
    graph: ExecutionGraph, regions: Regions, settings: JobSettings
) -> SchedulingStrategy:
    if graph.job_graph.job_type is JobType.BATCH and settings.is_vertexwise:
        return VertexwiseScheduling(graph, settings.consume_constraint)
    return PipelinedRegionScheduling(graph, regions)


_EVENT_OF_REPORT = {
    ExecutionState.INITIALIZING: ExecutionEvent.REPORT_INITIALIZING,
    ExecutionState.RUNNING: ExecutionEvent.REPORT_RUNNING,
    ExecutionState.FINISHED: ExecutionEvent.REPORT_FINISHED,
    ExecutionState.CANCELED: ExecutionEvent.REPORT_CANCELED,
    ExecutionState.FAILED: ExecutionEvent.FAIL,
}
_PROGRESS_RANK = {ExecutionState.INITIALIZING: 1, ExecutionState.RUNNING: 2}


class TaskReports:
    """Handles the reports of tasks: the next regions are scheduled, or a failure is dealt with.

    The first report of an attempt's end counts. Repeated reports, and reports of past attempts, change
    nothing. Source: Flink SchedulerBase.updateTaskExecutionState, DefaultScheduler.

    Takes reports, one at a time.
    """

    def __init__(
        self,
        state: JobState,
        transitions: JobTransitions,
        failures: FailureHandler,
        scheduling: SchedulingStrategy,
    ) -> None:
        self.graph = state.graph
        self._attempts = state.attempts
        self._results = state.results
        self._transitions = transitions
        self._failures = failures
        self._scheduling = scheduling

    def take(self, event: messages.TaskReported | messages.PartitionDataProduced) -> None:
        if isinstance(event, messages.TaskReported):
            self._on_report(event.report)
        else:
            self._on_data_produced(event)

    def _on_report(self, report: messages.TaskStateChanged) -> None:
        vertex = self.graph.current(report.attempt_id)
        if vertex is None or report.state not in _EVENT_OF_REPORT:
            return  # A past attempt, or one of another job.
        state = vertex.state
        if state.is_terminal:
            return  # The first report of an end counts.
        rank = _PROGRESS_RANK.get(report.state)
        if rank is not None and rank <= _PROGRESS_RANK.get(state, 0):
            return  # A repeated message; the wire may repeat messages.
        is_finishing = report.state is ExecutionState.FINISHED
        if is_finishing and state is not ExecutionState.CANCELING:
            vertex.execution.committables = report.committables
            vertex.execution.final_state = report.final_state
        consequence = self._attempts.move(vertex, _EVENT_OF_REPORT[report.state], report.failure)
        self._follow_up(vertex, state, report, consequence)

    def _follow_up(
        self,
        vertex: ExecutionVertex,
        before: ExecutionState,
        report: messages.TaskStateChanged,
        consequence: Consequence,
    ) -> None:
        if consequence is Consequence.FAIL_GLOBALLY:
            self._failures.on_global_failure(unexpected_report(vertex, before, report.state))
        elif consequence is Consequence.FAIL_TASK:
            failure = unexpected_report(vertex, before, report.state)
            self._attempts.send_cancel(vertex)
            self._attempts.move(vertex, ExecutionEvent.FAIL, failure)
            self._failures.on_task_failure([vertex], failure)
        elif vertex.state is before:
            return
        elif vertex.state is ExecutionState.FINISHED:
            self._results.on_finished(vertex)
            self._transitions.allocate(self._scheduling.on_finished(vertex))
        elif vertex.state is ExecutionState.FAILED:
            failure = report.failure or unexpected_report(vertex, before, report.state)
            self._failures.on_failed(vertex, failure)
        elif before is not ExecutionState.CANCELING and vertex.state is ExecutionState.CANCELED:
            self._failures.on_task_failure([vertex], canceled_unasked(vertex))
        elif before is ExecutionState.CANCELING and report.state is ExecutionState.FAILED:
            self._failures.on_failure_while_canceling(vertex, report.failure)

    def _on_data_produced(self, event: messages.PartitionDataProduced) -> None:
        vertex = self.graph.current(event.attempt_id)
        partition = self.graph.partitions.get(event.partition_id)
        if vertex is None or partition is None or partition.producer is not vertex:
            return
        partition.mark_produced()
        self._attempts.update_consumers(vertex)
