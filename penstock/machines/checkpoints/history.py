"""Statistics of a job's checkpoints: counts, the latest of each kind, and the most recent ones.

Knows no clock: the host gives wall-clock times. Source: Flink CheckpointStatsTracker.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointSummary,
    RestoredCheckpoint,
)
from penstock.model.messages import CheckpointEnded


class CheckpointHistory:
    """`statistics` is replaced, never changed: any thread may read it."""

    def __init__(self, size: int) -> None:
        """`size`: how many checkpoints the history keeps."""
        self.statistics = CheckpointStatistics()
        self._size = size

    def ended(self, what: CheckpointEnded, triggered_at_ms: int, ended_at_ms: int) -> None:
        """A checkpoint was completed, or failed. Times: of the wall clock."""
        slowest = what.slowest
        summary = CheckpointSummary(
            checkpoint_id=what.checkpoint_id,
            checkpoint_type=what.checkpoint_type,
            triggered_at_ms=triggered_at_ms,
            duration_ms=ended_at_ms - triggered_at_ms,
            size_bytes=what.size_bytes,
            alignment_ms=slowest.alignment_ms,
            sync_ms=slowest.sync_ms,
            async_ms=slowest.async_ms,
            location=what.location,
            written_bytes=what.written_bytes,
            failure=None if what.location is not None else f"{what.reason}: {what.text}",
        )
        now = self.statistics
        history = (*now.history, summary)[-self._size :]
        if not summary.is_completed:
            now = replace(now, failed=now.failed + 1, latest_failed=summary)
        elif summary.checkpoint_type.is_savepoint:
            now = replace(now, completed=now.completed + 1, latest_savepoint=summary)
        else:
            now = replace(now, completed=now.completed + 1, latest_completed=summary)
        self.statistics = replace(now, history=history)

    def restored(self, checkpoint_id: int, location: str | None, at_ms: int) -> None:
        """Attempts of the job begin with this checkpoint."""
        restored = RestoredCheckpoint(checkpoint_id, at_ms, location)
        count = self.statistics.restored + 1
        self.statistics = replace(self.statistics, restored=count, latest_restored=restored)
