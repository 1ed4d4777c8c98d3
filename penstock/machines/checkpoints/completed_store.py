"""The completed checkpoints of a job: which are kept, which is the latest, which go.

Knows no files. Source: Flink DefaultCompletedCheckpointStore, CheckpointSubsumeHelper,
CheckpointProperties (docs/spec/checkpoints.md#coordinator).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.machines.checkpoints.settings import Retention
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.errors import BrokenInvariant
from penstock.model.states import JobStatus

NO_CHECKPOINT = -1


class CompletedCheckpointStore:
    """Oldest first. A savepoint that the job was started from or stopped with is kept here like a checkpoint, but
    never discarded: it is the user's.
    """

    def __init__(
        self,
        num_retained: int = 1,
        retention: Retention = Retention.NO_EXTERNALIZED_CHECKPOINTS,
        found: Sequence[CompletedCheckpoint] = (),
    ) -> None:
        """`found`: what an earlier driver left of this job, oldest first."""
        self._num_retained = num_retained
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
        """It is the latest now. Returns: those that are to be discarded for it.

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
        """It cannot be read. What was dropped; None: there is no earlier one to go on from, so it stays."""
        return self._checkpoints.pop() if len(self._checkpoints) > 1 else None

    def shut_down(self, status: JobStatus) -> list[CompletedCheckpoint]:
        """The job is over. Returns: what is to be discarded. A SUSPENDED one goes on elsewhere, and needs them all."""
        if status is JobStatus.SUSPENDED:
            return []
        checkpoints, self._checkpoints = self._checkpoints, []
        return [old for old in checkpoints if self.is_discarded_at(status, old)]

    def is_discarded_at(self, status: JobStatus, checkpoint: CompletedCheckpoint) -> bool:
        """Whether a completed checkpoint goes with a job that ends so."""
        if checkpoint.checkpoint_type.is_savepoint or status is JobStatus.SUSPENDED:
            return False
        if status is JobStatus.FINISHED or self._retention is Retention.NO_EXTERNALIZED_CHECKPOINTS:
            return True
        is_deleting = self._retention is Retention.DELETE_ON_CANCELLATION
        return status is JobStatus.CANCELED and is_deleting

    def _newest_not_savepoint(self) -> CompletedCheckpoint | None:
        """Later checkpoints may have been made on top of it."""
        return next(
            (c for c in reversed(self._checkpoints) if not c.checkpoint_type.is_savepoint), None
        )
