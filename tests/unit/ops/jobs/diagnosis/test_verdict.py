"""The verdict on jobs that have each illness: what it says first, and what else."""

import pytest

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.history import Since
from penstock.ops.jobs.diagnosis.verdict import verdict_on
from penstock.ops.jobs.diagnosis.watermarks import Figures, Stand
from penstock.ops.jobs.snapshots import InputFacts, VertexFacts
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

BUSY = {"busy_ms_per_s": 980.0, "idle_ms_per_s": 20.0}
IDLE = {"busy_ms_per_s": 10.0, "idle_ms_per_s": 990.0}
HALF = {"busy_ms_per_s": 600.0, "idle_ms_per_s": 400.0}
BLOCKED = {"busy_ms_per_s": 100.0, "backpressured_ms_per_s": 900.0}


def job(source=(IDLE, IDLE), sink=(IDLE, IDLE)):
    told = ToldJob().status("RUNNING").runs()
    for vertex_id, figures in ((SOURCE, source), (SINK, sink)):
        for subtask, counters in enumerate(figures):
            told.has(attempt(vertex_id, subtask), **counters)
    return told


def on(told, since=None, **more):
    return verdict_on(told.now_it_is(), since or Since(), **more)


def test_nothing_is_so_since_later_than_the_snapshot():
    """Pages ask while new snapshots come, so the last look may be newer than what is shown."""
    now = job((BLOCKED, BLOCKED), (BUSY, BUSY)).now_it_is()
    stand = Stand(50_000, now.now_ms + 1)
    found = verdict_on(now, Since({SINK: now.now_ms + 1}, {SINK: stand}))
    assert found.limit.since_ms == now.now_ms
    assert Since(watermarks={SINK: stand}).not_after(now.now_ms).watermarks == {
        SINK: Stand(50_000, now.now_ms)
    }


def test_the_limit_is_told_with_who_waits_for_it_and_since_when():
    since = Since({SINK: BEGAN - 40_000})
    verdict = on(job(source=(BLOCKED, BLOCKED), sink=(BUSY, BUSY)), since)
    assert verdict.sentences == (
        (
            "'Reduce -> Sink: <out>' limits the job for 40 s: its subtask 1 is busy 98%; "
            "'Source: Numbers -> Map' waits for it."
        ),
    )
    assert not verdict.is_healthy


def test_a_skewed_subtask_explains_the_limit():
    told = job(
        source=(BLOCKED, BLOCKED),
        sink=(IDLE | {"records_in": 1000}, BUSY | {"records_in": 9000}),
    )
    (sentence,) = on(told).sentences
    assert sentence == (
        "'Reduce -> Sink: <out>' limits the job: its subtask 1 is busy 98%, most others are not, "
        "because it gets 9.0 times the records of the usual one; 'Source: Numbers -> Map' waits "
        "for it."
    )


def test_skew_for_which_nobody_waits_is_no_illness():
    """A job with few keys is skewed for ever."""
    records = (IDLE | {"records_in": 0}, HALF | {"records_in": 9000})
    well = on(job(source=(HALF, HALF), sink=records))
    assert (well.is_healthy, [one.subtask for one in well.skewed]) == (True, [1])
    ill = on(job(source=(HALF, HALF | {"backpressured_ms_per_s": 150.0}), sink=records))
    assert ill.sentences == (
        (
            "Subtask 1 of 'Reduce -> Sink: <out>' is skewed: it gets 9,000 records, and the usual "
            "one gets none."
        ),
    )


def test_skew_beside_the_vertex_for_which_others_wait_is_no_illness():
    limit, skewed = VertexId("c" * 32), VertexId("d" * 32)
    edge = InputFacts(SOURCE, "HASH", "pipelined_bounded", "data set")
    vertices = [VertexFacts(SOURCE, "Source", 2, 128, "default", (), ())]
    for vertex_id, name in ((limit, "slow"), (skewed, "skewed")):
        vertices.append(VertexFacts(vertex_id, name, 2, 128, "default", (), (edge,)))
    told = ToldJob(vertices=tuple(vertices)).status("RUNNING")
    told.runs(vertices=[SOURCE, limit, skewed])
    few, many = IDLE | {"records_in": 0}, HALF | {"records_in": 9000}
    for vertex_id, figures in (
        (SOURCE, (BLOCKED,) * 2),
        (limit, (BUSY,) * 2),
        (skewed, (few, many)),
    ):
        for subtask, counters in enumerate(figures):
            told.has(attempt(vertex_id, subtask), **counters)
    verdict = on(told)
    assert [one.vertex_id for one in verdict.skewed] == [skewed]
    assert verdict.sentences == (
        "'slow' limits the job: its subtask 1 is busy 98%; 'Source' waits for it.",
    )


