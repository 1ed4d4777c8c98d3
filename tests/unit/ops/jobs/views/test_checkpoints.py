"""Answers about checkpoints (Flink CheckpointingStatistics, CheckpointStatistics)."""

import json

import pytest

from penstock.engine.model.messages import CheckpointFailureReason
from penstock.ops.jobs.checkpoint_record import MOST_BRIEFS, MOST_FAILED
from penstock.ops.jobs.views import checkpoints
from penstock.ops.jobs.views.checkpoints import MOST_ROWS
from penstock.ops.jobs.views.rows import answer_of
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt


def strip_of(job):
    told = checkpoints.strip(job)
    assert json.loads(json.dumps(told)) == told
    return told


def gantt_of(job, checkpoint_id, vertices=None):
    wanted = vertices or job.vertices
    told = answer_of(checkpoints.gantt(job, job.checkpoints.of(checkpoint_id), wanted))
    assert json.loads(json.dumps(told)) == told
    return told


def everybody(told, checkpoint_id, **metrics):
    for vertex_id in (SOURCE, SINK):
        for subtask in range(2):
            told.acknowledges(checkpoint_id, attempt(vertex_id, subtask), 10, **metrics)
    return told


def running(**more):
    return ToldJob(**more).status("RUNNING").runs()


def test_a_complete_checkpoint_and_whom_it_waited_for():
    job = everybody(running().triggers(1, after_ms=5), 1, written_bytes=3).ends(1).now_it_is()
    answer = strip_of(job)
    (one,) = answer.pop("checkpoints")
    assert answer == {
        "now": BEGAN + 45,
        "interval": 1000,
        "total": 1,
        "completed": 1,
        "failed": 0,
        "given-up": 0,
        "in-progress": 0,
        "shown": 1,
        "kept": 60,
    }
    assert one == {
        "id": 1,
        "kind": "checkpoint",
        "unaligned": False,
        "state": "COMPLETED",
        "triggered": BEGAN + 5,
        "ended": BEGAN + 45,
        "duration": 40,
        "state-bytes": 0,
        "written-bytes": 12,
        "subtasks": 4,
        "acknowledged": 4,
        "failure": None,
        "straggler": {
            "vertex-id": SINK,
            "vertex-name": "Reduce -> Sink: <out>",
            "subtask": 1,
            "after": 40,
            "missing": False,
        },
        "has-details": True,
    }


def test_of_subtasks_that_took_equally_long_both_views_name_the_first_from_the_sources_on():
    told = running().triggers(1)
    for vertex, subtask in ((SINK, 1), (SINK, 0), (SOURCE, 1), (SOURCE, 0)):
        told.acknowledges(1, attempt(vertex, subtask), after_ms=0)
    job = told.ends(1).now_it_is()
    places = [(one["vertex-id"], one["subtask"]) for one in gantt_of(job, 1)["subtasks"]]
    assert places == [(SOURCE, 0), (SOURCE, 1), (SINK, 0), (SINK, 1)]
    (one,) = strip_of(job)["checkpoints"]
    assert (one["straggler"]["vertex-id"], one["straggler"]["subtask"]) == places[0]


def test_a_checkpoint_that_waits_names_the_first_that_is_missing():
    told = running().triggers(1, "SAVEPOINT").acknowledges(1, attempt(), 7)
    (one,) = strip_of(told.now_it_is(3))["checkpoints"]
    assert (one["kind"], one["state"], one["ended"], one["duration"]) == (
        "savepoint",
        "IN_PROGRESS",
        None,
        10,
    )
    assert one["straggler"] == {
        "vertex-id": SOURCE,
        "vertex-name": "Source: Numbers -> Map",
        "subtask": 1,
        "after": 10,
        "missing": True,
    }


def test_who_had_ended_before_is_not_missing():
    told = running().moves(attempt(SOURCE, 0), "FINISHED").triggers(1)
    told.acknowledges(1, attempt(SOURCE, 1))
    (one,) = strip_of(told.now_it_is())["checkpoints"]
    assert (one["subtasks"], one["straggler"]["vertex-id"]) == (3, SINK)
    rows = gantt_of(told.now_it_is(), 1)["subtasks"]
    assert [(one["vertex-id"], one["subtask"]) for one in rows] == [
        (SINK, 0),
        (SINK, 1),
        (SOURCE, 1),
    ]


def test_a_checkpoint_that_failed():
    told = running().triggers(1).acknowledges(1, attempt(), 7)
    told.ends(
        1,
        after_ms=20,
        location=None,
        reason=CheckpointFailureReason.CHECKPOINT_EXPIRED,
        text="http://me:word@host is slow",
    )
    (one,) = strip_of(told.now_it_is(50))["checkpoints"]
    assert (one["state"], one["duration"], one["failure"]) == (
        "FAILED",
        27,
        "CHECKPOINT_EXPIRED: http://******@host is slow",
    )
    assert (one["straggler"]["missing"], one["straggler"]["after"]) == (True, 27)
    assert gantt_of(told.now_it_is(), 1)["failure"] == one["failure"]


