"""`/jobs/:jobid/story`: entries, failures and states of attempts, in one order."""

from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.views.story import story
from tests.tools.observation.job_records import BEGAN, PLACE, SINK, SOURCE, ToldJob, attempt

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: "usd"'


def events(told):
    return [(one["timestamp"] - BEGAN, one["kind"], one["text"]) for one in told["events"]]


def failing():
    job = ToldJob().status("RUNNING").runs()
    job.moves(attempt(), "FAILED", after_ms=10)
    seen = FailureSeen(FailureInfo("KeyError", TRACEBACK), job.now, "Map[0]", attempt(), PLACE)
    job.tell(FailuresSeen(((seen, ()),))).status("RESTARTING", after_ms=5)
    return job


def test_a_failure_stands_where_it_happened():
    assert events(story(failing().now_it_is())) == [
        (0, "status", "the job is RUNNING"),
        (0, "vertex", "'Source: Numbers -> Map' runs: 2 subtasks"),
        (0, "vertex", "'Reduce -> Sink: <out>' runs: 2 subtasks"),
        (10, "failure", 'Map[0] failed: KeyError: "usd"'),
        (15, "status", "the job is RESTARTING"),
    ]


def test_a_restart_names_the_taskmanager_whose_loss_caused_it():
    lost = FailureInfo("TaskManagerLost", "TaskManager tm-1 is lost", lost_task_manager="tm-1")
    told = story(ToldJob().status("RESTARTING", failure=lost).status("RUNNING").now_it_is())
    assert events(told)[0][2] == "the job is RESTARTING because TaskManager tm-1 is lost"
    assert [one.get("taskmanager") for one in told["events"][:2]] == ["tm-1", None]


def test_a_vertex_has_the_states_of_its_attempts_and_a_subtask_only_its_own():
    job = failing().now_it_is()
    of_vertex = story(job, job.vertex(SOURCE))
    of_subtask = story(job, job.vertex(SOURCE), 1)
    subtasks = [one["subtask"] for one in of_vertex["events"] if one["kind"] == "subtask"]
    assert subtasks == [0] * 5 + [1] * 5 + [0]
    states = [one["state"] for one in of_subtask["events"] if one["kind"] == "subtask"]
    assert states == ["CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"]
    assert {one["subtask"] for one in of_subtask["events"] if "subtask" in one} == {1}
    place = "'Source: Numbers -> Map' subtask 1, attempt 0 is DEPLOYING on tm-1 (host-a)"
    assert place in [one["text"] for one in of_subtask["events"]]


def test_failures_of_other_vertices_are_no_part_of_a_vertex():
    job = failing().now_it_is()
    assert "failure" in {one["kind"] for one in story(job, job.vertex(SOURCE))["events"]}
    assert "failure" not in {one["kind"] for one in story(job, job.vertex(SINK))["events"]}


def test_credentials_are_hidden():
    job = ToldJob().status("RUNNING")
    failure = FailureInfo("OSError", "OSError: http://me:secret@host/ is gone")
    job.tell(FailuresSeen(((FailureSeen(failure, job.now), ()),)))
    told = story(job.now_it_is(), machine=["read http://me:secret@host/"])
    assert "secret" not in str(told)
    assert "the job failed: OSError" in told["events"][-1]["text"]
