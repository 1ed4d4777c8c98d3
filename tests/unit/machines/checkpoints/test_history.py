"""Counts and latest ones of a job's checkpoints."""

from penstock.machines.checkpoints.history import CheckpointHistory
from penstock.model.checkpoint_statistics import CheckpointStatistics, RestoredCheckpoint
from penstock.model.checkpoints import CheckpointMetrics, CheckpointType
from penstock.model.messages import CheckpointEnded, CheckpointFailureReason


def ended(checkpoint_id, location=None, kind=CheckpointType.CHECKPOINT):
    reason = None if location else CheckpointFailureReason.CHECKPOINT_EXPIRED
    metrics = CheckpointMetrics(alignment_ms=1.0, sync_ms=2.0, async_ms=3.0)
    return CheckpointEnded(checkpoint_id, kind, 5, 100, metrics, location, reason, "too slow", 40)


def test_each_is_counted_and_the_latest_of_each_kind_is_known():
    history = CheckpointHistory(2)
    assert history.statistics == CheckpointStatistics()
    history.ended(ended(1, "one"), 1000, 1200)
    history.ended(ended(2), 2000, 2001)
    history.ended(ended(3, "three", CheckpointType.SAVEPOINT), 3000, 3003)
    history.restored(1, "one", 4000)
    found = history.statistics
    assert (found.completed, found.failed, found.restored, found.triggered) == (2, 1, 1, 3)
    assert found.latest_completed.checkpoint_id == 1
    assert found.latest_completed.duration_ms == 200
    assert found.latest_completed.size_bytes == 100
    assert found.latest_completed.written_bytes == 40
    assert found.latest_completed.is_completed
    assert found.latest_savepoint.location == "three"
    assert found.latest_failed.failure == "CHECKPOINT_EXPIRED: too slow"
    assert found.latest_restored == RestoredCheckpoint(1, 4000, "one")
    assert [one.checkpoint_id for one in found.history] == [2, 3]
