"""Statistics of checkpoints (Flink CheckpointStatsTracker, CheckpointStatsHistory)."""

import pytest

from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason
from penstock.ops.jobs import checkpoint_record
from penstock.ops.jobs.snapshots import Figures
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

DECLINED = {"location": None, "reason": CheckpointFailureReason.CHECKPOINT_DECLINED, "text": "no"}


def test_a_checkpoint_waits_for_the_subtasks_that_run_when_it_begins():
    told = ToldJob().runs().moves(attempt(SOURCE, 1), "FINISHED").triggers(1)
    (one,) = told.now_it_is().checkpoints.history
    assert one.subtasks == {SOURCE: 1, SINK: 2}
    assert (one.triggered_ms, one.is_completed, one.is_failed) == (BEGAN, False, False)


def test_an_acknowledgement_counts_once():
    told = ToldJob().runs().triggers(1)
    told.acknowledges(1, attempt(), 20, written_bytes=5).acknowledges(1, attempt(), 20)
    (ack,) = told.now_it_is().checkpoints.history[0].acks[SOURCE]
    assert (ack.ack_ms, ack.metrics.written_bytes) == (BEGAN + 20, 5)


def test_bytes_of_alignments_and_of_data_in_flight_are_summed_over_subtasks():
    told = ToldJob().runs().triggers(1)
    told.acknowledges(1, attempt(SINK, 0), processed_bytes=3, bytes_in_flight=40)
    told.acknowledges(1, attempt(SINK, 1), processed_bytes=4, bytes_in_flight=50)
    now = told.ends(1, metadata_bytes=77).now_it_is().checkpoints
    assert now.figures["processed_data"].average == 7
    assert now.figures["persisted_data"].average == 90
    assert now.latest_completed.metadata_bytes == 77


def test_what_comes_after_the_end_changes_nothing():
    told = ToldJob().runs().triggers(1).ends(1)
    before = told.now_it_is().checkpoints
    assert told.acknowledges(1, attempt()).now_it_is().checkpoints == before


def test_checkpoints_are_counted_by_how_they_went():
    told = ToldJob().runs()
    told.triggers(1).ends(1).triggers(2).ends(2, **DECLINED).triggers(3)
    now = told.now_it_is().checkpoints
    assert (now.completed, now.failed, now.in_progress) == (1, 1, 1)
    assert [one.checkpoint_id for one in now.history] == [3, 2, 1]
    assert now.latest_failed.failure == "CHECKPOINT_DECLINED: no"


def test_a_checkpoint_that_never_began_counts_as_failed_and_leaves_no_entry():
    now = ToldJob().runs().ends(1, **DECLINED).now_it_is().checkpoints
    assert (now.failed, now.history, now.latest_failed) == (1, (), None)


@pytest.mark.parametrize("reason", ["COORDINATOR_SHUTDOWN", "TASK_CLOSING"])
def test_a_checkpoint_that_met_the_end_of_its_job_was_given_up_but_a_savepoint_has_failed(reason):
    """Flink counts both as failed."""
    met_an_end = {"location": None, "reason": CheckpointFailureReason[reason], "text": "FINISHED"}
    told = ToldJob().runs().triggers(1).ends(1, **met_an_end)
    now = told.now_it_is().checkpoints
    assert (now.failed, now.given_up, now.in_progress) == (1, 1, 0)
    assert now.history[0].is_given_up
    told.triggers(2, "SAVEPOINT").ends(2, "SAVEPOINT", **met_an_end)
    now = told.now_it_is().checkpoints
    assert (now.failed, now.given_up, now.latest_failed.checkpoint_id) == (2, 1, 2)


def test_savepoints_and_checkpoints_have_a_latest_one_each():
    told = ToldJob().runs().triggers(1).ends(1)
    told.triggers(2, "SAVEPOINT").ends(2, "SAVEPOINT", location="/mine")
    now = told.now_it_is().checkpoints
    assert (now.latest_completed.checkpoint_id, now.latest_savepoint.location) == (1, "/mine")


def test_the_history_is_bounded_and_the_latest_ones_stay_findable():
    told = ToldJob(history_size=2).runs().triggers(1, "SAVEPOINT").ends(1, "SAVEPOINT")
    for number in (2, 3, 4):
        told.triggers(number).ends(number)
    now = told.now_it_is().checkpoints
    assert [one.checkpoint_id for one in now.history] == [4, 3]
    assert now.of(1) is not None
    assert now.of(2) is None


def test_figures_are_of_completed_checkpoints_only():
    told = ToldJob().runs()
    for number, size in ((1, 10), (2, 15), (3, 1000)):
        told.triggers(number).acknowledges(number, attempt(), 7, written_bytes=size)
        told.ends(number, **(DECLINED if size == 1000 else {}))
    figures = told.now_it_is().checkpoints.figures
    sizes = figures["checkpointed_size"]
    assert (sizes.minimum, sizes.maximum, sizes.average) == (10, 15, 12)
    assert sizes.percentiles == (12.5, 15, 15, 15, 15)
    assert figures["end_to_end_duration"].average == 7


def test_percentiles_are_of_the_newest_ones_and_extremes_of_all(monkeypatch):
    monkeypatch.setattr(checkpoint_record, "_REMEMBERED_FIGURES", 2)
    told = ToldJob().runs()
    for number, size in ((1, 1), (2, 15), (3, 10), (4, 20)):
        told.triggers(number).acknowledges(number, attempt(), 7, written_bytes=size).ends(number)
    sizes = told.now_it_is().checkpoints.figures["checkpointed_size"]
    assert (sizes.minimum, sizes.maximum) == (1, 20)
    assert sizes.percentiles == (15, 20, 20, 20, 20)


def test_a_checkpoint_that_nobody_acknowledged_has_no_duration():
    figures = ToldJob().runs().triggers(1).ends(1, after_ms=9).now_it_is().checkpoints.figures
    assert figures["end_to_end_duration"] == Figures()


def test_restores_are_counted():
    told = (
        ToldJob().tell(CheckpointRestored(4, "/chk-4"), 3).tell(CheckpointRestored(6, "/chk-6"), 3)
    )
    now = told.now_it_is().checkpoints
    assert (now.restored, now.latest_restored.checkpoint_id) == (2, 6)
    assert now.latest_restored.restored_at_ms == BEGAN + 6
