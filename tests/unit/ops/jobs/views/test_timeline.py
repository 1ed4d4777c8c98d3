"""States over time, as JSON."""

import json

import pytest

from penstock.engine.model.ids import ExecutionVertexId, taskmanager_name
from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import (
    CheckpointFailureReason,
    ExecutionStateChanged,
    FailureInfo,
    ResetSubtasks,
)
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.story_record import MOST_EVENTS
from penstock.ops.jobs.views import timeline
from penstock.ops.jobs.views.timeline import MOST_LANES
from tests.tools.observation.job_records import BEGAN, JOB, PLACE, SINK, SOURCE, ToldJob, attempt

CAUSE = "ValueError: bad http://me:word@host\n  in operator: x"


def checked(told):
    assert json.loads(json.dumps(told)) == told
    return told


def failed(told, one):
    running, broken = ExecutionState.RUNNING, ExecutionState.FAILED
    return told.tell(ExecutionStateChanged(one, running, broken, 0, "UserCodeError"), 10)


def restarted(cause=CAUSE):
    """Subtask 0 of the source fails and restarts."""
    told = ToldJob().status("RUNNING", after_ms=2).runs(vertices=[SOURCE])
    failed(told, attempt())
    failure = FailureInfo("UserCodeError", cause, is_user_code=True)
    told.tell(FailuresSeen(((FailureSeen(failure, told.now, "M[0]", attempt(), PLACE, 1), ()),)))
    told.status("RESTARTING").tell(
        ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False, checkpoint_id=7), 5
    )
    told.tell(CheckpointRestored(7, "/chk-7")).moves(attempt(number=1), "SCHEDULED", "DEPLOYING")
    return told.deployed(attempt(number=1)).moves(attempt(number=1), "RUNNING").status("RUNNING")


def spans(*changes):
    ends = [at_ms for _, at_ms in changes[1:]]
    return [
        {"state": state, "from": BEGAN + at_ms, "to": None if end is None else BEGAN + end}
        for (state, at_ms), end in zip(changes, [*ends, None], strict=True)
    ]


def test_the_lanes_of_a_job_and_its_vertices_with_marks():
    answer = checked(timeline.timeline(restarted().now_it_is(3)))
    assert (answer["now"], answer["from"], answer["to"]) == (BEGAN + 20, BEGAN, None)
    assert answer["job"]["spans"] == spans(
        ("INITIALIZING", 0), ("RUNNING", 2), ("RESTARTING", 12), ("RUNNING", 17)
    )
    source, sink = answer["vertices"]
    assert (source["id"], source["name"]) == (SOURCE, "Source: Numbers -> Map")
    assert [(one["state"], one["from"] - BEGAN) for one in source["spans"]][-3:] == [
        ("RUNNING", 2),
        ("FAILED", 12),
        ("RUNNING", 17),
    ]
    assert sink["spans"] == spans(("CREATED", 0))
    assert (sink["total"], sink["shown"], sink["kept"]) == (1, 1, 1_000)
    assert answer["marks"] == [
        {
            "at": BEGAN + 12,
            "kind": "failure",
            "text": "ValueError: bad http://******@host",
            "vertex-id": SOURCE,
            "subtask": 0,
        },
        {"at": BEGAN + 17, "kind": "restart", "text": "1 subtask restart from checkpoint 7"},
        {
            "at": BEGAN + 17,
            "kind": "restore",
            "text": "state is restored from checkpoint 7 at /chk-7",
        },
    ]
    assert answer["marks-total"] == 3


def test_savepoints_and_failed_checkpoints_are_marks_and_others_are_not():
    told = ToldJob().status("RUNNING").runs()
    told.triggers(1).ends(1).triggers(2).ends(
        2, location=None, reason=CheckpointFailureReason.CHECKPOINT_EXPIRED, text="slow"
    )
    told.triggers(3, "SAVEPOINT").ends(3, "SAVEPOINT", location="/mine")
    kinds = [one["kind"] for one in timeline.timeline(told.now_it_is())["marks"]]
    assert kinds == ["checkpoint-failed", "savepoint"]


def test_a_job_that_has_ended_has_no_open_span():
    told = ToldJob().status("RUNNING", after_ms=1).runs()
    told.status("FAILING", after_ms=1).status("FAILED", after_ms=1)
    answer = timeline.timeline(told.now_it_is(50))
    assert answer["to"] == BEGAN + 3
    lanes = [answer["job"], *answer["vertices"]]
    assert {lane["spans"][-1]["to"] for lane in lanes} == {BEGAN + 3}