def test_a_job_whose_source_is_idle_waits_for_its_input():
    verdict = on(job(source=(IDLE, HALF | {"idle_ms_per_s": 600.0, "busy_ms_per_s": 400.0})))
    assert verdict.sentence == (
        "The job is healthy: nobody is slow, and it waits for its input; "
        "'Source: Numbers -> Map' is idle 60% of the time."
    )
    assert verdict.is_healthy


def test_a_job_that_keeps_up_is_healthy():
    verdict = on(job(source=(HALF, IDLE), sink=(HALF, BUSY)))
    assert verdict.sentence == (
        "The job is healthy: it keeps up with its input; the busiest is subtask 1 of "
        "'Reduce -> Sink: <out>', 98% of the time."
    )
    assert verdict.is_healthy


def test_a_source_that_is_idle_while_records_wait_in_it_cannot_deliver():
    class Pending(Figures):
        def pending_records(self, vertex):
            return 5000

    verdict = on(job(), figures=Pending())
    assert verdict.sentence == (
        "'Source: Numbers -> Map' cannot deliver: it is idle 99% of the time although 5,000 "
        "records wait to be read, and nobody downstream is slow."
    )
    assert not verdict.is_healthy


@pytest.mark.parametrize("status", ["CANCELED", "FAILED", "FINISHED"])
def test_a_job_that_has_ended_has_no_culprit(status):
    """A normal end is no illness."""
    verdict = on(job(source=(BUSY, BUSY)).status(status))
    assert verdict.sentences == (f"The job has ended: {status}.",)
    assert verdict.is_healthy == (status == "FINISHED")


def test_records_of_the_last_minute_are_compared_while_a_job_streams():
    records = [IDLE | {"records_in": count} for count in (50_100, 50_900)]
    since = Since(records={SINK: (50_000, 50_000)})
    assert [one.factor for one in on(job(sink=records), since).skewed] == [9.0]
    told = ToldJob(job_type=JobType.BATCH).status("RUNNING").runs()
    for subtask, counters in enumerate(records):
        told.has(attempt(SINK, subtask), **counters)
    assert on(told, since).skewed == ()


def test_before_the_first_report_nothing_is_known():
    verdict = on(ToldJob().status("RUNNING").runs())
    assert (verdict.sentence, verdict.is_healthy) == ("No subtask has reported yet.", False)


@pytest.mark.parametrize("status", ["CANCELLING", "RESTARTING", "FAILING", "CREATED"])
def test_a_job_that_does_not_run_is_not_waiting_for_slots(status):
    told = ToldJob().moves(attempt(SINK), "SCHEDULED").status(status)
    told.now_it_is(2_500)
    verdict = on(told)
    assert verdict.sentence == f"The job is {status} for 2 s."
    assert verdict.waiting is None


def test_a_batch_job_is_told_by_its_stages():
    """Those that come later have no slots yet, and need none."""
    told = ToldJob(job_type=JobType.BATCH).status("RUNNING")
    assert on(told).sentence == "The job is healthy: 0 of 2 stages have ended."
    told.runs(vertices=(SOURCE,)).moves(attempt(SOURCE, 0), "FINISHED")
    assert on(told).sentence == (
        "The job is healthy: 0 of 2 stages have ended; these run: 'Source: Numbers -> Map' "
        "(1 of 2 subtasks)."
    )
    told.moves(attempt(SOURCE, 1), "FINISHED")
    assert on(told).sentence == "The job is healthy: 1 of 2 stages have ended."


def test_all_illnesses_are_told_the_worst_first():
    told = job(
        source=(BLOCKED | {"watermark_ms": 100_000}, BLOCKED | {"watermark_ms": 50_000}),
        sink=(BUSY | {"watermark_ms": 50_000}, BUSY | {"watermark_ms": 50_000}),
    )
    told.triggers(3).acknowledges(3, attempt(SOURCE, 0)).acknowledges(3, attempt(SOURCE, 1), 2000)
    since = Since(watermarks={SINK: Stand(50_000, BEGAN - 1000)})
    limit, watermark, checkpoint = on(told, since).sentences
    assert limit.startswith("'Reduce -> Sink: <out>' limits the job")
    assert watermark == (
        "The watermark is held for 3 s by the channel from subtask 1 of "
        "'Source: Numbers -> Map' to 'Reduce -> Sink: <out>': it stands at "
        "1970-01-01 00:00:50 UTC, 50 s below the furthest."
    )
    assert checkpoint == (
        "Checkpoint 3 waits for subtask 0 of 'Reduce -> Sink: <out>' and 1 more for 2 s: back "
        "pressure holds its barriers up."
    )
