"""What the Dispatcher wants done: Flink's rules for submissions, cancels, clean-ups and recovered jobs, one by one."""

import pytest

from penstock.engine.machines.dispatcher import (
    Cancel,
    CancelJob,
    Cancelled,
    CleanUp,
    CleanUpFailed,
    ClientLives,
    ClientServed,
    CloseSession,
    Dispatcher,
    DispatcherSettings,
    Duplicate,
    EndSession,
    Initialise,
    JobCleaned,
    JobEnded,
    JobRecovered,
    JobStarted,
    JobStartFailed,
    JobSubmitted,
    NotAccepted,
    Phase,
    Suspend,
    Tick,
    dispatcher_settings_of,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.states import JobStatus

A, B, C = "a" * 32, "b" * 32, "c" * 32


def dispatcher(*, is_kept=False, **settings):
    return Dispatcher(DispatcherSettings(**settings), is_kept=is_kept)


def running(job_id=A, **settings):
    made = dispatcher(**settings)
    made.step(JobSubmitted(job_id, "job"), 0)
    made.step(JobStarted(job_id), 1)
    return made


def client_lives(made, job_id, now_ms, for_ms=None):
    """Returns: whether the client is told that its job is known, and has not ended."""
    assert made.step(ClientLives(job_id, for_ms), now_ms) == []
    return made.is_alive(job_id)


def cancel(made, job_id, now_ms):
    effects = made.step(CancelJob(job_id), now_ms)
    return made.cancelled(job_id), effects


def spoil(made, job_id, now_ms):
    """A clean-up fails. Returns: after how many ms it is tried again; None: it is not."""
    assert made.step(CleanUpFailed(job_id), now_ms) == []
    at_ms = made.known(job_id).retry_at_ms
    return None if at_ms is None else at_ms - now_ms


def phase_of(made, job_id=A):
    return {job.job_id: job.phase for job in made.jobs}.get(job_id)


def test_a_submitted_job_is_initialised_and_runs():
    made = dispatcher()
    assert made.step(JobSubmitted(A, "job"), 0) == [Initialise(A)]
    assert phase_of(made) is Phase.INITIALISING
    assert made.step(JobStarted(A), 1) == []
    assert phase_of(made) is Phase.RUNNING


def collecting(timeout_ms=100):
    """A job whose client may be silent for so long. It runs at 1."""
    made = dispatcher()
    made.step(JobSubmitted(A, "job", timeout_ms), 0)
    made.step(JobStarted(A), 1)
    return made


def cancelled(effects):
    return [one.job_id for one in effects if isinstance(one, Cancel)]


def test_a_job_whose_client_is_silent_is_cancelled_once():
    made = collecting()
    assert made.step(Tick(), 100) == []
    (effect,) = made.step(Tick(), 101)
    assert effect.job_id == A
    assert "client.heartbeat.timeout" in effect.cause
    assert made.step(Tick(), 500) == []
    assert made.step(JobEnded(A, JobStatus.CANCELED), 501) == [CleanUp(A, is_global=True)]


def test_each_sign_of_life_puts_it_off():
    made = collecting()
    assert client_lives(made, A, 90)
    assert made.step(Tick(), 189) == []
    assert client_lives(made, A, 189, for_ms=1_000)
    assert made.step(Tick(), 1_188) == []
    assert cancelled(made.step(Tick(), 1_189)) == [A]


def test_a_job_that_nobody_collects_outlives_its_client():
    made = running()
    assert client_lives(made, A, 2, for_ms=5)
    assert made.step(Tick(), 10**9) == []


def test_a_client_that_has_all_it_wants_may_go():
    made = collecting()
    made.step(ClientServed(A), 2)
    client_lives(made, A, 2)
    assert made.step(Tick(), 10**9) == []


def test_the_time_begins_when_the_job_runs():
    made = dispatcher()
    made.step(JobSubmitted(A, "job", 100), 0)
    assert made.step(Tick(), 10_000) == []
    made.step(JobStarted(A), 20_000)
    assert made.step(Tick(), 20_099) == []
    assert cancelled(made.step(Tick(), 20_100)) == [A]


def test_the_client_of_a_job_that_has_ended_or_is_not_known_is_told_so():
    made = collecting()
    assert not client_lives(made, B, 2)
    made.step(JobEnded(A, JobStatus.FINISHED), 3)
    assert not client_lives(made, A, 4)


def test_jobs_wait_in_order_when_enough_initialise():
    made = dispatcher(most_initialising=1)
    assert made.step(JobSubmitted(A, "a"), 0) == [Initialise(A)]
    assert made.step(JobSubmitted(B, "b"), 0) == []
    assert made.step(JobSubmitted(C, "c"), 0) == []
    assert made.step(JobStarted(A), 1) == [Initialise(B)]
    assert made.step(JobStartFailed(B, "no"), 2) == [CleanUp(B, is_global=True), Initialise(C)]


@pytest.mark.parametrize("lead", ["initialising", "running", "cleaning"])
def test_an_id_that_is_not_over_is_a_duplicate(lead):
    made = dispatcher()
    made.step(JobSubmitted(A, "first"), 0)
    if lead != "initialising":
        made.step(JobStarted(A), 1)
    if lead == "cleaning":
        made.step(JobEnded(A, JobStatus.FINISHED), 2)
    with pytest.raises(Duplicate, match="'first'.*fixed-job-id"):
        made.step(JobSubmitted(A, "second"), 3)


def test_an_id_that_is_cleaned_up_may_come_again():
    made = running()
    made.step(JobEnded(A, JobStatus.FAILED), 2)
    made.step(JobCleaned(A), 3)
    assert made.step(JobSubmitted(A, "again"), 4) == [Initialise(A)]


def test_a_job_that_cannot_start_is_cleaned_up():
    made = dispatcher()
    made.step(JobSubmitted(A, "job"), 0)
    assert made.step(JobStartFailed(A, "no slots"), 1) == [CleanUp(A, is_global=True)]
    made.step(JobCleaned(A), 2)
    assert made.step(JobSubmitted(A, "job"), 3) == [Initialise(A)]


def test_a_recovered_job_that_cannot_start_ends_the_session():
    made = dispatcher(is_kept=True)
    made.step(JobRecovered(A, "job", False), 0)
    assert made.step(JobStartFailed(A, "no module"), 1) == [EndSession("no module")]


def test_the_client_of_a_recovered_job_has_its_time_again_and_then_it_is_cancelled():
    """As in Flink, where a recovered job waits for its client from the recovery on."""
    made = dispatcher(is_kept=True)
    made.step(JobRecovered(A, "job", False, 100), 0)
    made.step(JobStarted(A), 1_000)
    assert made.step(Tick(), 1_099) == []
    assert client_lives(made, A, 1_099)
    assert made.step(Tick(), 1_198) == []
    (effect,) = made.step(Tick(), 1_199)
    assert effect.job_id == A


def test_a_dirty_result_is_cleaned_up_and_never_run():
    made = dispatcher(is_kept=True)
    assert made.step(JobRecovered(A, "job", True), 0) == [CleanUp(A, is_global=True)]
    with pytest.raises(Duplicate):
        made.step(JobSubmitted(A, "job"), 1)


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
    assert running().step(JobEnded(A, status), 2) == [CleanUp(A, is_global=is_global)]


def test_a_cancel_of_a_running_job_is_passed_on():
    assert cancel(running(), A, 2) == (Cancelled.ACCEPTED, [Cancel(A)])


def test_a_cancel_of_a_waiting_job_ends_it_unrun():
    made = dispatcher(most_initialising=1)
    made.step(JobSubmitted(A, "a"), 0)
    made.step(JobSubmitted(B, "b"), 0)
    assert cancel(made, B, 1) == (Cancelled.ACCEPTED, [CleanUp(B, is_global=True)])
    assert made.step(JobStarted(A), 2) == []


def test_a_cancel_while_a_job_initialises_is_kept_until_it_runs():
    made = dispatcher()
    made.step(JobSubmitted(A, "a"), 0)
    assert cancel(made, A, 1) == (Cancelled.ACCEPTED, [])
    assert made.step(JobStarted(A), 2) == [Cancel(A)]


@pytest.mark.parametrize(
    ("status", "answer"),
    [(JobStatus.CANCELED, Cancelled.ACCEPTED), (JobStatus.FINISHED, Cancelled.ENDED)],
)
def test_a_cancel_after_the_end_is_fine_only_for_a_cancelled_job(status, answer):
    made = running()
    made.step(JobEnded(A, status), 2)
    assert cancel(made, A, 3) == (answer, [])


def test_a_job_that_nobody_knows_is_not_cancelled():
    assert cancel(dispatcher(), A, 0) == (Cancelled.UNKNOWN, [])


def test_a_failed_clean_up_is_tried_again_after_longer_and_longer_pauses_up_to_an_hour():
    made = running()
    made.step(JobEnded(A, JobStatus.FINISHED), 0)
    now, pauses = 0, []
    for _ in range(15):
        pause = spoil(made, A, now)
        assert made.step(Tick(), now + pause - 1) == []
        now += pause
        assert made.step(Tick(), now) == [CleanUp(A, is_global=True)]
        assert made.step(Tick(), now + 1) == []
        pauses.append(pause)
    assert pauses[:4] == [1000, 2000, 4000, 8000]
    assert pauses[-1] == 3_600_000


def test_ended_jobs_are_forgotten_after_a_time_and_the_oldest_of_too_many():
    made = dispatcher(expiration_ms=100, capacity=2)
    for at_ms, job_id in enumerate((A, B, C)):
        made.step(JobSubmitted(job_id, "job"), at_ms)
        made.step(JobStarted(job_id), at_ms)
        made.step(JobEnded(job_id, JobStatus.FINISHED), at_ms)
        made.step(JobCleaned(job_id), at_ms)
    assert [job.job_id for job in made.jobs] == [B, C]
    made.step(Tick(), 101)
    assert [job.job_id for job in made.jobs] == [C]


def test_what_runs_is_never_forgotten():
    made = running(expiration_ms=1, capacity=0)
    made.step(Tick(), 10**9)
    assert phase_of(made) is Phase.RUNNING


@pytest.mark.parametrize(("is_kept", "wanted"), [(False, Cancel(A)), (True, Suspend(A))])
def test_jobs_outlive_a_session_only_with_high_availability(is_kept, wanted):
    made = dispatcher(is_kept=is_kept)
    made.step(JobSubmitted(A, "job"), 0)
    made.step(JobStarted(A), 1)
    assert made.step(CloseSession(), 2) == [wanted]
    assert not made.is_done
    made.step(JobEnded(A, JobStatus.SUSPENDED if is_kept else JobStatus.CANCELED), 3)
    made.step(JobCleaned(A), 4)
    assert made.is_done
    with pytest.raises(NotAccepted):
        made.step(JobSubmitted(B, "late"), 5)


def test_a_job_that_starts_while_the_session_ends_is_let_go_at_once():
    made = dispatcher(is_kept=True)
    made.step(JobSubmitted(A, "job"), 0)
    assert made.step(CloseSession(), 1) == []
    assert made.step(JobStarted(A), 2) == [Suspend(A)]


def test_a_clean_up_that_has_failed_does_not_hold_the_session_up():
    made = running()
    made.step(JobEnded(A, JobStatus.FINISHED), 1)
    made.step(CloseSession(), 2)
    assert not made.is_done
    made.step(CleanUpFailed(A), 3)
    assert made.is_done


def test_a_clean_up_that_is_not_to_be_tried_again_stays_as_it_is():
    made = running(retries=1)
    made.step(JobEnded(A, JobStatus.FINISHED), 0)
    assert spoil(made, A, 0) == 1000
    assert made.step(Tick(), 1000) == [CleanUp(A, is_global=True)]
    assert spoil(made, A, 1000) is None
    assert made.step(Tick(), 10**9) == []
    assert phase_of(made) is Phase.CLEANING


def pauses(count, **options):
    """The pauses after the first so many failures, in ms."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    settings = dispatcher_settings_of(Settings(named))
    return [settings.retry_after(failures) for failures in range(1, count + 1)]


def test_pauses_double_up_to_an_hour_without_end():
    found = pauses(40)
    assert found[:4] == [1000, 2000, 4000, 8000]
    assert set(found[12:]) == {3_600_000}


def test_exponential_pauses_as_they_are_set():
    options = {
        "cleanup_strategy__exponential_delay__initial_backoff": "10 ms",
        "cleanup_strategy__exponential_delay__max_backoff": "25 ms",
        "cleanup_strategy__exponential_delay__attempts": "3",
    }
    assert pauses(5, **options) == [10, 20, 25, None, None]


@pytest.mark.parametrize("name", ["fixed-delay", "fixeddelay", "Fixed-Delay"])
def test_a_fixed_pause_is_a_minute_unless_it_is_set(name):
    assert pauses(3, cleanup_strategy=name) == [60_000] * 3
    options = {
        "cleanup_strategy__fixed_delay__delay": "5 s",
        "cleanup_strategy__fixed_delay__attempts": "2",
    }
    assert pauses(3, cleanup_strategy=name, **options) == [5000, 5000, None]


@pytest.mark.parametrize("name", ["none", "disable", "off"])
def test_without_a_strategy_nothing_is_tried_again(name):
    assert pauses(2, cleanup_strategy=name) == [None, None]


def test_the_older_name_of_the_strategy_counts():
    assert pauses(1, cleanup_strategy__type="none") == [None]


@pytest.mark.parametrize(
    "options",
    [
        {"cleanup_strategy": "sometimes"},
        {"cleanup_strategy": "fixed-delay", "cleanup_strategy__fixed_delay__delay": "0 ms"},
        {"cleanup_strategy__exponential_delay__attempts": "-1"},
    ],
)
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigurationError, match="cleanup-strategy"):
        pauses(1, **options)
