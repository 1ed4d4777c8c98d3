"""What the Dispatcher wants done: Flink's rules for submissions, cancels, clean-ups and recovered jobs, one by one."""

import pytest

from penstock.machines.dispatcher.dispatcher import (
    Cancelled,
    Dispatcher,
    Duplicate,
    NotAccepted,
    Phase,
)
from penstock.machines.dispatcher.effects import (
    Cancel,
    CleanUp,
    EndSession,
    Initialise,
    Suspend,
)
from penstock.machines.dispatcher.settings import DispatcherSettings
from penstock.model.states import JobStatus

A, B, C = "a" * 32, "b" * 32, "c" * 32


def dispatcher(*, is_kept=False, **settings):
    return Dispatcher(DispatcherSettings(**settings), is_kept=is_kept)


def running(job_id=A, **settings):
    made = dispatcher(**settings)
    made.submit(job_id, "job", 0)
    made.started(job_id, 1)
    return made


def phase_of(made, job_id=A):
    return {job.job_id: job.phase for job in made.jobs}.get(job_id)


def test_a_submitted_job_is_initialised_and_runs():
    made = dispatcher()
    assert made.submit(A, "job", 0) == [Initialise(A)]
    assert phase_of(made) is Phase.INITIALISING
    assert made.started(A, 1) == []
    assert phase_of(made) is Phase.RUNNING


def collecting(timeout_ms=100):
    """A job whose client may be silent for so long. It runs at 1."""
    made = dispatcher()
    made.submit(A, "job", 0, timeout_ms)
    made.started(A, 1)
    return made


def cancelled(effects):
    return [one.job_id for one in effects if isinstance(one, Cancel)]


def test_a_job_whose_client_is_silent_is_cancelled_once():
    made = collecting()
    assert made.tick(100) == []
    (effect,) = made.tick(101)
    assert effect.job_id == A
    assert "client.heartbeat.timeout" in effect.cause
    assert made.tick(500) == []
    assert made.ended(A, JobStatus.CANCELED, 501) == [CleanUp(A, is_global=True)]


def test_each_sign_of_life_puts_it_off():
    made = collecting()
    assert made.client_lives(A, 90)
    assert made.tick(189) == []
    assert made.client_lives(A, 189, for_ms=1_000)
    assert made.tick(1_188) == []
    assert cancelled(made.tick(1_189)) == [A]


def test_a_job_that_nobody_collects_outlives_its_client():
    made = running()
    assert made.client_lives(A, 2, for_ms=5)
    assert made.tick(10**9) == []


def test_a_client_that_has_all_it_wants_may_go():
    made = collecting()
    made.client_is_served(A)
    made.client_lives(A, 2)
    assert made.tick(10**9) == []


def test_the_time_begins_when_the_job_runs():
    made = dispatcher()
    made.submit(A, "job", 0, 100)
    assert made.tick(10_000) == []
    made.started(A, 20_000)
    assert made.tick(20_099) == []
    assert cancelled(made.tick(20_100)) == [A]


def test_the_client_of_a_job_that_has_ended_or_is_not_known_is_told_so():
    made = collecting()
    assert not made.client_lives(B, 2)
    made.ended(A, JobStatus.FINISHED, 3)
    assert not made.client_lives(A, 4)


def test_jobs_wait_in_order_when_enough_initialise():
    made = dispatcher(most_initialising=1)
    assert made.submit(A, "a", 0) == [Initialise(A)]
    assert made.submit(B, "b", 0) == []
    assert made.submit(C, "c", 0) == []
    assert made.started(A, 1) == [Initialise(B)]
    assert made.start_failed(B, "no", 2) == [CleanUp(B, is_global=True), Initialise(C)]


@pytest.mark.parametrize("lead", ["initialising", "running", "cleaning"])
def test_an_id_that_is_not_over_is_a_duplicate(lead):
    made = dispatcher()
    made.submit(A, "first", 0)
    if lead != "initialising":
        made.started(A, 1)
    if lead == "cleaning":
        made.ended(A, JobStatus.FINISHED, 2)
    with pytest.raises(Duplicate, match="'first'.*fixed-job-id"):
        made.submit(A, "second", 3)


def test_an_id_that_is_cleaned_up_may_come_again():
    made = running()
    made.ended(A, JobStatus.FAILED, 2)
    made.cleaned(A, 3)
    assert made.submit(A, "again", 4) == [Initialise(A)]


def test_a_job_that_cannot_start_is_cleaned_up():
    made = dispatcher()
    made.submit(A, "job", 0)
    assert made.start_failed(A, "no slots", 1) == [CleanUp(A, is_global=True)]
    made.cleaned(A, 2)
    assert made.submit(A, "job", 3) == [Initialise(A)]


def test_a_recovered_job_that_cannot_start_ends_the_session():
    made = dispatcher(is_kept=True)
    made.recovered(A, "job", is_dirty=False, now_ms=0)
    assert made.start_failed(A, "no module", 1) == [EndSession("no module")]


def test_the_client_of_a_recovered_job_has_its_time_again_and_then_it_is_cancelled():
    """As in Flink, where a recovered job waits for its client from the recovery on."""
    made = dispatcher(is_kept=True)
    made.recovered(A, "job", is_dirty=False, now_ms=0, client_timeout_ms=100)
    made.started(A, 1_000)
    assert made.tick(1_099) == []
    assert made.client_lives(A, 1_099)
    assert made.tick(1_198) == []
    (effect,) = made.tick(1_199)
    assert effect.job_id == A


