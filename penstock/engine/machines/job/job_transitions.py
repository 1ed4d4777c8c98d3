"""Changes of many tasks of a job at once, in all parts of its state: a start, a restart, the end.

This module knows how; `job_master.py` and `failure_handler.py` decide when. Source: Flink
DefaultScheduler, SchedulerBase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.job.job_state import JobState
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.model.messages import ResetSubtasks
from penstock.engine.model.states import JobStatus


class JobTransitions:
    """Every method keeps all parts of the state consistent."""

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
