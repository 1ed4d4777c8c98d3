"""Who limits a job."""

from penstock.observation.verdict.limits import limit_of
from penstock.observation.verdict.shares import all_shares
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt

BUSY = {"busy_ms_per_s": 980.0, "idle_ms_per_s": 20.0}
IDLE = {"busy_ms_per_s": 10.0, "idle_ms_per_s": 990.0}
BLOCKED = {"busy_ms_per_s": 100.0, "backpressured_ms_per_s": 900.0}


def limit(source=(IDLE, IDLE), sink=(IDLE, IDLE)):
    told = ToldJob(parallelism=len(source)).status("RUNNING").runs(parallelism=len(source))
    for vertex_id, figures in ((SOURCE, source), (SINK, sink)):
        for subtask, counters in enumerate(figures):
            told.has(attempt(vertex_id, subtask), **counters)
    job = told.now_it_is()
    return limit_of(job, all_shares(job), {})


def test_a_busy_vertex_for_which_others_wait_limits_the_job():
    found = limit(source=(BLOCKED, BLOCKED), sink=(BUSY, BUSY))
    assert (found.vertex_id, found.upstream) == (SINK, ("Source: Numbers -> Map",))
    assert not found.is_one_subtask


def test_one_busy_subtask_of_many_is_named():
    found = limit(source=(BLOCKED,) * 3, sink=(IDLE, BUSY, IDLE))
    assert (found.subtask, found.is_one_subtask) == (1, True)
    assert "subtask 1 is busy 98%, most others are not" in found.sentence(0)


def test_a_busy_source_limits_a_job_in_which_nobody_waits():
    found = limit(source=(BUSY, IDLE))
    assert (found.vertex_id, found.subtask) == (SOURCE, 0)
    assert "nobody behind it makes it wait" in found.sentence(0)


def test_a_busy_vertex_for_which_nobody_waits_limits_nothing():
    assert limit(sink=(BUSY, BUSY)) is None


def test_a_vertex_that_waits_itself_is_not_the_culprit():
    both = {"busy_ms_per_s": 850.0, "backpressured_ms_per_s": 150.0}
    assert limit(source=(both, both)) is None


def test_a_busy_subtask_limits_although_another_one_waits():
    source = ({"busy_ms_per_s": 980.0}, BLOCKED)
    found = limit(source=source, sink=(IDLE, BUSY))
    assert (found.vertex_id, found.subtask) == (SINK, 1)
    assert limit(source=source).vertex_id == SOURCE


def test_somebody_is_at_fault_when_sources_wait_even_if_nobody_is_very_busy():
    half = {"busy_ms_per_s": 550.0, "idle_ms_per_s": 450.0}
    found = limit(source=(BLOCKED, BLOCKED), sink=(half, IDLE))
    assert (found.vertex_id, found.subtask, found.is_one_subtask) == (SINK, 0, False)
    assert found.sentence(0) == (
        "'Reduce -> Sink: <out>' limits the job: its subtask 0 is busy only 55%; "
        "'Source: Numbers -> Map' waits for it."
    )


def test_a_little_back_pressure_alone_is_nobodys_fault():
    little = {"busy_ms_per_s": 500.0, "backpressured_ms_per_s": 300.0, "idle_ms_per_s": 200.0}
    assert limit(source=(little, little)) is None
