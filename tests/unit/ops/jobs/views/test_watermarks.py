"""The watermarks of all vertices, as JSON."""

import json

import pytest

from penstock.ops.jobs.diagnosis.watermarks import Figures
from penstock.ops.jobs.views import watermarks
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

NONE, LAST = -(2**63), 2**63 - 1
SOURCE_NAME = "Source: Numbers -> Map"


class Splits(Figures):
    def splits(self, vertex, subtask):
        return {"a": 300, "b": 100, "idle": 50} if subtask == 0 else {}


def answer(source, sink, figures=None):
    told = ToldJob().status("RUNNING").runs()
    for vertex_id, marks in ((SOURCE, source), (SINK, sink)):
        for subtask, watermark_ms in enumerate(marks):
            told.has(attempt(vertex_id, subtask), watermark_ms=watermark_ms)
    job = told.now_it_is()
    vertices = [watermarks.of_vertex(job, one, figures or Figures()) for one in job.vertices]
    found = watermarks.watermarks(job, vertices)
    assert json.loads(json.dumps(found)) == found
    return found


def of_sink(*marks, **more):
    return answer(*marks, **more)["vertices"][1]


def test_a_vertex_whole():
    found = answer((100, 300), (100, 100))
    assert found["now"] == BEGAN
    assert found["vertices"][1] == {
        "id": SINK,
        "name": "Reduce -> Sink: <out>",
        "source": False,
        "subtasks": 2,
        "lowest": {"watermark": 100, "lag": BEGAN - 100, "subtask": 0},
        "highest": {"watermark": 100, "lag": BEGAN - 100, "subtask": 1},
        "without": 0,
        "ended": 0,
        "channels": 2,
        "idle": {"count": 0, "subtasks": []},
        "holder": {"vertex-id": SOURCE, "vertex-name": SOURCE_NAME, "subtask": 0, "split": None},
        "why": None,
    }


def test_the_holder_of_a_source_is_its_own_subtask_with_the_split():
    source = answer((100, 300), (100, 100), Splits())["vertices"][0]
    assert source["holder"]["subtask"] == 0
    assert source["holder"]["split"] == "b"  # The one below it is idle.
    assert (source["channels"], source["idle"]["count"]) == (0, 0)


def test_a_channel_below_the_vertex_is_idle_and_does_not_hold_it():
    found = of_sink((100, 30_000), (30_000, 30_000))
    assert found["idle"]["count"] == 1
    assert found["idle"]["subtasks"][0]["subtask"] == 0
    assert found["holder"]["subtask"] == 1


@pytest.mark.parametrize(("speed", "idle"), [(1.0, 1), (10.0, 0)])
def test_a_channel_whose_sender_reported_earlier_is_not_idle(speed, idle):
    """A job that reads the past is fast: what was reported a second earlier is far behind."""
    assert of_sink((29_000, 30_000), (30_000, 30_000))["idle"]["count"] == 0
    told = ToldJob().status("RUNNING").runs()
    for vertex_id, marks in ((SOURCE, (20_000, 30_000)), (SINK, (30_000, 30_000))):
        for subtask, watermark_ms in enumerate(marks):
            told.has(attempt(vertex_id, subtask), watermark_ms=watermark_ms)
    job = told.now_it_is()
    assert watermarks.of_vertex(job, job.vertices[1], Figures(), speed)["idle"]["count"] == idle


def test_one_without_a_watermark_holds_all():
    found = of_sink((300, NONE), (NONE, NONE))
    assert found["holder"]["subtask"] == 1
    assert (found["without"], found["idle"]["count"], found["lowest"]) == (2, 0, None)


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ((NONE, NONE), "none of its subtasks has a watermark yet"),
        ((LAST, LAST), "its input has ended"),
        ((), "no subtask has reported yet"),
    ],
)
def test_what_is_unknown_says_why(marks, why):
    found = of_sink((LAST, LAST), marks)
    assert (found["lowest"], found["highest"], found["why"]) == (None, None, why)


def test_those_that_have_ended_are_counted_and_hold_nobody():
    found = of_sink((LAST, 100), (100, LAST))
    assert found["ended"] == 1
    assert found["lowest"]["watermark"] == 100
    assert (found["channels"], found["holder"]["subtask"]) == (1, 1)


def test_a_vertex_whose_subtasks_have_ended_has_none():
    told = ToldJob().status("RUNNING").runs()
    for subtask in range(2):
        told.has(attempt(SINK, subtask), watermark_ms=5).moves(attempt(SINK, subtask), "FINISHED")
    job = told.now_it_is()
    found = watermarks.of_vertex(job, job.vertices[1], Figures())
    assert (found["subtasks"], found["why"]) == (0, "all its subtasks have ended")
