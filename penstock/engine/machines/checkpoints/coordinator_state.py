"""State of a job's checkpoints that outlives a generation of the job: completed ones, ids, attempts that wait for a last
checkpoint, and a handover.

Source: Flink CheckpointIDCounter, CompletedCheckpointStore and CheckpointsCleaner, which outlive an ExecutionGraph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.engine.machines.checkpoints.requests import CheckpointRequest
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.model.checkpoints import CheckpointType, CompletedCheckpoint
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import AttemptId, VertexId
from penstock.engine.model.options.checkpoints import Retention
from penstock.engine.model.states import ExecutionState, JobStatus

REMEMBERED: Final = 128


class EndedCheckpoints:
    """How the newest `REMEMBERED` checkpoints ended, for messages of tasks that come later.

    Source: Flink CheckpointCoordinator.recentPendingCheckpoints; differs: the outcome is remembered too, so that a
    repeated message of a completed checkpoint never discards its snapshot.
    """

    def __init__(self) -> None:
        self._is_completed: OrderedDict[int, bool] = OrderedDict()

    def add(self, checkpoint_id: int, *, is_completed: bool) -> None:
        self._is_completed[checkpoint_id] = is_completed
        while len(self._is_completed) > REMEMBERED:
            self._is_completed.popitem(last=False)

    def was_aborted(self, checkpoint_id: int) -> bool:
        """Whether it was aborted. False if its outcome is unknown; then a clean-up pass removes its snapshots."""
        return self._is_completed.get(checkpoint_id) is False


@dataclass(slots=True)
class CheckpointCourse:
    """`store`: the completed checkpoints. `ended`: how the recent ones ended. `next_id`: of the next checkpoint.

    `last_completion_ms` None: none was completed yet. `waiting`: what users asked for while a generation handed over;
    the next one takes it as soon as its tasks run. `ends`: of tasks that run on.
    """

    store: CompletedCheckpointStore
    next_id: int
    ended: EndedCheckpoints = field(default_factory=EndedCheckpoints)
    last_completion_ms: int | None = None
    waiting: list[CheckpointRequest] = field(default_factory=list)
    ends: AwaitedEnds | None = None

    def take_id(self) -> int:
        """Return the id of a new checkpoint. Ids only grow, over all generations."""
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        return checkpoint_id


NO_CHECKPOINT = -1


class CompletedCheckpointStore:
    """The completed checkpoints of a job: which are kept, which is the latest, which are discarded.

    Knows no files. Source: Flink DefaultCompletedCheckpointStore, CheckpointSubsumeHelper,
    CheckpointProperties (docs/spec/checkpoints.md#coordinator).

    Checkpoints, oldest first.

    A savepoint that the job was started from or stopped with is kept here like a checkpoint, but
    never discarded, because it belongs to the user.
    """

    def __init__(
        self,
        num_retained: int = 1,
        retention: Retention = Retention.NO_EXTERNALIZED_CHECKPOINTS,
        found: Sequence[CompletedCheckpoint] = (),
    ) -> None:
        """`found`: checkpoints that an earlier driver left of this job, oldest first."""
        self._num_retained = num_retained
        self.kept: CompletedCheckpoint | None = None
        self._retention = retention
        self._checkpoints = list(found)

    def __len__(self) -> int:
        return len(self._checkpoints)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        return self._checkpoints[-1] if self._checkpoints else None

    @property
    def latest_id(self) -> int:
        return self._checkpoints[-1].checkpoint_id if self._checkpoints else NO_CHECKPOINT

    def add(self, checkpoint: CompletedCheckpoint) -> list[CompletedCheckpoint]:
        """Add the new latest checkpoint. Returns: those to discard because of it.

        Raises: BrokenInvariant: it is not newer than the latest.
        """
        if checkpoint.checkpoint_id <= self.latest_id:
            raise BrokenInvariant(
                f"checkpoint {checkpoint.checkpoint_id} was completed after {self.latest_id}, "
                "which a restart may have begun with."
            )
        self._checkpoints.append(checkpoint)
        subsumed: list[CompletedCheckpoint] = []
        for old in self._checkpoints[:-1]:
            if len(self._checkpoints) <= self._num_retained:
                break
            if old is not self._newest_not_savepoint():
                self._checkpoints.remove(old)
                subsumed.append(old)
        return [old for old in subsumed if not old.checkpoint_type.is_savepoint]

    def drop_latest(self) -> CompletedCheckpoint | None:
        """Drop the latest checkpoint, which cannot be read. Returns: it; None: there is no earlier one, so it stays."""
        return self._checkpoints.pop() if len(self._checkpoints) > 1 else None

    def shut_down(self, status: JobStatus) -> list[CompletedCheckpoint]:
        """The job is over. Returns: the checkpoints to discard. A SUSPENDED job needs all of them elsewhere."""
        if status is JobStatus.SUSPENDED:
            return []
        checkpoints, self._checkpoints = self._checkpoints, []
        discarded = [
            old for old in checkpoints if self.is_discarded_at(status, old.checkpoint_type)
        ]
        self.kept = next((one for one in reversed(checkpoints) if one not in discarded), None)
        return discarded

    def is_discarded_at(self, status: JobStatus, kind: CheckpointType) -> bool:
        """Whether a completed checkpoint of this kind is discarded when the job ends with this status."""
        if kind.is_savepoint or status is JobStatus.SUSPENDED:
            return False
        if status is JobStatus.FINISHED or self._retention is Retention.NO_EXTERNALIZED_CHECKPOINTS:
            return True
        is_deleting = self._retention is Retention.DELETE_ON_CANCELLATION
        return status is JobStatus.CANCELED and is_deleting

    def _newest_not_savepoint(self) -> CompletedCheckpoint | None:
        """Return the newest that is not a savepoint; later checkpoints may build on it."""
        return next(
            (c for c in reversed(self._checkpoints) if not c.checkpoint_type.is_savepoint), None
        )


class AwaitedEnds:
    """Attempts at the end of their data that wait for one more checkpoint. Knows no checkpoint.

    Source: Flink StreamTask's finalCheckpointMinId, seen from the coordinator
    (docs/spec/checkpoints.md#finished-tasks). Differs: when all wait, the checkpoint is taken at once.

    `waiting`: attempts that have reported the end of their data and have not ended. `covered`: those of them that a
    checkpoint lets end.
    """

    def __init__(self, graph: ExecutionGraph, former: AwaitedEnds | None = None) -> None:
        """`former`: of the generation before. Attempts that it has left have not ended: they run on, and do not report again."""
        self.waiting: set[AttemptId] = set() if former is None else set(former.waiting)
        self._graph = graph
        self.covered: set[AttemptId] = set() if former is None else set(former.covered)

    def discard(self, attempt_id: AttemptId) -> None:
        """The attempt has ended."""
        self.waiting.discard(attempt_id)
        self.covered.discard(attempt_id)

    def on_completed(self, waited: frozenset[AttemptId]) -> None:
        """A checkpoint is complete. The attempts that waited when it was triggered will end by themselves."""
        self.covered |= waited & self.waiting

    @property
    def are_all(self) -> bool:
        """Whether every running attempt waits. Attempts that a restart did not touch still count;
        they do not report again.
        """
        vertices = self._graph.vertices
        running = [v for v in vertices if v.state is not ExecutionState.FINISHED]
        return bool(running) and all(v.execution.attempt_id in self.waiting for v in running)

    @property
    def has_uncovered(self) -> bool:
        """Whether an attempt would wait for ever without one more checkpoint."""
        return not self.waiting <= self.covered


class HandoverState(StrEnum):
    """NONE: nobody has asked. UNDER_WAY: its checkpoint is taken. COMPLETE: all that the generation did is in it."""

    NONE = "NONE"
    UNDER_WAY = "UNDER_WAY"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


@dataclass(slots=True)
class Handover:
    """Whether a generation of a job hands over to the next one: asked for, complete, or failed and why.

    Knows no checkpoint. Source: none; see docs/spec/elasticity.md#handover.

    `cause`: why the last one failed. `kept`: vertices whose tasks run on, into the next generation.
    """

    state: HandoverState = HandoverState.NONE
    cause: str = ""
    kept: frozenset[VertexId] = frozenset()

    @property
    def is_under_way(self) -> bool:
        return self.state is HandoverState.UNDER_WAY

    @property
    def is_complete(self) -> bool:
        return self.state is HandoverState.COMPLETE

    @property
    def has_failed(self) -> bool:
        """Whether it has failed, and nobody has taken note of that."""
        return self.state is HandoverState.FAILED

    @property
    def keeps_others_waiting(self) -> bool:
        """Whether no other checkpoint may begin."""
        return self.is_under_way or self.is_complete

    def begin(self, kept: frozenset[VertexId] = frozenset()) -> None:
        self.state, self.cause, self.kept = HandoverState.UNDER_WAY, "", kept

    def complete(self) -> None:
        self.state = HandoverState.COMPLETE

    def fail(self, cause: str) -> None:
        """The handover failed: the generation continues."""
        self.state, self.cause, self.kept = HandoverState.FAILED, cause, frozenset()

    def note_failure(self) -> None:
        """Somebody has taken note of the failure."""
        if self.has_failed:
            self.state = HandoverState.NONE
