"""Handles the reports of tasks: the next regions are scheduled, or a failure is dealt with.

The first report of an attempt's end counts. Repeated reports, and reports of past attempts, change
nothing. Source: Flink SchedulerBase.updateTaskExecutionState, DefaultScheduler.
"""

from __future__ import annotations

from penstock.engine.machines.execution.execution import Consequence, ExecutionEvent
from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.job.failure_handler import FailureHandler
from penstock.engine.machines.job.job_state import JobState, JobTransitions
from penstock.engine.machines.job_state.failures import canceled_unasked, unexpected_report
from penstock.engine.machines.scheduling.scheduling import SchedulingStrategy
from penstock.engine.model.messages import (
    PartitionDataProduced,
    TaskIoReported,
    TaskReported,
    TaskStateChanged,
)
from penstock.engine.model.states import ExecutionState

_EVENT_OF_REPORT = {
    ExecutionState.INITIALIZING: ExecutionEvent.REPORT_INITIALIZING,
    ExecutionState.RUNNING: ExecutionEvent.REPORT_RUNNING,
    ExecutionState.FINISHED: ExecutionEvent.REPORT_FINISHED,
    ExecutionState.CANCELED: ExecutionEvent.REPORT_CANCELED,
    ExecutionState.FAILED: ExecutionEvent.FAIL,
}
_PROGRESS_RANK = {ExecutionState.INITIALIZING: 1, ExecutionState.RUNNING: 2}


class TaskReports:
    """Takes reports, one at a time."""

    def __init__(
        self,
        state: JobState,
        transitions: JobTransitions,
        failures: FailureHandler,
        scheduling: SchedulingStrategy,
    ) -> None:
        self._graph = state.graph
        self._attempts = state.attempts
        self._results = state.results
        self._transitions = transitions
        self._failures = failures
        self._scheduling = scheduling

    def take(self, event: TaskReported | TaskIoReported | PartitionDataProduced) -> None:
        if isinstance(event, TaskReported):
            self._on_report(event.report)
        elif isinstance(event, TaskIoReported):
            self._on_io(event)
        else:
            self._on_data_produced(event)

    def _on_report(self, report: TaskStateChanged) -> None:
        vertex = self._graph.current(report.attempt_id)
        if vertex is None or report.state not in _EVENT_OF_REPORT:
            return  # A past attempt, or one of another job.
        state = vertex.state
        if state.is_terminal:
            return  # The first report of an end counts.
        rank = _PROGRESS_RANK.get(report.state)
        if rank is not None and rank <= _PROGRESS_RANK.get(state, 0):
            return  # A repeated message; the wire may repeat messages.
        if report.io is not None:
            vertex.execution.io = report.io
        is_finishing = report.state is ExecutionState.FINISHED
        if is_finishing and state is not ExecutionState.CANCELING:
            vertex.execution.committables = report.committables
            vertex.execution.final_state = report.final_state
        consequence = self._attempts.move(vertex, _EVENT_OF_REPORT[report.state], report.failure)
        self._follow_up(vertex, state, report, consequence)

    def _on_io(self, event: TaskIoReported) -> None:
        """Note counters. Those of past attempts are ignored."""
        for attempt_id, io in event.ios:
            vertex = self._graph.current(attempt_id)
            if vertex is not None and not vertex.state.is_terminal:
                vertex.execution.io = io

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

    def _on_data_produced(self, event: PartitionDataProduced) -> None:
        vertex = self._graph.current(event.attempt_id)
        partition = self._graph.partitions.get(event.partition_id)
        if vertex is None or partition is None or partition.producer is not vertex:
            return
        partition.mark_produced()
        self._attempts.tell_readers(vertex)
