"""Gives slow subtasks a second attempt on another node. The first attempt to finish wins, the others are cancelled.

Only for vertices without inputs and outputs, whose results nobody sees before they are committed, and for jobs that take no
checkpoints. Source: Flink SpeculativeScheduler (docs/spec/elasticity.md#second-attempts); differs: Flink does this in BATCH jobs,
which run on Spark here. Without room for a second attempt none is asked for during a minute.
"""

from __future__ import annotations

from typing import Final

from penstock.machines.books.failures import canceled_unasked, lost_slot
from penstock.machines.books.rivals import Rival
from penstock.machines.execution.execution import Consequence, ExecutionEvent
from penstock.machines.execution.execution_graph import (
    Execution,
    ExecutionJobVertex,
    ExecutionVertex,
)
from penstock.machines.execution.slow_tasks import ExecutionTime, SpeculationSettings, find_slow
from penstock.machines.job.books import JobBooks
from penstock.machines.job.failure_handler import FailureHandler
from penstock.machines.resources.blocklist import BlockedNode
from penstock.model.ids import AllocationId, AttemptId, ResourceId
from penstock.model.messages import (
    BlockNodes,
    FailureInfo,
    NotEnoughResources,
    SetTimer,
    SlowSubtasks,
    TaskStateChanged,
)
from penstock.model.states import ExecutionState, JobStatus

SLOW_TASKS_TIMER: Final = "slow-tasks"
_LEAST_PAUSE_MS: Final = 60_000
_TIMED: Final = frozenset({
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
})
_EARLIER: Final = {
    ExecutionEvent.REPORT_INITIALIZING: ExecutionState.DEPLOYING,
    ExecutionEvent.REPORT_RUNNING: ExecutionState.INITIALIZING,
}