def test_the_attempts_of_a_vertex():
    job = restarted().now_it_is(3)
    answer = checked(timeline.of_vertex(job, job.vertex(SOURCE), None))
    attempts = answer.pop("attempts")
    assert (answer["id"], answer["total"], answer["offset"], answer["shown"]) == (SOURCE, 3, 0, 3)
    assert answer["vertex"]["spans"][-1]["state"] == "RUNNING"
    assert [(one["subtask"], one["attempt"]) for one in attempts] == [(0, 0), (0, 1), (1, 0)]
    first = attempts[0]
    states = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FAILED")
    times = (0, 2, 2, 2, 2, 12)
    assert first == {
        "subtask": 0,
        "attempt": 0,
        "state": "FAILED",
        "host": "host-a",
        "taskmanager-id": taskmanager_name(JOB, PLACE.resource_id),
        "cause": "ValueError: bad http://******@host",
        "spans": [
            {"state": state, "from": BEGAN + begin, "to": BEGAN + end}
            for state, begin, end in zip(states, times, (*times[1:], 12), strict=True)
        ],
    }
    assert (attempts[1]["cause"], attempts[1]["spans"][-1]["to"]) == (None, None)


@pytest.mark.parametrize(
    ("subtask", "offset", "found"),
    [(0, 0, [(0, 0), (0, 1)]), (0, 1, [(0, 1)]), (1, 0, [(1, 0)]), (None, 2, [(1, 0)]), (1, 9, [])],
)
def test_one_subtask_and_a_place_to_begin(subtask, offset, found):
    job = restarted().now_it_is()
    answer = timeline.of_vertex(job, job.vertex(SOURCE), subtask, offset)
    assert [(one["subtask"], one["attempt"]) for one in answer["attempts"]] == found


def test_a_cause_that_is_cut_says_so_and_shows_no_part_of_a_password():
    job = restarted(f"ValueError: {'x' * 280} http://me:password@host").now_it_is(3)
    cause = timeline.of_vertex(job, job.vertex(SOURCE), None)["attempts"][0]["cause"]
    (mark,) = [one for one in timeline.timeline(job)["marks"] if one["kind"] == "failure"]
    assert cause == mark["text"]
    assert (len(cause), cause[-1], "me:" in cause) == (300, "…", False)


def test_a_page_of_attempts_of_many_subtasks():
    told = ToldJob(parallelism=MOST_LANES + 50)
    failed(told.moves(attempt(subtask=240), "RUNNING"), attempt(subtask=240))
    told.tell(ResetSubtasks((ExecutionVertexId(SOURCE, 240),), is_global=False, checkpoint_id=None))
    job = told.now_it_is()
    answer = timeline.of_vertex(job, job.vertex(SOURCE), None)
    assert answer["attempts"][0]["cause"] == "UserCodeError"  # The failure itself is forgotten.
    assert (answer["total"], answer["shown"]) == (251, 200)
    assert [one["subtask"] for one in answer["attempts"]][:3] == [240, 240, 0]
    rest = timeline.of_vertex(job, job.vertex(SOURCE), None, 200)
    assert rest["shown"] == 51
    assert job.vertex(SINK).lane.changes == (("CREATED", BEGAN),)


def test_lanes_of_all_vertices_are_shorter_if_there_are_many(monkeypatch):
    monkeypatch.setattr(timeline, "MOST_SPANS", 60)
    told = ToldJob().status("RUNNING")
    for number in range(40):
        told.moves(attempt(number=number), "RUNNING", "FAILED", after_ms=1)
    job = told.now_it_is()
    (source, _) = timeline.timeline(job)["vertices"]
    assert (source["total"], source["shown"]) == (120, 30)
    assert source["spans"][-1]["state"] == "FAILED"
    assert timeline.of_vertex(job, job.vertex(SOURCE), None)["vertex"]["shown"] == 120


def test_marks_that_are_forgotten_are_counted_and_nothing_else():
    told = ToldJob()
    for _ in range(MOST_EVENTS // 4 + 1):
        told.status("RESTARTING").tell(CheckpointRestored(7, "/chk-7")).tell(
            CheckpointRestored(7, "/chk-7")
        )
        told.status("RUNNING")
    answer = timeline.timeline(told.now_it_is())
    assert (len(answer["marks"]), answer["marks-total"]) == (500, 502)
