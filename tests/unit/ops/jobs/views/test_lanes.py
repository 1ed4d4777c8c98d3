"""How subtasks spend their time, as JSON."""

import json

from penstock.ops.jobs.views.lanes import MOST_ROWS, lanes
from penstock.ops.metrics.history_rings import UNKNOWN, Step
from tests.tools.observation.job_records import BEGAN, SOURCE, ToldJob, attempt


def told_of(told, steps, sort="busy"):
    job = told.now_it_is(5)
    answer = lanes(job, job.vertex(SOURCE), steps, sort)
    answer["subtasks"] = list(answer["subtasks"])
    assert json.loads(json.dumps(answer)) == answer
    return answer


def running():
    told = ToldJob().status("RUNNING").runs()
    told.has(attempt(), busy_ms_per_s=10.0, backpressured_ms_per_s=900.0)
    return told.has(attempt(subtask=1), busy_ms_per_s=600.0)


STEPS = [Step(2_000, bytes([1, 60]), bytes([90, 0])), Step(4_000, bytes([2]), bytes([UNKNOWN]))]


def test_a_row_for_each_subtask_with_a_share_for_each_step():
    answer = told_of(running(), STEPS)
    why = answer.pop("why")
    assert answer == {
        "now": BEGAN + 5,
        "id": SOURCE,
        "name": "Source: Numbers -> Map",
        "step": 2_000,
        "kept": 600_000,
        "total": 2,
        "shown": 2,
        "timestamps": [2_000, 4_000],
        "subtasks": [
            {
                "subtask": 1,
                "attempt": 0,
                "state": "RUNNING",
                "busy": [60, None],
                "back-pressured": [0, None],
                "aligning": None,
            },
            {
                "subtask": 0,
                "attempt": 0,
                "state": "RUNNING",
                "busy": [1, 2],
                "back-pressured": [90, None],
                "aligning": None,
            },
        ],
    }
    assert set(why) == {"aligning"}


def test_subtasks_are_ranked_by_what_is_asked_for():
    answer = told_of(running(), STEPS, "back-pressured")
    assert [one["subtask"] for one in answer["subtasks"]] == [0, 1]


def test_a_vertex_without_lanes_says_so():
    answer = told_of(running(), None)
    assert answer["timestamps"] == answer["subtasks"][0]["busy"] == []
    assert answer["why"]["subtasks"] == "the driver has no room for the lanes of this vertex"


def test_of_many_subtasks_the_worst_are_told():
    told = ToldJob(parallelism=MOST_ROWS + 7)
    for subtask in range(MOST_ROWS + 7):
        one = attempt(subtask=subtask)
        told.moves(one, "RUNNING").has(one, busy_ms_per_s=float(subtask))
    told.moves(attempt(subtask=206), "FINISHED")
    answer = told_of(told, STEPS)
    assert (answer["total"], answer["shown"]) == (207, 200)
    assert answer["subtasks"][0]["subtask"] == 205
    assert answer["subtasks"][-1]["subtask"] == 6
