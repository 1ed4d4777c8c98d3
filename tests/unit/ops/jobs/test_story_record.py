"""The story of a job: what is an entry of it, what is made one, and how long it may be."""

from penstock.engine.model.ids import ExecutionVertexId
from penstock.engine.model.job_events import CheckpointRestored, TaskManagerLost
from penstock.engine.model.messages import ResetSubtasks, TaskManagersLeaving
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason
from penstock.ops.jobs.story_record import MOST_EVENTS, StoryKind
from tests.tools.observation.job_records import PLACE, SOURCE, ToldJob, attempt


def texts(job):
    return [one.text for one in job.now_it_is().story.events]


def test_entries_are_in_the_order_of_what_happened():
    job = ToldJob().status("CREATED").registers().status("RUNNING").runs()
    job.tell(TaskManagersLeaving((PLACE.resource_id,), "Spark decommissions executor 1", 0))
    job.tell(TaskManagerLost(PLACE.resource_id, "no heartbeat"), 5).status("RESTARTING")
    job.tell(ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False, checkpoint_id=7))
    job.tell(CheckpointRestored(7, "/chk-7"), 3)
    assert texts(job) == [
        "the job is CREATED",
        "TaskManager tm-1 on host-a comes with 2 slots",
        "the job is RUNNING",
        "TaskManager tm-1 leaves: Spark decommissions executor 1",
        "TaskManager tm-1 is gone: no heartbeat",
        "the job is RESTARTING",
        "1 subtask restart from checkpoint 7",
        "state is restored from checkpoint 7 at /chk-7",
    ]
    story = job.now_it_is().story.events
    assert [one.at_ms - story[0].at_ms for one in story] == [0, 0, 0, 0, 5, 5, 5, 8]


def test_a_status_that_is_told_twice_is_one_entry():
    assert texts(ToldJob().status("RUNNING").status("RUNNING")) == ["the job is RUNNING"]


def test_completed_checkpoints_in_a_row_are_one_entry():
    job = ToldJob().status("RUNNING").runs()
    for number in (1, 2, 3):
        job.triggers(number).ends(number)
    job.triggers(4).ends(4, location=None, reason=None, text="too slow")
    job.triggers(5).ends(5).triggers(6, "SAVEPOINT").ends(6, "SAVEPOINT", location="/mine")
    assert texts(job)[1:] == [
        "checkpoints 1 to 3 are complete",
        "checkpoint 4 failed (None): too slow",
        "checkpoint 5 is complete",
        "savepoint 6 is complete at /mine",
    ]
    kinds = [one.kind for one in job.now_it_is().story.events][1:]
    expected = ("CHECKPOINT", "CHECKPOINT_FAILED", "CHECKPOINT", "SAVEPOINT")
    assert kinds == [StoryKind[name] for name in expected]


def test_a_checkpoint_that_met_the_end_of_a_task_is_no_failure():
    job = ToldJob().status("RUNNING").runs()
    reason = CheckpointFailureReason.TASK_CLOSING
    job.triggers(1).ends(1, location=None, reason=reason, text="task Numbers[0] is FINISHED")
    assert texts(job)[-1] == "checkpoint 1 was given up: task Numbers[0] is FINISHED"
    assert job.now_it_is().story.events[-1].kind is StoryKind.CHECKPOINT


def test_the_oldest_entries_are_forgotten_and_counted():
    job = ToldJob()
    for _ in range(MOST_EVENTS // 2 + 1):
        job.status("RESTARTING").status("RUNNING")
    told = job.now_it_is().story
    assert len(told.events) == MOST_EVENTS
    assert told.forgotten == 2


def test_states_of_attempts_are_not_entries():
    job = ToldJob().status("RUNNING").runs().moves(attempt(), "FAILED")
    assert texts(job) == ["the job is RUNNING"]
