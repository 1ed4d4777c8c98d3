"""Answers about checkpoints (Flink CheckpointingStatistics, CheckpointStatistics)."""

from penstock.ops.jobs.views import checkpoints
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def test_without_completed_checkpoints_percentiles_are_no_numbers():
    summary = checkpoints.overview(ToldJob().now_it_is())["summary"]["state_size"]
    assert summary == {
        "min": 0, "max": 0, "avg": 0, "p50": "NaN",
        "p90": "NaN", "p95": "NaN", "p99": "NaN", "p999": "NaN",
    }  # fmt: skip


def test_a_checkpoint_in_progress_has_no_duration():
    (one,) = checkpoints.overview(ToldJob().runs().triggers(1).now_it_is())["history"]
    assert (one["className"], one["status"]) == ("in_progress", "IN_PROGRESS")
    assert (one["end_to_end_duration"], one["latest_ack_timestamp"]) == (-1, -1)
    assert (one["num_subtasks"], one["num_acknowledged_subtasks"]) == (4, 0)


def test_kinds_of_checkpoints_have_flinks_names():
    told = ToldJob().runs()
    for number, kind in enumerate(("CHECKPOINT", "SAVEPOINT", "STOP_DRAIN")):
        told.triggers(number, kind).ends(number, kind)
    history = checkpoints.overview(told.now_it_is())["history"]
    assert [one["checkpoint_type"] for one in history] == [
        "SYNC_SAVEPOINT",
        "SAVEPOINT",
        "CHECKPOINT",
    ]
    assert [one["savepointFormat"] for one in history] == ["CANONICAL", "CANONICAL", None]


def test_a_vertex_of_a_checkpoint_is_complete_when_its_subtasks_are():
    told = ToldJob().runs().triggers(1)
    for subtask in (0, 1):
        told.acknowledges(1, attempt(SOURCE, subtask), 5, written_bytes=10)
    one = told.now_it_is().checkpoints.history[0]
    tasks = checkpoints.statistics(one, has_tasks=True)["tasks"]
    assert (tasks[SOURCE]["status"], tasks[SINK]["status"]) == ("COMPLETED", "IN_PROGRESS")
    assert (tasks[SOURCE]["checkpointed_size"], tasks[SOURCE]["end_to_end_duration"]) == (20, 10)


def test_subtasks_that_have_not_acknowledged_are_pending():
    told = ToldJob().runs().triggers(1).acknowledges(1, attempt(SOURCE, 1), 4, sync_ms=2.6)
    answer = checkpoints.subtasks(told.now_it_is().checkpoints.history[0], SOURCE)
    first, second = answer["subtasks"]
    assert first == {"className": "pending", "index": 0, "status": "pending_or_failed"}
    assert (second["checkpoint"]["sync"], second["end_to_end_duration"]) == (3, 4)
    assert answer["summary"]["checkpoint_duration"]["sync"]["max"] == 3
    assert answer["summary"]["alignment"]["buffered"]["p50"] == 0.0


def test_what_was_processed_during_the_alignment_is_told_everywhere():
    told = ToldJob().runs().triggers(1)
    told.acknowledges(1, attempt(SINK, 0), processed_bytes=5)
    one = (
        told.acknowledges(1, attempt(SINK, 1), processed_bytes=9).now_it_is().checkpoints.history[0]
    )
    answer = checkpoints.subtasks(one, SINK)
    assert answer["processed_data"] == 14
    assert [known["alignment"]["processed"] for known in answer["subtasks"]] == [5, 9]
    assert answer["summary"]["alignment"]["processed"]["avg"] == 7
    assert checkpoints.statistics(one, has_tasks=True)["tasks"][SINK]["processed_data"] == 14


def test_a_job_that_takes_no_checkpoints_has_no_settings_of_them():
    assert checkpoints.config(ToldJob(checkpoints=None).now_it_is()) is None
    assert checkpoints.config(ToldJob().now_it_is())["interval"] == 1000
