"""For whom a checkpoint waits."""

import pytest

from penstock.engine.model.messages import CheckpointFailureReason
from penstock.ops.jobs.diagnosis.shares import all_shares
from penstock.ops.jobs.diagnosis.stragglers import straggler_of
from penstock.ops.jobs.snapshots import CheckpointFacts
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt

OTHERS = [attempt(SOURCE, 0), attempt(SOURCE, 1), attempt(SINK, 0)]
LAST = attempt(SINK, 1)


def job(others_after_ms=1, **more):
    told = ToldJob(**more).status("RUNNING").runs().triggers(1)
    for one in OTHERS:
        told.acknowledges(1, one, others_after_ms)
    return told


def of(told, after_ms=0):
    now = told.now_it_is(after_ms)
    return straggler_of(now, all_shares(now))


def test_the_subtask_that_has_not_acknowledged_is_waited_for():
    found = of(job(), 9)
    assert (found.vertex_id, found.subtask, found.is_missing) == (SINK, 1, True)
    assert (found.after_ms, found.others, found.is_slow) == (12, 0, False)


def test_the_last_acknowledgement_was_waited_for():
    found = of(job().acknowledges(1, LAST, 70).ends(1))
    assert (found.vertex_id, found.subtask, found.is_missing) == (SINK, 1, False)
    assert (found.after_ms, found.is_slow) == (73, False)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("start_delay_ms", "5 s long its barriers were on their way"),
        ("alignment_ms", "5 s long it waited for the barriers of its other channels"),
        ("sync_ms", "5 s long its snapshot kept it from working"),
        ("async_ms", "5 s long its state was written"),
    ],
)
def test_a_slow_checkpoint_is_told_with_the_phase_that_took_longest(phase, words):
    found = of(job().acknowledges(1, LAST, 5997, **{phase: 5000.0}).ends(1))
    assert found.is_slow
    assert found.sentence() == (
        f"Checkpoint 1 waited 6 s for subtask 1 of 'Reduce -> Sink: <out>': {words}."
    )


def test_a_quick_phase_explains_nothing():
    assert of(job().acknowledges(1, LAST, 5997, sync_ms=20.0).ends(1)).reason == ""


def test_a_checkpoint_is_slow_when_the_next_one_should_begin():
    facts = {"checkpoints": CheckpointFacts(interval_ms=3000)}
    assert not of(job(**facts), 2_990).is_slow
    assert of(job(**facts), 3_000).is_slow
    assert not of(job(checkpoints=CheckpointFacts()), 9_990).is_slow
    assert of(job(checkpoints=CheckpointFacts()), 10_000).is_slow


def test_barriers_behind_waiting_records_are_named_as_the_reason():
    told = job().has(attempt(SOURCE, 0), backpressured_ms_per_s=700.0)
    assert of(told).reason == "back pressure holds its barriers up"
    assert of(job()).reason == ""


def test_a_checkpoint_that_took_too_long_names_whom_it_waited_for():
    failed = {"location": None, "reason": CheckpointFailureReason.CHECKPOINT_EXPIRED}
    found = of(job().ends(1, after_ms=997, **failed), 5_000)
    assert (found.subtask, found.after_ms, found.is_missing, found.is_slow) == (1, 1000, True, True)
    declined = {"location": None, "reason": CheckpointFailureReason.CHECKPOINT_DECLINED}
    assert of(job().ends(1, **declined)) is None


def test_those_that_have_ended_are_not_waited_for():
    assert of(job().moves(LAST, "FINISHED")) is None


def test_without_checkpoints_nobody_is_waited_for():
    assert of(ToldJob().runs()) is None
