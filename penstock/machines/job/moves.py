"""Changes of many tasks of a job at once, in all its books: a start, a restart, the end.

This module knows how; `job_master.py` and `failure_handler.py` decide when. Source: Flink
DefaultScheduler, SchedulerBase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.machines.books.job_status import JobStatusEvent
from penstock.machines.execution.execution import ExecutionEvent
from penstock.machines.execution.execution_graph import ExecutionVertex
from penstock.machines.job.books import JobBooks
from penstock.model.messages import ResetSubtasks
from penstock.model.states import JobStatus


class JobMoves:
    """Every method keeps all books consistent."""

    def __init__(self, books: JobBooks) -> None:
        self._books = books

    def allocate(self, regions: Iterable[list[ExecutionVertex]]) -> None:
        for vertices in regions:
            self._books.deployer.allocate(vertices)

    def reset(self, vertices: Sequence[ExecutionVertex], *, is_global: bool) -> None:
        """Make new attempts of these vertices. Their coordinators are told before anything is deployed."""
        books = self._books
        for vertex in vertices:
            books.results.on_reset(vertex)
            books.attempts.reset(vertex)
        checkpoint_id = books.checkpoints.restore(vertices)
        ids = tuple(vertex.vertex_id for vertex in vertices)
        books.journal.emit(ResetSubtasks(ids, is_global, checkpoint_id))
        if is_global:
            books.checkpoints.restore_coordinators()

    def stop_all(self, event: JobStatusEvent) -> None:
        books = self._books
        books.restarts.clear()
        books.life.move(event)
        for vertex in books.graph.vertices:
            vertex.version += 1
            books.attempts.cancel(vertex)

    def suspend(self) -> None:
        """Let go of everything at once without waiting. All results stay for the next driver."""
        books = self._books
        books.checkpoints.follow(JobStatus.SUSPENDED, books.journal.now_ms)
        books.restarts.clear()
        for vertex in books.graph.vertices:
            vertex.version += 1
            books.attempts.rivals.cancel(vertex)
            if vertex.execution.location is not None and not vertex.state.is_terminal:
                books.attempts.send_cancel(vertex)
            books.attempts.move(vertex, ExecutionEvent.SUSPEND)
        books.slots.give_back("job is SUSPENDED")
        books.life.move(JobStatusEvent.SUSPEND)

    def end(self, event: JobStatusEvent) -> None:
        """Give everything back, then report the end."""
        books = self._books
        for vertex in books.graph.vertices:
            books.results.release(vertex, vertex.partitions)
        books.slots.give_back(f"job is {books.life.after(event)}")
        books.life.move(event)
