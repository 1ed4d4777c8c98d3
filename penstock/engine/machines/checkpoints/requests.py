"""Which checkpoint is taken next: an ordered, bounded queue of requests, and what holds them back.

Knows no tasks and no clock. Source: Flink CheckpointRequestDecider
(docs/spec/checkpoints.md#coordinator). Differs: checkpoints that are being cleaned up do not count.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason, TriggerSavepoint

MAX_QUEUED: Final = 1000


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A request for one checkpoint. `request_id` None: nobody waits for an answer; for example the
    timer asked.

    `is_forced`: ignores the limit of pending checkpoints. `target_directory`: of a savepoint.
    `is_handover`: the next generation of the job begins from it. `kept`: vertices whose tasks do
    not stop after it.
    """

    at_ms: int
    checkpoint_type: CheckpointType = CheckpointType.CHECKPOINT
    is_periodic: bool = False
    is_forced: bool = False
    request_id: str | None = None
    target_directory: str | None = None
    is_handover: bool = False
    kept: frozenset[VertexId] = frozenset()

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Savepoints first, then forced ones, then those that somebody asked for, then the earlier."""
        is_savepoint = self.checkpoint_type.is_savepoint
        return not is_savepoint, not self.is_forced, self.is_periodic, self.at_ms


def request_of(event: TriggerSavepoint, *, is_forced: bool) -> CheckpointRequest:
    """Return what a user asks for."""
    return CheckpointRequest(
        event.now_ms,
        event.checkpoint_type,
        is_forced=is_forced,
        request_id=event.request_id,
        target_directory=event.target_directory,
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request. `retry_in_ms`: when the periodic trigger is to ask again."""

    request: CheckpointRequest
    reason: CheckpointFailureReason
    retry_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """What the choice depends on. `last_completion_ms` None: none was completed yet."""

    now_ms: int
    pending: int = 0
    is_triggering: bool = False
    last_completion_ms: int | None = None


def refusal_of(
    wanted: CheckpointRequest, others: Sequence[CheckpointRequest], *, is_active: bool
) -> tuple[CheckpointFailureReason, str] | None:
    """Return why a user's request is refused for good; None: it is not.

    `others`: requests that are pending or wait. `is_active`: the job runs.
    """
    if not is_active:
        return CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, "the job is not RUNNING"
    if wanted.checkpoint_type.is_savepoint and wanted.target_directory is None:
        return CheckpointFailureReason.IO_EXCEPTION, (
            "no directory is named for the savepoint. Name one, or set "
            "'execution.checkpointing.savepoint-dir'"
        )
    if any(other.checkpoint_type.is_synchronous for other in others):
        reason = CheckpointFailureReason.COORDINATOR_SUSPEND
        return reason, "the job is being stopped with a savepoint"
    return None


class RequestQueue:
    """Requests that wait, in the order they are taken."""

    def __init__(
        self, max_concurrent: int = 1, min_pause_ms: int = 0, max_queued: int = MAX_QUEUED
    ) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause_ms = min_pause_ms
        self._max_queued = max_queued
        self._queue: list[CheckpointRequest] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[CheckpointRequest]:
        return iter(self._queue)

    def add(self, request: CheckpointRequest) -> Refusal | None:
        """Insert a request by rank. If the queue is full, the last periodic request makes room, or
        this one is refused.
        """
        is_full = len(self._queue) >= self._max_queued
        too_many = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS
        if is_full and not self._queue[-1].is_periodic:
            return Refusal(request, too_many)
        insort(self._queue, request, key=lambda waiting: waiting.rank)
        return Refusal(self._queue.pop(), too_many) if is_full else None

    def choose(self, situation: Situation) -> CheckpointRequest | Refusal | None:
        """Take the next request out of the queue; None: none may run now.

        A periodic request that comes too soon after the last completion is refused, to be repeated
        later.
        """
        if situation.is_triggering or not self._queue:
            return None
        first = self._queue[0]
        if situation.pending >= self._max_concurrent:
            return self._queue.pop(0) if first.is_forced else None
        if first.is_periodic and not first.is_forced:
            wait_ms = self._pause_left_ms(situation)
            if wait_ms > 0:
                reason = CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
                return Refusal(self._queue.pop(0), reason, wait_ms)
        return self._queue.pop(0)

    @property
    def has_periodic(self) -> bool:
        return any(request.is_periodic for request in self._queue)

    def drop_all(self) -> list[CheckpointRequest]:
        dropped, self._queue = self._queue, []
        return dropped

    def drop_periodic(self) -> None:
        self._queue = [request for request in self._queue if not request.is_periodic]

    def _pause_left_ms(self, situation: Situation) -> int:
        if situation.last_completion_ms is None:
            return 0
        return situation.last_completion_ms + self._min_pause_ms - situation.now_ms
