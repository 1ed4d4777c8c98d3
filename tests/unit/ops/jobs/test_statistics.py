"""What a program is told of its checkpoints."""

from penstock.engine.model.checkpoints import CheckpointStatistics, RestoredCheckpoint
from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import CheckpointFailureReason
from penstock.ops.jobs.checkpoint_record import statistics_of
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

TOO_SLOW = {
    "location": None,
    "reason": CheckpointFailureReason.CHECKPOINT_EXPIRED,
    "text": "too slow",
}


def of(told):
    return statistics_of(told.now_it_is().checkpoints)


def test_a_job_without_checkpoints_has_none():
    assert of(ToldJob().runs()) == CheckpointStatistics()


def test_each_is_counted_and_the_latest_of_each_kind_is_known():
    told = ToldJob(history_size=3).runs()
    told.triggers(1).acknowledges(1, attempt(SOURCE), 150, written_bytes=40, sync_ms=2.0)
    told.acknowledges(1, attempt(SINK), 50, written_bytes=2, sync_ms=1.0, alignment_ms=3.0)
    told.ends(1, after_ms=20)
    told.triggers(2).ends(2, after_ms=7, **TOO_SLOW)
    told.triggers(3, "SAVEPOINT").ends(3, "SAVEPOINT").triggers(4)
    found = of(told)
    assert (found.completed, found.failed, found.in_progress, found.triggered) == (2, 1, 1, 4)
    first = found.latest_completed
    assert (first.checkpoint_id, first.triggered_at_ms) == (1, BEGAN)
    assert (first.duration_ms, first.written_bytes) == (200, 42)
    assert (first.alignment_ms, first.sync_ms, first.is_completed) == (3.0, 2.0, True)
    assert found.latest_savepoint.location == "/chk-3"
    assert found.latest_failed.failure == "CHECKPOINT_EXPIRED: too slow"
    assert found.latest_failed.duration_ms == 7
    assert [one.checkpoint_id for one in found.history] == [2, 3]


def test_what_it_was_restored_from():
    told = (
        ToldJob()
        .tell(CheckpointRestored(4, "/chk-4"), 3)
        .tell(CheckpointRestored(6, "/sp-6", True), 3)
    )
    found = of(told)
    assert found.restored == 2
    assert found.latest_restored == RestoredCheckpoint(6, BEGAN + 6, "/sp-6", is_savepoint=True)
