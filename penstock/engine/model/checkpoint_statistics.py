"""Statistics of a job's checkpoints, as a program sees them. Plain data. Source: Flink CheckpointStatsSnapshot,
CheckpointStatsHistory.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.checkpoints import CheckpointType


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A checkpoint or savepoint that has ended. `location`: of its metadata; None: it failed, and `failure` says why.

    `triggered_at_ms`: epoch milliseconds. `duration_ms`: until the last task acknowledged it, or until it failed.
    `size_bytes`: of the acknowledged state. `written_bytes`: the part of it that was written for this checkpoint; less with incremental
    checkpoints. The other numbers are the largest of all tasks.
    """

    checkpoint_id: int
    checkpoint_type: CheckpointType
    triggered_at_ms: int
    duration_ms: int
    size_bytes: int
    alignment_ms: float
    sync_ms: float
    async_ms: float
    location: str | None = None
    failure: str | None = None
    written_bytes: int = 0

    @property
    def is_completed(self) -> bool:
        return self.location is not None


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """The checkpoint from which attempts of the job were restored. `restored_at_ms`: epoch milliseconds. `is_savepoint`: whoever took
    it still owns it, so the job never deletes it.
    """

    checkpoint_id: int
    restored_at_ms: int
    location: str | None = None
    is_savepoint: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointStatistics:
    """Statistics of one job since its driver started. `restored`: how often it was restored from a checkpoint.

    `history`: the newest checkpoints that have ended, oldest first.
    """

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0
    latest_completed: CheckpointSummary | None = None
    latest_savepoint: CheckpointSummary | None = None
    latest_failed: CheckpointSummary | None = None
    latest_restored: RestoredCheckpoint | None = None
    history: tuple[CheckpointSummary, ...] = ()

    @property
    def triggered(self) -> int:
        return self.in_progress + self.completed + self.failed
