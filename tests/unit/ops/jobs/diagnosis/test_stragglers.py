"""For whom a checkpoint waits."""

import pytest

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.model.messages import CheckpointFailureReason, FrequentKey
from penstock.ops.jobs.diagnosis.shares import all_shares
from penstock.ops.jobs.diagnosis.stragglers import MOST_NAMED, skewed, straggler_of
from penstock.ops.jobs.snapshots import CheckpointFacts
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def found(*records):
    told = ToldJob(parallelism=len(records)).runs(parallelism=len(records))
    for subtask, count in enumerate(records):
        told.has(attempt(SINK, subtask), records_in=count)
    return [(one.subtask, one.factor) for one in skewed(told.now_it_is())]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((1000, 9000, 2000), [(1, 6.0)]),
        ((100, 9000), [(1, 90.0)]),
        ((0, 5000), [(1, 5000.0)]),
        ((5000,), []),
        ((10, 900), []),
        ((5000, 6000), []),
        ((1000, 1000, 9000, 9000), [(2, 9.0), (3, 9.0)]),
        ((1000, 1000, 1000, 9000, 8000), [(3, 9.0), (4, 8.0)]),
    ],
)
def test_a_subtask_is_compared_with_the_usual_one_of_the_others(records, expected):
    assert found(*records) == expected


def test_only_the_worst_are_told():
    worst = found(*[1] * 96, 2000, 3000, 4000, 5000)
    assert [subtask for subtask, _ in worst] == [99, 98, 97][:MOST_NAMED]


def test_it_is_told_with_names():
    told = ToldJob(parallelism=2).runs().has(attempt(SINK, 1), records_in=5000)
    told.has(attempt(SINK, 0), records_in=1000)
    (skew,) = skewed(told.now_it_is())
    assert skew.sentence() == (
        "Subtask 1 of 'Reduce -> Sink: <out>' is skewed: it gets 5.0 times the records of the "
        "usual one."
    )


def test_the_key_is_named_that_it_was_sent_most():
    """By the samples of all that send to it: of the right edge, and to this subtask."""
    told = ToldJob(parallelism=2).runs()
    for subtask, count in ((0, 60), (1, 30)):
        told.has(
            attempt(SOURCE, subtask),
            frequent_keys=(
                FrequentKey("data set", 0, "'cold'", 500, 500),
                FrequentKey("data set", 1, "'hot'", count, 100),
                FrequentKey("data set", 1, "'warm'", 25, 100),
                FrequentKey("another", 1, "'of another edge'", 999, 999),
            ),
        )
    told.has(attempt(SINK, 0), records_in=1000).has(attempt(SINK, 1), records_in=5000)
    (skew,) = skewed(told.now_it_is())
    assert (skew.key, skew.key_share) == ("'hot'", 0.45)
    assert skew.what == "5.0 times the records of the usual one, 45% of them with the key 'hot'"


@pytest.mark.parametrize(
    ("formerly", "records", "expected"),
    [
        ((50_000, 50_000), (50_100, 50_900), [(1, 9.0)]),  # It became skewed a moment ago,
        ((1000, 9000), (1500, 9500), []),  # or is not any longer.
        ((50_000, 50_000), (50_010, 50_090), []),  # Too few to say so.
        ((50_000, 50_000), (100, 900), [(1, 9.0)]),  # Attempts that are younger than that.
        ((50_000,), (50_100, 50_900), []),  # Another parallelism: all records count.
    ],
)
def test_what_a_subtask_got_in_the_last_minute_counts(formerly, records, expected):
    told = ToldJob(parallelism=2).runs()
    for subtask, count in enumerate(records):
        told.has(attempt(SINK, subtask), records_in=count)
    found = skewed(told.now_it_is(), {SINK: formerly})
    assert [(one.subtask, one.factor) for one in found] == expected


def test_all_records_of_a_source_count():
    told = ToldJob(parallelism=2).runs()
    for subtask, count in enumerate((50_000, 52_000)):
        told.has(attempt(SOURCE, subtask), records_in=count)
    assert skewed(told.now_it_is(), {SOURCE: (50_000, 50_000)}) == ()


def test_others_that_get_nothing_are_no_measure():
    told = ToldJob(parallelism=2).runs().has(attempt(SINK, 1), records_in=50_600)
    (one,) = skewed(told.has(attempt(SINK, 0)).now_it_is())
    assert one.sentence() == (
        "Subtask 1 of 'Reduce -> Sink: <out>' is skewed: it gets 50,600 records, and the usual one "
        "gets none."
    )


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
    facts = {"checkpoints": CheckpointFacts(CheckpointSettings(interval_ms=3000))}
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
