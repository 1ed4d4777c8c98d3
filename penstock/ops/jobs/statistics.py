"""The statistics of a job's checkpoints, as its program and its metrics have them.

Source: Flink CheckpointStatsSnapshot; differs: one summary for each checkpoint, without its tasks.
"""

from __future__ import annotations

from penstock.engine.model.checkpoints import CheckpointStatistics, CheckpointSummary
from penstock.ops.jobs.checkpoint_record import END_TO_END, figures_of
from penstock.ops.jobs.snapshots import CheckpointSnapshot, CheckpointsSnapshot


def statistics_of(known: CheckpointsSnapshot) -> CheckpointStatistics:
    """Return the statistics. Their history has the checkpoints that have ended, oldest first."""
    ended = (one for one in reversed(known.history) if one.is_completed or one.is_failed)
    return CheckpointStatistics(
        in_progress=known.in_progress,
        completed=known.completed,
        failed=known.failed,
        restored=known.restored,
        latest_completed=_optional(known.latest_completed),
        latest_savepoint=_optional(known.latest_savepoint),
        latest_failed=_optional(known.latest_failed),
        latest_restored=known.latest_restored,
        history=tuple(_summary(one) for one in ended),
    )


def _optional(checkpoint: CheckpointSnapshot | None) -> CheckpointSummary | None:
    return None if checkpoint is None else _summary(checkpoint)


def _summary(checkpoint: CheckpointSnapshot) -> CheckpointSummary:
    figures = figures_of(checkpoint)
    measured = [ack.metrics for acks in checkpoint.acks.values() for ack in acks]
    return CheckpointSummary(
        checkpoint_id=checkpoint.checkpoint_id,
        checkpoint_type=checkpoint.checkpoint_type,
        triggered_at_ms=checkpoint.triggered_ms,
        duration_ms=max(0, figures[END_TO_END]),
        size_bytes=figures["state_size"],
        alignment_ms=max((one.alignment_ms for one in measured), default=0.0),
        sync_ms=max((one.sync_ms for one in measured), default=0.0),
        async_ms=max((one.async_ms for one in measured), default=0.0),
        location=checkpoint.location,
        failure=checkpoint.failure,
        written_bytes=figures["checkpointed_size"],
    )