@pytest.mark.parametrize(
    "reason", ["COORDINATOR_SHUTDOWN", "COORDINATOR_SUSPEND", "CHECKPOINT_SUBSUMED", "TASK_CLOSING"]
)
def test_one_that_became_pointless_has_not_failed(reason):
    """Flink counts it as failed, and so does REST where Flink's clients read."""
    ended = {"reason": CheckpointFailureReason[reason], "text": "task is FINISHED"}
    told = running().triggers(1).ends(1, location=None, **ended)
    job = told.now_it_is()
    answer = strip_of(job)
    assert (answer["failed"], answer["given-up"], answer["total"]) == (0, 1, 1)
    assert answer["checkpoints"][0]["state"] == gantt_of(job, 1)["state"] == "GIVEN_UP"
    assert checkpoints.overview(job)["counts"]["failed"] == 1
    assert checkpoints.statistics(job.checkpoints.of(1), has_tasks=False)["status"] == "FAILED"
    (event,) = [one for one in job.story.events if "checkpoint" in one.text]
    assert event.kind == "checkpoint"
    assert event.text == "checkpoint 1 was given up: task is FINISHED"


def test_failed_checkpoints_are_told_longer_than_others():
    told = running()
    for number in range(1, 31):
        told.triggers(number).ends(
            number, location=None, reason=CheckpointFailureReason.CHECKPOINT_EXPIRED, text=""
        )
    for number in range(31, 31 + MOST_BRIEFS):
        told.triggers(number).ends(number)
    answer = strip_of(told.now_it_is())
    ids = [one["id"] for one in answer["checkpoints"]]
    newest = list(range(30 + MOST_BRIEFS, 30, -1))
    assert ids == [*newest, *range(30, 30 - MOST_FAILED, -1)]
    assert (answer["total"], answer["shown"]) == (90, 80)
    assert [one["has-details"] for one in answer["checkpoints"]].count(True) == 11


def test_a_job_that_takes_no_checkpoints():
    answer = strip_of(ToldJob(checkpoints=None).now_it_is())
    assert (answer["interval"], answer["checkpoints"]) == (None, [])


def test_the_parts_of_an_acknowledgement():
    told = running().triggers(1)
    told.acknowledges(
        1,
        attempt(SINK),
        30,
        start_delay_ms=10.4,
        alignment_ms=5.0,
        sync_ms=2.0,
        async_ms=7.0,
        written_bytes=11,
        bytes_in_flight=12,
        processed_bytes=13,
    )
    answer = gantt_of(told.now_it_is(10), 1)
    *missing, one = answer.pop("subtasks")
    assert answer == {
        "now": BEGAN + 40,
        "id": 1,
        "kind": "checkpoint",
        "unaligned": False,
        "state": "IN_PROGRESS",
        "triggered": BEGAN,
        "ended": None,
        "duration": 40,
        "failure": None,
        "total": 4,
        "missing": 3,
        "shown": 4,
    }
    assert one == {
        "vertex-id": SINK,
        "vertex-name": "Reduce -> Sink: <out>",
        "subtask": 0,
        "missing": False,
        "after": 30,
        "start-delay": 10,
        "alignment": 5,
        "sync": 2,
        "async": 7,
        "end": BEGAN + 30,
        "state-bytes": 0,
        "written-bytes": 11,
        "in-flight-bytes": 12,
        "processed-bytes": 13,
        "unaligned": True,
    }
    assert {row["missing"] for row in missing} == {True}
    assert {row["after"] for row in missing} == {40}
    assert {row["sync"] for row in missing} == {None}


def test_of_many_subtasks_the_worst_are_told():
    parallelism = MOST_ROWS + 50
    told = running(parallelism=parallelism).runs(parallelism=parallelism).triggers(1)
    for subtask in range(parallelism):
        told.acknowledges(1, attempt(SOURCE, subtask), 1)
    job = told.now_it_is()
    answer = gantt_of(job, 1)
    assert (answer["total"], answer["missing"], answer["shown"]) == (500, 250, 200)
    assert {row["vertex-id"] for row in answer["subtasks"]} == {SINK}
    answer = gantt_of(job, 1, [job.vertex(SOURCE)])
    assert (answer["total"], answer["missing"], answer["shown"]) == (250, 0, 200)
    assert answer["subtasks"][0]["subtask"] == parallelism - 1
    assert answer["subtasks"][-1]["subtask"] == 50


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