def test_a_dirty_result_is_cleaned_up_and_never_run():
    made = dispatcher(is_kept=True)
    assert made.recovered(A, "job", is_dirty=True, now_ms=0) == [CleanUp(A, is_global=True)]
    with pytest.raises(Duplicate):
        made.submit(A, "job", 1)


@pytest.mark.parametrize(
    ("status", "is_global"),
    [
        (JobStatus.FINISHED, True),
        (JobStatus.FAILED, True),
        (JobStatus.CANCELED, True),
        (JobStatus.SUSPENDED, False),
    ],
)
def test_only_a_job_that_is_over_for_good_is_removed_for_others(status, is_global):
    assert running().ended(A, status, 2) == [CleanUp(A, is_global=is_global)]


def test_a_cancel_of_a_running_job_is_passed_on():
    assert running().cancel(A, 2) == (Cancelled.ACCEPTED, [Cancel(A)])


def test_a_cancel_of_a_waiting_job_ends_it_unrun():
    made = dispatcher(most_initialising=1)
    made.submit(A, "a", 0)
    made.submit(B, "b", 0)
    assert made.cancel(B, 1) == (Cancelled.ACCEPTED, [CleanUp(B, is_global=True)])
    assert made.started(A, 2) == []


def test_a_cancel_while_a_job_initialises_is_kept_until_it_runs():
    made = dispatcher()
    made.submit(A, "a", 0)
    assert made.cancel(A, 1) == (Cancelled.ACCEPTED, [])
    assert made.started(A, 2) == [Cancel(A)]


@pytest.mark.parametrize(
    ("status", "answer"),
    [(JobStatus.CANCELED, Cancelled.ACCEPTED), (JobStatus.FINISHED, Cancelled.ENDED)],
)
def test_a_cancel_after_the_end_is_fine_only_for_a_cancelled_job(status, answer):
    made = running()
    made.ended(A, status, 2)
    assert made.cancel(A, 3) == (answer, [])


def test_a_job_that_nobody_knows_is_not_cancelled():
    assert dispatcher().cancel(A, 0) == (Cancelled.UNKNOWN, [])


def test_a_failed_clean_up_is_tried_again_after_longer_and_longer_pauses_up_to_an_hour():
    made = running()
    made.ended(A, JobStatus.FINISHED, 0)
    now, pauses = 0, []
    for _ in range(15):
        pause = made.cleanup_failed(A, now)
        assert made.tick(now + pause - 1) == []
        now += pause
        assert made.tick(now) == [CleanUp(A, is_global=True)]
        assert made.tick(now + 1) == []
        pauses.append(pause)
    assert pauses[:4] == [1000, 2000, 4000, 8000]
    assert pauses[-1] == 3_600_000


def test_ended_jobs_are_forgotten_after_a_time_and_the_oldest_of_too_many():
    made = dispatcher(expiration_ms=100, capacity=2)
    for at_ms, job_id in enumerate((A, B, C)):
        made.submit(job_id, "job", at_ms)
        made.started(job_id, at_ms)
        made.ended(job_id, JobStatus.FINISHED, at_ms)
        made.cleaned(job_id, at_ms)
    assert [job.job_id for job in made.jobs] == [B, C]
    made.tick(101)
    assert [job.job_id for job in made.jobs] == [C]


def test_what_runs_is_never_forgotten():
    made = running(expiration_ms=1, capacity=0)
    made.tick(10**9)
    assert phase_of(made) is Phase.RUNNING


@pytest.mark.parametrize(("is_kept", "wanted"), [(False, Cancel(A)), (True, Suspend(A))])
def test_jobs_outlive_a_session_only_with_high_availability(is_kept, wanted):
    made = dispatcher(is_kept=is_kept)
    made.submit(A, "job", 0)
    made.started(A, 1)
    assert made.close(2) == [wanted]
    assert not made.is_done
    made.ended(A, JobStatus.SUSPENDED if is_kept else JobStatus.CANCELED, 3)
    made.cleaned(A, 4)
    assert made.is_done
    with pytest.raises(NotAccepted):
        made.submit(B, "late", 5)


def test_a_job_that_starts_while_the_session_ends_is_let_go_at_once():
    made = dispatcher(is_kept=True)
    made.submit(A, "job", 0)
    assert made.close(1) == []
    assert made.started(A, 2) == [Suspend(A)]


def test_a_clean_up_that_has_failed_does_not_hold_the_session_up():
    made = running()
    made.ended(A, JobStatus.FINISHED, 1)
    made.close(2)
    assert not made.is_done
    made.cleanup_failed(A, 3)
    assert made.is_done


def test_a_clean_up_that_is_not_to_be_tried_again_stays_as_it_is():
    made = running(retries=1)
    made.ended(A, JobStatus.FINISHED, 0)
    assert made.cleanup_failed(A, 0) == 1000
    assert made.tick(1000) == [CleanUp(A, is_global=True)]
    assert made.cleanup_failed(A, 1000) is None
    assert made.tick(10**9) == []
    assert phase_of(made) is Phase.CLEANING
