"""Which checkpoints are asked for: those that are due, those of users, and the one with which a generation of the job hands over.

Knows no task. Source: Flink CheckpointRequestDecider. Differs: what a user asks for during a handover waits for the next generation.
"""

from __future__ import annotations

from penstock.machines.checkpoints.course import CheckpointCourse
from penstock.machines.checkpoints.gateway import CheckpointGateway
from penstock.machines.checkpoints.handover import Handover
from penstock.machines.checkpoints.plan import plan_of
from penstock.machines.checkpoints.requests import CheckpointRequest, RequestQueue
from penstock.machines.checkpoints.settings import CheckpointSettings
from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.model.ids import VertexId
from penstock.model.messages.checkpoints import CheckpointFailureReason as Reason


class Intake:
    """`queue`: requests that may be taken. `course`: has those that wait for the next generation. `handover`: to that one."""

    def __init__(
        self, settings: CheckpointSettings, gateway: CheckpointGateway, course: CheckpointCourse
    ) -> None:
        self.queue = RequestQueue(settings.max_concurrent, settings.min_pause_ms)
        self.course = course
        self.handover = Handover()
        self._gateway = gateway

    def add(self, request: CheckpointRequest) -> None:
        """Add a request; a full queue answers one of them with a failure."""
        refusal = self.queue.add(request)
        if refusal is not None:
            text = f"{len(self.queue)} wait already"
            self._gateway.answer_failure(refusal.request, refusal.reason, text)

    def add_of_user(self, request: CheckpointRequest) -> None:
        if self.handover.keeps_others_waiting:
            self.course.waiting.append(request)
        else:
            self.add(request)

    def begin_handover(self, now_ms: int, kept: frozenset[VertexId]) -> None:
        self.handover.begin(kept)
        self.add(CheckpointRequest(now_ms, is_forced=True, is_handover=True, kept=kept))

    def catch_up(self, graph: ExecutionGraph, settings: CheckpointSettings) -> None:
        """Take what was asked for during a handover, once it is over and all tasks can take part in a checkpoint."""
        if not self.course.waiting or self.handover.keeps_others_waiting:
            return
        if isinstance(plan_of(graph, settings), str):
            return
        waiting, self.course.waiting = self.course.waiting, []
        for request in waiting:
            self.add(request)

    def drop_all(self, reason: Reason, text: str) -> None:
        """Answer all with this failure."""
        waiting, self.course.waiting = self.course.waiting, []
        for request in (*self.queue.drop_all(), *waiting):
            self._gateway.answer_failure(request, reason, text)

    def with_those(self, pending: list[CheckpointRequest]) -> list[CheckpointRequest]:
        """Return everything that is asked for and not done. `pending`: what is being taken."""
        return [*pending, *self.queue, *self.course.waiting]
