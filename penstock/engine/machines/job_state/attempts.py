"""The attempts of a job's subtasks. Each moves by its table, and all counters of it are updated with it.

Knows how to move an attempt, not when. Source: Flink Execution.transitionState with its listeners.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.engine.machines.execution.execution import Consequence, ExecutionEvent
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.failover import Restarts
from penstock.engine.machines.scheduling.bulks import Bulks
from penstock.engine.machines.scheduling.task_deployments import TaskDeployments
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.machines.story import EventLog
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import CancelTask, ExecutionStateChanged, FailureInfo
from penstock.engine.model.states import ExecutionState


class Attempts:
    """`alive`: number of subtasks that are not terminal. `gone`: TaskManagers that can no longer be reached."""

    def __init__(
        self,
        graph: ExecutionGraph,
        event_log: EventLog,
        bulks: Bulks,
        shared_slots: SharedSlots,
        restarts: Restarts,
        checkpoints: JobCheckpoints,
        deployments: TaskDeployments,
    ) -> None:
        self.alive = len(graph.vertices)
        self.gone: set[ResourceId] = set()
        self._graph = graph
        self._event_log = event_log
        self._bulks = bulks
        self._shared_slots = shared_slots
        self._restarts = restarts
        self._checkpoints = checkpoints
        self._deployments = deployments

    def move(
        self, vertex: ExecutionVertex, event: ExecutionEvent, failure: FailureInfo | None = None
    ) -> Consequence:
        """Move an attempt by its table, and update slots and counters."""
        execution = vertex.execution
        old = execution.state
        consequence = execution.apply(event, self._event_log.now_ms)
        new = execution.state
        if new is old:
            return consequence
        if old is ExecutionState.SCHEDULED:
            self._bulks.forget(vertex)
        if failure is not None and new is ExecutionState.FAILED:
            execution.failure = failure
        if new.is_terminal:
            self.alive -= 1
            self._checkpoints.on_attempt_ended(vertex, self._event_log.now_ms)
            self._restarts.on_terminal(vertex)
            self._shared_slots.leave(vertex, self._event_log.now_ms)
            if new is ExecutionState.FINISHED:
                self._graph.mark_finished(vertex)
                self.update_consumers(vertex)
        cause = failure.kind if failure is not None else ""
        at_ms = self._event_log.now_ms
        self._event_log.emit_noted(
            ExecutionStateChanged(execution.attempt_id, old, new, at_ms, cause)
        )
        return consequence

    def cancel(self, vertex: ExecutionVertex) -> None:
        if vertex.state.is_terminal:
            return
        if self.move(vertex, ExecutionEvent.CANCEL) is Consequence.SEND_CANCEL:
            self.send_cancel(vertex)

    def send_cancel(self, vertex: ExecutionVertex) -> None:
        location = vertex.execution.location
        if location is not None and location.resource_id not in self.gone:
            attempt_id = vertex.execution.attempt_id
            self._event_log.emit(CancelTask(location.resource_id, attempt_id))

    def fail(self, vertices: Sequence[ExecutionVertex], failure: FailureInfo) -> None:
        for vertex in vertices:
            self.move(vertex, ExecutionEvent.FAIL, failure)

    def reset(self, vertex: ExecutionVertex) -> None:
        """Make a new attempt, unless the current one has not been used."""
        if vertex.state is not ExecutionState.CREATED:
            vertex.reset()
            self.alive += 1

    def update_consumers(self, vertex: ExecutionVertex) -> None:
        """The vertex's results can be read now: inform the consumers that were deployed before."""
        for update in self._deployments.updates_for(vertex):
            self._event_log.emit(update)
