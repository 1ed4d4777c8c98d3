"""What a large job keeps is set aside from the collector of cycles while the job runs unchanged."""

import gc
from types import SimpleNamespace

import pytest

from penstock.hosting.jobmanager.long_lived import LEAST_SUBTASKS, THRESHOLDS, LongLived
from penstock.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.model.messages import ExecutionStateChanged, ResetSubtasks
from penstock.model.states import ExecutionState, JobStatus

DEPLOYING, RUNNING, CANCELED = (
    ExecutionState.DEPLOYING,
    ExecutionState.RUNNING,
    ExecutionState.CANCELED,
)


pytestmark = pytest.mark.usefixtures("nothing_aside")


@pytest.fixture
def nothing_aside():
    gc.unfreeze()
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def job_of(*parallelisms):
    vertices = {str(n): SimpleNamespace(parallelism=one) for n, one in enumerate(parallelisms)}
    return LongLived(SimpleNamespace(vertices=vertices))


def change(job, subtask, old, new):
    attempt_id = AttemptId(ExecutionVertexId(VertexId("v"), subtask), 0)
    job.execution_changed(ExecutionStateChanged(attempt_id, old, new, 0), None)


def run(job, subtasks):
    for subtask in range(subtasks):
        change(job, subtask, DEPLOYING, RUNNING)


def test_only_a_large_job_is_worth_it():
    assert not job_of(LEAST_SUBTASKS - 1).is_large
    assert job_of(LEAST_SUBTASKS // 2, LEAST_SUBTASKS // 2).is_large


def test_it_happens_when_all_tasks_run_and_ends_with_the_job():
    job = job_of(2, 1)
    run(job, 2)
    job.tick(None)
    assert gc.get_freeze_count() == 0
    change(job, 2, DEPLOYING, RUNNING)
    job.tick(None)
    assert gc.get_freeze_count() > 1000
    job.job_ended(JobStatus.FINISHED, None)
    assert gc.get_freeze_count() == 0


def test_a_restart_gives_back_and_what_runs_then_is_set_aside_again():
    job = job_of(1)
    run(job, 1)
    job.tick(None)
    change(job, 0, RUNNING, CANCELED)
    job.restarting(ResetSubtasks((), 0))
    job.tick(None)
    assert gc.get_freeze_count() == 0
    run(job, 1)
    job.tick(None)
    assert gc.get_freeze_count() > 1000
    job.job_ended(JobStatus.CANCELED, None)


def test_what_two_jobs_have_stays_aside_until_both_have_ended():
    first, second = job_of(1), job_of(1)
    for job in (first, second):
        run(job, 1)
        job.tick(None)
    first.job_ended(JobStatus.FINISHED, None)
    assert gc.get_freeze_count() > 1000
    second.job_ended(JobStatus.FINISHED, None)
    assert gc.get_freeze_count() == 0


def test_a_job_that_ends_before_it_runs_gives_nothing_back():
    gc.freeze()
    job = job_of(1)
    job.job_ended(JobStatus.FAILED, None)
    assert gc.get_freeze_count() > 0


def test_meanwhile_the_collector_seldom_looks_at_what_tasks_report():
    gc.set_threshold(700, 10, 10)
    first, second = job_of(1), job_of(1)
    for job in (first, second):
        run(job, 1)
        job.tick(None)
        assert gc.get_threshold() == THRESHOLDS
    first.job_ended(JobStatus.FINISHED, None)
    assert gc.get_threshold() == THRESHOLDS
    second.job_ended(JobStatus.FINISHED, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (5000, 20, 20)])
def test_what_the_program_has_set_is_not_lost(own):
    job = job_of(1)
    gc.set_threshold(*own)
    run(job, 1)
    job.tick(None)
    assert (gc.get_threshold()[0] == 0) is (own[0] == 0)
    job.job_ended(JobStatus.FINISHED, None)
    assert gc.get_threshold() == own


def test_what_the_program_sets_meanwhile_stays():
    job = job_of(1)
    run(job, 1)
    job.tick(None)
    gc.set_threshold(900, 9, 9)
    job.job_ended(JobStatus.FINISHED, None)
    assert gc.get_threshold() == (900, 9, 9)
