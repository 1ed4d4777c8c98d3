"""Back pressure of the subtasks of a vertex: Flink's levels, the worst first, a page at a time."""

import pytest

from penstock.ops.jobs.views.pressure import OF_A_PAGE, pressure
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def told_of(job, vertex_id=SOURCE, page=0):
    snapshot = job.now_it_is()
    return pressure(snapshot, snapshot.vertex(vertex_id), page)


@pytest.mark.parametrize(
    ("blocked_ms", "level"),
    [(0, "ok"), (100, "ok"), (100.5, "low"), (500, "low"), (501, "high"), (1000, "high")],
)
def test_up_to_a_tenth_is_ok_and_above_the_half_is_high(blocked_ms, level):
    job = ToldJob().runs().has(attempt(), backpressured_ms_per_s=blocked_ms)
    told = told_of(job)
    assert (told["level"], told["subtasks"][0]["level"]) == (level, level)
    assert told["levels"][level] == sum(told["levels"].values()) == 1


def test_the_worst_come_first_and_those_that_have_not_reported_are_counted():
    job = ToldJob(parallelism=4).runs(parallelism=4)
    for subtask, blocked_ms in enumerate((50, 700, 300)):
        job.has(
            attempt(subtask=subtask),
            backpressured_ms_per_s=blocked_ms,
            busy_ms_per_s=10,
            idle_ms_per_s=20,
            buffers_out=3,
        )
    told = told_of(job)
    assert [one["subtask"] for one in told["subtasks"]] == [1, 2, 0]
    assert told["subtasks"][0] == {
        "subtask": 1, "attempt": 0, "endpoint": "host-a:5001", "level": "high",
        "back-pressured": 0.7, "busy": 0.01, "idle": 0.02, "queued-out": 3,
    }  # fmt: skip
    assert (told["level"], told["total"], told["unknown"]) == ("high", 3, 1)
    assert told["levels"] == {"ok": 1, "low": 1, "high": 1}


def test_a_vertex_of_which_nothing_runs_has_no_level():
    job = ToldJob().runs().has(attempt(SINK), backpressured_ms_per_s=900)
    assert told_of(job)["level"] is None
    job.moves(attempt(SINK), "FINISHED")
    assert (told_of(job, SINK)["level"], told_of(job, SINK)["unknown"]) == (None, 2)


def test_many_subtasks_come_page_by_page():
    count = OF_A_PAGE * 2 + 1
    job = ToldJob(parallelism=count).runs(parallelism=count)
    for subtask in range(count):
        job.has(attempt(subtask=subtask), backpressured_ms_per_s=subtask)
    first, last = told_of(job), told_of(job, page=99)
    assert [one["subtask"] for one in first["subtasks"]] == list(range(count - 1, OF_A_PAGE, -1))
    assert (last["page"], last["pages"], len(last["subtasks"])) == (2, 3, 1)
