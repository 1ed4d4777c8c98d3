"""TaskSubmissions: the order of checks and what each refusal leaves as it was (spec 1.2)."""

import pytest

from penstock.machines.taskmanager.task_slots import TaskSlots
from penstock.machines.taskmanager.task_submission import TaskSubmissionError, TaskSubmissions
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    ExecutionVertexId,
    FencingToken,
    JobId,
    VertexId,
)
from penstock.model.states import SlotState

JOB, TOKEN, SLOT = JobId("job"), FencingToken("now"), AllocationId("a1")
TASK = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)


@pytest.fixture
def slots():
    slots = TaskSlots(1)
    slots.allocate(0, JOB, SLOT)
    return slots


@pytest.fixture
def submissions(slots):
    submissions = TaskSubmissions(slots)
    submissions.connect(JOB, TOKEN)
    return submissions


def test_a_task_makes_its_slot_active_and_moves_in(slots, submissions):
    submissions.submit(JOB, TOKEN, SLOT, TASK)
    assert slots.slot(SLOT).state is SlotState.ACTIVE
    assert slots.slot(SLOT).attempts == {TASK}
    assert slots.slot(SLOT).ticket is None


@pytest.mark.parametrize(
    ("job", "token", "allocation", "text"),
    [
        (JobId("other"), TOKEN, SLOT, "no connection to a JobMaster of job other"),
        (JOB, FencingToken("former"), SLOT, "under fencing token former"),
        (JOB, TOKEN, AllocationId("a2"), "slot not found"),
    ],
)
def test_who_is_refused_changes_nothing(slots, submissions, job, token, allocation, text):
    with pytest.raises(TaskSubmissionError, match=text):
        submissions.submit(job, token, allocation, TASK)
    assert slots.slot(SLOT).state is SlotState.ALLOCATED
    assert slots.slot(SLOT).attempts == set()


def test_a_second_task_of_the_same_attempt_is_refused_and_the_first_stays(slots, submissions):
    submissions.submit(JOB, TOKEN, SLOT, TASK)
    with pytest.raises(TaskSubmissionError, match="already"):
        submissions.submit(JOB, TOKEN, SLOT, TASK)
    assert slots.slot(SLOT).attempts == {TASK}


def test_a_new_leader_ends_the_former_one_s_right_to_submit(submissions):
    submissions.connect(JOB, FencingToken("next"))
    with pytest.raises(TaskSubmissionError, match="led under another one"):
        submissions.submit(JOB, TOKEN, SLOT, TASK)
    submissions.disconnect(JOB)
    with pytest.raises(TaskSubmissionError, match="no connection"):
        submissions.submit(JOB, FencingToken("next"), SLOT, TASK)


def test_a_slot_of_another_job_is_not_lent(submissions):
    submissions.connect(JobId("other"), TOKEN)
    with pytest.raises(TaskSubmissionError, match="belongs to job job"):
        submissions.submit(JobId("other"), TOKEN, SLOT, TASK)