class Speculation:
    """Of one job. Without settings no subtask has a second attempt."""

    def __init__(
        self, books: JobBooks, failures: FailureHandler, settings: SpeculationSettings | None
    ) -> None:
        self._books = books
        self._failures = failures
        self._rivals = books.attempts.rivals
        self._settings = settings or SpeculationSettings()
        self._vertices = [
            one
            for one in books.graph.job_vertices
            if one.job_vertex.vertex_id in self._settings.vertices
        ]
        self._is_watching = False
        self._paused_until_ms = 0
        self._slow_told: int | None = None

    # ------------------------------------------------------------------ checks

    def settle(self) -> None:
        """Called after each event, before slots are given to those that wait for one."""
        journal = self._books.journal
        if self._vertices and not self._is_watching and self._is_running:
            self._is_watching = True
            self._tell(self._slow_told or 0)
            interval_ms = self._settings.check_interval_ms
            journal.emit(SetTimer(SLOW_TASKS_TIMER, journal.now_ms + interval_ms))
        self._books.slots.leave_blocked()

    def on_timer(self, timer: str) -> None:
        if timer != SLOW_TASKS_TIMER:
            return
        self._is_watching = False
        self._rivals.blocklist.remove_ended(self._books.journal.now_ms)
        if self._is_running:
            self._check()

    @property
    def _is_running(self) -> bool:
        return self._books.life.status is JobStatus.RUNNING

    def _check(self) -> None:
        now_ms = self._books.journal.now_ms
        slow: dict[AttemptId, ExecutionVertex] = {}
        for job_vertex in self._vertices:
            if not job_vertex.is_finished:
                slow.update(self._slow_of(job_vertex, now_ms))
        self._tell(len({vertex.index for vertex in slow.values()}))
        self._block([
            execution
            for vertex in slow.values()
            for execution in self._attempts_of(vertex)
            if execution.attempt_id in slow
        ])
        if now_ms < self._paused_until_ms:
            return
        for vertex in slow.values():
            for _ in range(self._settings.most_attempts - len(self._attempts_of(vertex))):
                self._rivals.start(vertex)

    def _tell(self, slow: int) -> None:
        if slow != self._slow_told:
            self._slow_told = slow
            self._books.journal.emit(SlowSubtasks(slow))

    def _slow_of(
        self, job_vertex: ExecutionJobVertex, now_ms: int
    ) -> dict[AttemptId, ExecutionVertex]:
        finished: list[ExecutionTime] = []
        running: dict[AttemptId, ExecutionTime] = {}
        owners: dict[AttemptId, ExecutionVertex] = {}
        for vertex in job_vertex.vertices:
            if vertex.state is ExecutionState.FINISHED:
                finished.append(_time_of(vertex.execution, now_ms))
                continue
            for execution in self._attempts_of(vertex):
                if execution.state in _TIMED:
                    running[execution.attempt_id] = _time_of(execution, now_ms)
                    owners[execution.attempt_id] = vertex
        found = find_slow(len(job_vertex.vertices), finished, running, self._settings.slow)
        return {attempt_id: owners[attempt_id] for attempt_id in found}

    def _attempts_of(self, vertex: ExecutionVertex) -> list[Execution]:
        return [vertex.execution, *(one.execution for one in self._rivals.of(vertex))]

    def _block(self, slow: list[Execution]) -> None:
        now_ms, until_ms = self._books.journal.now_ms, self._settings.block_ms
        nodes = [one.location.host for one in slow if one.location is not None]
        if not nodes or not until_ms:
            return
        until_ms += now_ms
        cause = "a subtask is slow"
        blocked = (BlockedNode(node, cause, until_ms) for node in dict.fromkeys(nodes))
        changed = tuple(one.node for one in self._rivals.blocklist.add(blocked))
        if changed:
            self._books.journal.emit(BlockNodes(changed, until_ms, cause, now_ms))

    # ------------------------------------------------------------------ what becomes of them

    def take(self, report: TaskStateChanged, event: ExecutionEvent) -> ExecutionVertex | None:
        """Take a report of an attempt that is not its vertex's own. Returns: the vertex that has finished by it."""
        if report.state.is_terminal:
            self._rivals.ended(report.attempt_id)
        rival = self._rivals.find(report.attempt_id)
        if rival is None:
            return None
        if report.io is not None:
            rival.execution.io = report.io
        if event is ExecutionEvent.REPORT_FINISHED and rival.slot is not None:
            return self._win(rival, report)
        if event is ExecutionEvent.FAIL and report.failure is not None:
            self._lose(rival, report.failure)
        elif report.state.is_terminal:
            self._lose(rival, canceled_unasked(rival.vertex))
        elif rival.execution.state is _EARLIER[event]:
            self._rivals.move(rival.execution, event)
        return None

    def _win(self, rival: Rival, report: TaskStateChanged) -> ExecutionVertex:
        vertex, former = rival.vertex, rival.vertex.execution
        self._rivals.drop(rival)
        vertex.execution = rival.execution
        vertex.execution.committables = report.committables
        vertex.execution.final_state = report.final_state
        consequence = self._books.attempts.move(vertex, ExecutionEvent.REPORT_FINISHED)
        assert consequence is Consequence.NONE, "a deployed attempt may finish"
        self._rivals.retire(vertex, former)
        return vertex

    def _lose(self, rival: Rival, failure: FailureInfo) -> None:
        self._rivals.fail(rival, failure)
        self._failures.on_rival_failure([rival], failure)

    def on_task_manager_gone(self, resource_id: ResourceId, failure: FailureInfo) -> list[Rival]:
        """Return the further attempts that have failed with it."""
        lost = self._rivals.at(resource_id)
        for rival in lost:
            self._rivals.fail(rival, failure)
        self._rivals.lose(resource_id)
        return lost

    def on_slot_freed(self, allocation_id: AllocationId) -> None:
        for rival in self._rivals.in_slot(allocation_id):
            assert rival.slot is not None, "it was found by its slot"
            self._lose(rival, lost_slot(rival.slot))

    def on_shortage(self, event: NotEnoughResources) -> None:
        """There is no room for further attempts: nobody waits for one, and none is asked for during a while."""
        waiting = self._rivals.waiting()
        for rival in waiting:
            self._rivals.end(rival)
        if waiting:
            pause_ms = max(self._settings.block_ms, _LEAST_PAUSE_MS)
            self._paused_until_ms = event.now_ms + pause_ms


def _time_of(execution: Execution, now_ms: int) -> ExecutionTime:
    """How long it has run since its deployment. What a source reads is not known."""
    since = execution.since_ms
    began_ms = since.get(ExecutionState.DEPLOYING)
    if began_ms is None:
        return ExecutionTime(0)
    return ExecutionTime(since.get(ExecutionState.FINISHED, now_ms) - began_ms)
