"""The attempts of a job's subtasks. Each moves by its table, and all counters of it are updated
with it.

Knows how to move an attempt, not when. Source: Flink Execution.transitionState with its listeners.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.machines.books.journal import Journal
from penstock.machines.books.rivals import Rivals
from penstock.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.machines.execution.execution import Consequence, ExecutionEvent
from penstock.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.machines.failover.restarts import Restarts
from penstock.machines.scheduling.bulks import Bulks
from penstock.machines.scheduling.task_deployments import TaskDeployments
from penstock.machines.slots.shared_slots import SharedSlots
from penstock.model.ids import ResourceId
from penstock.model.messages import CancelTask, ExecutionStateChanged, FailureInfo
from penstock.model.states import ExecutionState


class Attempts:
    """`alive`: number of subtasks that are not terminal. `gone`: TaskManagers that can no longer be reached. `rivals`: further attempts."""

    def __init__(
        self,
        graph: ExecutionGraph,
        journal: Journal,
        bulks: Bulks,
        shared_slots: SharedSlots,
        restarts: Restarts,
        checkpoints: JobCheckpoints,
        deployments: TaskDeployments,
    ) -> None:
        self.alive = len(graph.vertices)
        self.gone: set[ResourceId] = set()
        self._graph = graph
        self._journal = journal
        self._bulks = bulks
        self._shared_slots = shared_slots
        self._restarts = restarts
        self._checkpoints = checkpoints
        self._deployments = deployments
        self.rivals = Rivals(journal, shared_slots, deployments, self.gone)

    def move(
        self, vertex: ExecutionVertex, event: ExecutionEvent, failure: FailureInfo | None = None
    ) -> Consequence:
        """Move an attempt by its table, and update the books of slots and counters."""
        execution = vertex.execution
        old = execution.state
        consequence = execution.apply(event, self._journal.now_ms)
        new = execution.state
        if new is old:
            return consequence
        if old is ExecutionState.SCHEDULED:
            self._bulks.forget(vertex)
        if failure is not None and new is ExecutionState.FAILED:
            execution.failure = failure
        if new.is_terminal:
            self.alive -= 1
            self._checkpoints.on_attempt_ended(vertex, self._journal.now_ms)
            self._restarts.on_terminal(vertex)
            self._shared_slots.leave(vertex, self._journal.now_ms)
            self.rivals.leave(vertex)
            if new is not ExecutionState.FAILED:
                self.rivals.cancel(vertex)
            if new is ExecutionState.FINISHED:
                self._graph.mark_finished(vertex)
                self.tell_readers(vertex)
        cause = failure.kind if failure is not None else ""
        at_ms = self._journal.now_ms
        self._journal.tell(ExecutionStateChanged(execution.attempt_id, old, new, at_ms, cause))
        return consequence

    def cancel(self, vertex: ExecutionVertex) -> None:
        self.rivals.cancel(vertex)
        if vertex.state.is_terminal:
            return
        if self.move(vertex, ExecutionEvent.CANCEL) is Consequence.SEND_CANCEL:
            self.send_cancel(vertex)

    def send_cancel(self, vertex: ExecutionVertex) -> None:
        location = vertex.execution.location
        if location is not None and location.resource_id not in self.gone:
            attempt_id = vertex.execution.attempt_id
            self._journal.emit(CancelTask(location.resource_id, attempt_id))

    def fail(self, vertices: Sequence[ExecutionVertex], failure: FailureInfo) -> None:
        for vertex in vertices:
            self.move(vertex, ExecutionEvent.FAIL, failure)

    def reset(self, vertex: ExecutionVertex) -> None:
        """Make a new attempt, unless the current one has not been used."""
        if vertex.state is not ExecutionState.CREATED:
            vertex.reset()
            self.alive += 1

    def go_on(self, vertex: ExecutionVertex) -> bool:
        """Let another attempt of a vertex take the place of the one that has failed. Returns: whether there is one."""
        rival = self.rivals.successor_of(vertex)
        if rival is None:
            return False
        self.rivals.succeed(rival)
        self.alive += 1
        return True

    def tell_readers(self, vertex: ExecutionVertex) -> None:
        """The vertex's results can be read now: tell the consumers that were deployed before."""
        for update in self._deployments.updates_for(vertex):
            self._journal.emit(update)
