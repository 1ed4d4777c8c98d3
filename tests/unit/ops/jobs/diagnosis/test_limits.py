"""Who limits a job."""

from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.limits import limits_of
from penstock.ops.jobs.diagnosis.shares import all_shares
from penstock.ops.jobs.snapshots import InputFacts, VertexFacts
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
    limits = limits_of(job, all_shares(job), {})
    assert not limits[1:]
    return limits[0] if limits else None


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
    assert "nobody downstream makes it wait" in found.sentence(0)


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


def test_a_vertex_that_limits_the_job_stays_the_one_while_its_shares_vary():
    told = ToldJob().status("RUNNING").runs()

    def found(busy, blocked, known):
        told.has(attempt(SOURCE), backpressured_ms_per_s=blocked, idle_ms_per_s=1000.0 - blocked)
        told.has(attempt(SINK), busy_ms_per_s=busy, idle_ms_per_s=1000.0 - busy)
        job = told.now_it_is()
        return [one.vertex_id for one in limits_of(job, all_shares(job), known)]

    for busy, blocked in ((790.0, 300.0), (900.0, 90.0)):
        assert found(busy, blocked, {}) == []
        assert found(busy, blocked, {SINK: 0}) == [SINK]
    assert found(690.0, 300.0, {SINK: 0}) == []
    assert found(900.0, 40.0, {SINK: 0}) == []


def branches(*figures, one_source=False):
    """A source and a vertex behind it for each pair of figures; `one_source`: the first one is that of all."""
    vertices, told = [], []
    for number, (source, behind) in enumerate(figures):
        names = [VertexId(f"{kind}{number}" * 16) for kind in "ab"]
        if one_source and number:
            names[0] = told[0][0]
        else:
            vertices.append(VertexFacts(names[0], f"Source {number}", 1, 128, "default", (), ()))
            told.append((names[0], source))
        edge = InputFacts(names[0], "HASH", "pipelined_bounded", "data set")
        vertices.append(VertexFacts(names[1], f"slow {number}", 1, 128, "default", (), (edge,)))
        told.append((names[1], behind))
    job = ToldJob(vertices=tuple(vertices)).status("RUNNING")
    job.runs(vertices=[name for name, _ in told], parallelism=1)
    for name, counters in told:
        job.has(attempt(name), **counters)
    now = job.now_it_is()
    return limits_of(now, all_shares(now), {})


def test_each_branch_has_a_limit_of_its_own_the_busiest_first():
    busier = BUSY | {"busy_ms_per_s": 990.0}
    first, second = branches((BLOCKED, BUSY), (BLOCKED, busier), (IDLE, BUSY))
    assert (first.name, first.upstream) == ("slow 1", ("Source 1",))
    assert second.sentence(0, is_further=True) == (
        "'slow 0' limits the job too: its subtask 0 is busy 98%; 'Source 0' waits for it."
    )


def test_two_that_are_slow_behind_one_source_are_both_told():
    found = branches((BLOCKED, BUSY), (BLOCKED, BUSY), one_source=True)
    assert {one.name for one in found} == {"slow 0", "slow 1"}


def test_a_source_that_is_busy_in_another_branch_is_no_further_limit():
    (found,) = branches((BLOCKED, BUSY), (BUSY, IDLE))
    assert found.name == "slow 0"


def test_at_most_three_are_told():
    assert len(branches(*[(BLOCKED, BUSY)] * 5)) == 3
