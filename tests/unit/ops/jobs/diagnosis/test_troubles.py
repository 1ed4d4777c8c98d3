"""Jobs that do not get to work."""

import pytest

from penstock.engine.model.job_events import SlotsMissing
from penstock.engine.model.messages import FailureInfo
from penstock.ops.jobs.diagnosis.history import Since
from penstock.ops.jobs.diagnosis.troubles import repeated_of, waiting_of
from penstock.ops.jobs.diagnosis.verdict import verdict_on
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

TEXT = "Traceback (most recent call last):\n  File\nZeroDivisionError: at s3://me:pa55@b/d\n"


def failed(told, *ones):
    """(vertex or None, subtask, ms after the begin)."""
    entries = tuple(
        (
            FailureSeen(
                FailureInfo("ZeroDivisionError", TEXT),
                BEGAN + after_ms,
                attempt_id=None if vertex_id is None else attempt(vertex_id, subtask),
            ),
            (),
        )
        for vertex_id, subtask, after_ms in ones
    )
    return told.tell(FailuresSeen(entries))


def test_a_job_that_has_failed_says_what_failed_last():
    told = failed(ToldJob().status("RUNNING").runs(), (SOURCE, 0, 0), (SINK, 1, 1000))
    (sentence,) = verdict_on(told.status("FAILED").now_it_is(), Since()).sentences
    assert sentence == (
        "The job has ended: FAILED after a failure of subtask 1 of 'Reduce -> Sink: <out>': "
        "ZeroDivisionError: at s3://******@b/d."
    )


def test_a_subtask_that_fails_again_and_again_is_named_with_its_last_error():
    told = failed(ToldJob(), (SINK, 1, 0), (SOURCE, 0, 1000), (SINK, 1, 2000), (SINK, 1, 3000))
    now = told.now_it_is(12_000)
    found = repeated_of(now)
    assert (found.vertex_id, found.subtask, found.count, found.since_ms) == (SINK, 1, 3, BEGAN)
    assert found.sentence(now.now_ms) == (
        "Subtask 1 of 'Reduce -> Sink: <out>' has failed 3 times in 12 s, so the job restarts "
        "again and again; the last time with ZeroDivisionError: at s3://******@b/d."
    )


def test_a_vertex_whose_subtasks_fail_in_turn_is_named_with_the_last_one():
    told = failed(ToldJob(), (SINK, 1, 0), (SINK, 0, 1000), (SINK, 1, 2000), (SOURCE, 0, 500))
    now = told.now_it_is(2000)
    found = repeated_of(now)
    assert (found.vertex_id, found.subtask, found.count) == (SINK, 1, 3)
    assert found.sentence(now.now_ms) == (
        "'Reduce -> Sink: <out>' has failed 3 times in 2 s, so the job restarts again and again; "
        "the last time in subtask 1 with ZeroDivisionError: at s3://******@b/d."
    )


def test_vertices_that_fail_in_turn_are_the_jobs_trouble():
    told = failed(ToldJob(), (SINK, 1, 0), (SOURCE, 0, 1000), (SINK, 0, 2000))
    found = repeated_of(told.now_it_is(2000))
    assert (found.vertex_id, found.count) == (None, 3)
    assert found.sentence(BEGAN + 2000).startswith("The job has failed 3 times in 2 s")


def test_a_job_that_restarts_is_told_with_its_last_failure():
    told = failed(ToldJob(), (SINK, 1, 2000), (SOURCE, 0, 1000)).status("RESTARTING", 2000)
    assert verdict_on(told.now_it_is(3000), Since()).sentence == (
        "The job is RESTARTING for 3 s after a failure of subtask 1 of 'Reduce -> Sink: <out>': "
        "ZeroDivisionError: at s3://******@b/d."
    )
    told = failed(ToldJob(), (None, 0, 0)).status("FAILING")
    assert verdict_on(told.now_it_is(), Since()).sentence == (
        "The job is FAILING for 0 s after ZeroDivisionError: at s3://******@b/d."
    )


def test_few_failures_and_old_ones_do_not_count():
    assert repeated_of(failed(ToldJob(), (SINK, 1, 0), (SINK, 1, 1)).now_it_is()) is None
    old = failed(ToldJob(), *[(SINK, 1, minute * 60_000) for minute in (0, 4, 8)])
    assert repeated_of(old.now_it_is(600_000)) is not None
    assert repeated_of(old.now_it_is(1)) is None


@pytest.mark.parametrize(("every_ms", "lasts_ms"), [(3_000, 60_000), (120_000, 360_000)])
def test_a_job_that_runs_much_longer_than_between_failures_has_recovered(every_ms, lasts_ms):
    told = failed(ToldJob(), *[(SINK, 1, turn * every_ms) for turn in range(3)])
    assert repeated_of(told.now_it_is(2 * every_ms + lasts_ms)) is not None
    assert repeated_of(told.now_it_is(1)) is None


def test_subtasks_without_a_slot_are_counted_and_the_first_is_named():
    told = ToldJob().status("RUNNING").runs(vertices=(SOURCE,))
    told.moves(attempt(SINK, 0), "SCHEDULED", after_ms=100)
    now = told.moves(attempt(SINK, 1), "SCHEDULED").now_it_is(5000)
    assert waiting_of(now).sentence(now.now_ms) == (
        "The job waits for slots for 5 s: 2 of 4 subtasks have none, the first is subtask 0 of "
        "'Reduce -> Sink: <out>'."
    )
    now = told.tell(SlotsMissing(4, 2, "too few; Spark has 2 cores.")).now_it_is()
    assert (
        waiting_of(now)
        .sentence(now.now_ms)
        .endswith(": 4 are wanted, 2 are there; too few; Spark has 2 cores.")
    )


def test_subtasks_that_start_are_told_when_all_have_slots():
    told = ToldJob().runs(vertices=(SOURCE,)).tell(SlotsMissing(4, 2, "before"))
    told.moves(attempt(SINK, 0), "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
    told.moves(attempt(SINK, 1), "SCHEDULED", "DEPLOYING", "INITIALIZING")
    now = told.now_it_is(7000)
    assert waiting_of(now).sentence(now.now_ms) == (
        "The job starts: 3 of 4 subtasks run, and subtask 1 of 'Reduce -> Sink: <out>' is "
        "INITIALIZING for 7 s."
    )


def test_a_job_that_runs_waits_for_nothing():
    assert waiting_of(ToldJob().runs().now_it_is()) is None
