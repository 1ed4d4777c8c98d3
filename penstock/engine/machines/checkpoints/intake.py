"""Which checkpoints are asked for: those that are due, those of users, and the one with which a generation of the job hands over.

Source: Flink CheckpointRequestDecider. Differs: what a user asks for during a handover waits for the next generation. A savepoint that
met the end of a task is taken again when the task has ended; in Flink it fails.
"""

from __future__ import annotations

from penstock.engine.machines.checkpoints.coordinator_state import CheckpointCourse
from penstock.engine.machines.checkpoints.gateway import CheckpointGateway
from penstock.engine.machines.checkpoints.handover import Handover
from penstock.engine.machines.checkpoints.plan import plan_of
from penstock.engine.machines.checkpoints.requests import (
    CheckpointRequest,
    RequestQueue,
    refusal_of,
)
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.model.ids import AttemptId, VertexId
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason as Reason


class Intake:
    """`queue`: requests that may be taken. `coordinator_state`: has those that wait, for the next generation or until no task is `ending`: these
    have declined because they were about to end. `handover`: to the next generation.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        gateway: CheckpointGateway,
        coordinator_state: CheckpointCourse,
    ) -> None:
        self.queue = RequestQueue(settings.max_concurrent, settings.min_pause_ms)
        self.coordinator_state = coordinator_state
        self.handover = Handover()
        self.ending: set[AttemptId] = set()
        self._gateway = gateway

    def add(self, request: CheckpointRequest) -> None:
        """Add a request; a full queue answers one of them with a failure."""
        refusal = self.queue.add(request)
        if refusal is not None:
            text = f"{len(self.queue)} wait already"
            self._gateway.answer_failure(refusal.request, refusal.reason, text)

    def refuses(
        self, request: CheckpointRequest, others: list[CheckpointRequest], *, is_active: bool
    ) -> bool:
        """Whether a user's request is refused for good. If so, it is answered. `others`, `is_active`: as `refusal_of` takes them."""
        refusal = refusal_of(request, others, is_active=is_active)
        if refusal is not None:
            self._gateway.answer_failure(request, *refusal)
        return refusal is not None

    def failed(self, request: CheckpointRequest, reason: Reason, text: str) -> None:
        """A checkpoint was aborted. A savepoint waits if it met the end of a task. Of all others this is the answer."""
        kind = request.checkpoint_type
        if reason is Reason.TASK_CLOSING and kind.is_savepoint and not kind.is_synchronous:
            self.coordinator_state.waiting.append(request)
        else:
            self._gateway.answer_failure(request, reason, text)

    def deadlines_ms(self, timeout_ms: int) -> list[int]:
        """Return until when those that wait for the end of a task may wait."""
        return [one.at_ms + timeout_ms for one in self._waiting_for_ends]

    @property
    def _waiting_for_ends(self) -> list[CheckpointRequest]:
        is_so = self.ending and not self.handover.keeps_others_waiting
        return self.coordinator_state.waiting if is_so else []

    def expire(self, asked_ms: int, text: str) -> None:
        """Answer those that were asked for by then and still wait for the end of a task."""
        if self._waiting_for_ends:
            late = [one for one in self.coordinator_state.waiting if one.at_ms <= asked_ms]
            self.coordinator_state.waiting = [
                one for one in self.coordinator_state.waiting if one.at_ms > asked_ms
            ]
            for request in late:
                self._gateway.answer_failure(request, Reason.CHECKPOINT_EXPIRED, text)

    def add_of_user(self, request: CheckpointRequest) -> None:
        if self.handover.keeps_others_waiting:
            self.coordinator_state.waiting.append(request)
        else:
            self.add(request)

    def begin_handover(self, now_ms: int, kept: frozenset[VertexId]) -> None:
        self.handover.begin(kept)
        self.add(CheckpointRequest(now_ms, is_forced=True, is_handover=True, kept=kept))

    def catch_up(self, graph: ExecutionGraph, settings: CheckpointSettings) -> None:
        """Take what waits, once no handover is under way, no task is about to end, and all can take part in a checkpoint."""
        if not self.coordinator_state.waiting or self.handover.keeps_others_waiting or self.ending:
            return
        if isinstance(plan_of(graph, settings), str):
            return
        waiting, self.coordinator_state.waiting = self.coordinator_state.waiting, []
        for request in waiting:
            self.add(request)

    def drop_all(self, reason: Reason, text: str) -> None:
        """Answer all with this failure. No task is waited for any more."""
        self.ending.clear()
        waiting, self.coordinator_state.waiting = self.coordinator_state.waiting, []
        for request in (*self.queue.drop_all(), *waiting):
            self._gateway.answer_failure(request, reason, text)

    def with_those(self, pending: list[CheckpointRequest]) -> list[CheckpointRequest]:
        """Return everything that is asked for and not done. `pending`: what is being taken."""
        return [*pending, *self.queue, *self.coordinator_state.waiting]
