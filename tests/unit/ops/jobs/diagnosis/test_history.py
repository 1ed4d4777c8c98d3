"""Since when things are as they are."""

from penstock.ops.jobs.diagnosis.history import VerdictHistory
from penstock.ops.jobs.diagnosis.watermarks import Stand
from tests.tools.observation.job_records import BEGAN, SOURCE, ToldJob, attempt

NO_WATERMARK = -(2**63)


def test_the_time_of_a_limit_counts_while_it_lasts():
    history, told = VerdictHistory(), ToldJob().status("RUNNING").runs()
    told.has(attempt(SOURCE, 0), busy_ms_per_s=980.0)
    history.look(told.now_it_is(10))
    history.look(told.now_it_is(10))
    assert history.since.limits == {SOURCE: BEGAN + 10}
    told.has(attempt(SOURCE, 0), busy_ms_per_s=10.0)
    history.look(told.now_it_is(10))
    assert history.since.limits == {}


def test_the_time_of_a_watermark_counts_while_it_stands():
    history, told = VerdictHistory(), ToldJob().runs()
    told.has(attempt(SOURCE, 0), watermark_ms=7).has(attempt(SOURCE, 1))
    history.look(told.now_it_is(10))
    told.has(attempt(SOURCE, 0), watermark_ms=9)
    history.look(told.now_it_is(10))
    assert history.since.watermarks == {SOURCE: Stand(NO_WATERMARK, BEGAN + 10)}
    told.has(attempt(SOURCE, 1), watermark_ms=8)
    history.look(told.now_it_is(10))
    assert history.since.watermarks == {SOURCE: Stand(8, BEGAN + 30)}
    for subtask in (0, 1):
        told.has(attempt(SOURCE, subtask), watermark_ms=2**63 - 1)
    history.look(told.now_it_is(10))
    assert history.since.watermarks == {}


def test_the_speed_of_a_watermark_is_of_the_last_seconds():
    history, told = VerdictHistory(), ToldJob(parallelism=1).runs(parallelism=1)

    def moves(by_ms, times):
        nonlocal watermark_ms
        for _ in range(times):
            watermark_ms += by_ms
            told.has(attempt(SOURCE, 0), watermark_ms=watermark_ms)
            history.look(told.now_it_is(500))
        return history.since.watermarks[SOURCE].speed

    watermark_ms = 0
    assert moves(1500, 4) == 3.0
    assert moves(500, 30) == 1.0
    assert moves(0, 10) == 0.5
    assert moves(0, 30) == 0.0


def test_records_of_a_minute_ago_are_kept():
    history, told = VerdictHistory(), ToldJob(parallelism=1).runs(parallelism=1)

    def gets(records, after_ms):
        told.has(attempt(SOURCE, 0), records_in=records)
        history.look(told.now_it_is(after_ms))
        return history.since.records.get(SOURCE)

    assert gets(100, 1000) is None
    assert gets(200, 30_000) is None
    assert gets(300, 30_000) == (100,)
    assert gets(400, 25_000) == (100,)
    assert gets(500, 5_000) == (200,)
