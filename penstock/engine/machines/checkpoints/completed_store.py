"""The completed checkpoints of a job: which are kept, which is the latest, which are discarded.

Knows no files. Source: Flink DefaultCompletedCheckpointStore, CheckpointSubsumeHelper,
CheckpointProperties (docs/spec/checkpoints.md#coordinator).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.machines.checkpoints.settings import Retention
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.completed_checkpoint import CompletedCheckpoint
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.states import JobStatus

NO_CHECKPOINT = -1


class CompletedCheckpointStore:
    """Checkpoints, oldest first.

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
