"""The jobs of a driver: recorded on one thread, folded on another."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.wire.counters import encode_counters
from penstock.engine.hosting.observer import JobEnded, JobTick
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.model.ids import AllocationId, TaskManagerLocation
from penstock.engine.model.job_events import SlotsMissing, TaskDeployed
from penstock.engine.model.messages import (
    ExecutionStateChanged,
    FailureInfo,
    Heartbeat,
    JobStatusChanged,
    TaskIo,
    TaskIoReported,
)
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.metrics.entities import JobScope
from penstock.ops.metrics.history_rings import FIGURES, FINE
from penstock.ops.registry import job_registry
from penstock.ops.registry.job_registry import JobRegistry
from tests.tools.observation.job_records import JOB, PLACE, SOURCE, attempt, facts, io_of


class Control:
    job_id = JOB


class Job:
    """What an observer may look at."""

    def __init__(self) -> None:
        self.exceptions = ExceptionHistory()


@pytest.fixture
def jobs(monkeypatch):
    """No thread folds; the test does, by asking."""
    monkeypatch.setattr(job_registry.threading.Thread, "start", lambda self: None)
    return JobRegistry()


@pytest.fixture
def recorder(jobs):
    return jobs.watch(facts())


def test_meters_of_the_driver_move_on_while_nobody_asks(monkeypatch):
    """One turn of the thread that folds; it ends with the first sleep of the next one."""
    moved, turns, threads = [], iter([None]), []

    def start(thread):
        threads.append(thread)

    monkeypatch.setattr(job_registry.threading.Thread, "start", start)
    clock = SimpleNamespace(sleep=lambda _: next(turns), monotonic=lambda: 7.0)
    monkeypatch.setattr(job_registry, "time", clock)
    monkeypatch.setattr(job_registry.DriverMetrics, "keep_time", lambda self, _: moved.append(1))
    jobs = JobRegistry()
    jobs.watch(facts())
    with pytest.raises(StopIteration):
        threads[0].run()
    assert moved == [1]


def test_what_is_recorded_is_known_when_somebody_asks(jobs, recorder):
    recorder.observe(JobStatusChanged(JobStatus.RUNNING, 0))
    moved = ExecutionStateChanged(attempt(), ExecutionState.CREATED, ExecutionState.DEPLOYING, 0)
    recorder.observe(moved)
    place = TaskManagerLocation(PLACE.resource_id, "host-b", 7)
    recorder.observe(TaskDeployed(attempt(), place, AllocationId("s")))
    ios = encode_counters([(attempt(), TaskIo(records_in=3))])
    recorder.observe(Heartbeat(PLACE.resource_id, 1, ios))
    job = jobs.job(JOB)
    assert job.status is JobStatus.RUNNING
    assert job.vertices[0].attempts[0].location == place
    assert job.vertices[0].ios[0].records_in == 3


def test_failures_are_recorded_when_there_are_new_ones(jobs, recorder):
    job = Job()
    recorder.observe(JobTick(job))
    assert not recorder.entries
    job.exceptions.begin(FailureInfo("ValueError", "x"), 5)
    recorder.observe(JobTick(job))
    recorder.observe(JobTick(job))
    assert len(recorder.entries) == 1
    job.exceptions.add(FailureInfo("OSError", "y"), 6)
    recorder.observe(JobEnded(JobStatus.FAILED, job))
    ((root, concurrent),) = jobs.job(JOB).failures
    assert (root.failure.kind, [one.failure.kind for one in concurrent]) == (
        "ValueError",
        ["OSError"],
    )
    assert jobs.job(JOB).status is JobStatus.FAILED


def test_jobs_are_listed_oldest_first_and_controlled_when_they_run(jobs, recorder):
    assert [one.job_id for one in jobs.snapshot().jobs] == [JOB]
    assert jobs.control(JOB) is None
    jobs.started(Control())
    assert jobs.control(JOB).job_id == JOB
    assert jobs.job("b" * 32) is None


def test_a_job_that_could_not_be_started_is_forgotten(jobs, recorder):
    jobs.forget(JOB)
    assert jobs.snapshot().jobs == ()


def test_jobs_that_have_ended_expire_and_are_still_counted(jobs, recorder):
    recorder.observe(JobStatusChanged(JobStatus.FINISHED, 0))
    jobs.expiration_ms = 10**9
    assert len(jobs.snapshot().jobs) == 1
    jobs.expiration_ms = -1
    jobs.snapshot()
    told = jobs.snapshot()
    assert (told.jobs, told.expired) == ((), {JobStatus.FINISHED: 1})


def test_only_so_many_ended_jobs_are_kept(jobs, recorder):
    recorder.observe(JobStatusChanged(JobStatus.FINISHED, 0))
    jobs.capacity = 0
    jobs.snapshot()
    assert jobs.snapshot().jobs == ()


def test_more_events_than_fit_into_one_turn_are_all_taken(jobs, recorder):
    for records in range(250):
        recorder.observe(TaskIoReported(((attempt(), TaskIo(records_in=records)),), 0))
    assert jobs.job(JOB).vertices[0].ios[0].records_in == 249
    assert not recorder.entries


def test_a_driver_without_jobs_that_waits_for_a_lead_is_a_standby(jobs):
    assert not jobs.is_standby
    with jobs.standby():
        assert jobs.is_standby
        jobs.watch(facts())
        assert not jobs.is_standby
        jobs.forget(JOB)
    assert not jobs.is_standby


def test_a_job_that_somebody_needs_is_forgotten_when_it_is_released(jobs):
    jobs.capacity = 0
    jobs.watch(facts(), is_held=True).observe(JobStatusChanged(JobStatus.FINISHED, 0))
    assert jobs.snapshot().job(JOB) is not None
    assert jobs.snapshot().job(JOB) is not None
    jobs.release(JOB)
    jobs.snapshot()
    assert jobs.snapshot().job(JOB) is None


def test_a_job_that_is_not_listed_is_seen_by_its_own_program_only(jobs):
    recorder = jobs.watch(facts(), is_listed=False)
    look = jobs.look_of(JOB)
    recorder.observe(JobStatusChanged(JobStatus.RUNNING, 0))
    assert look().status is JobStatus.RUNNING
    assert (jobs.snapshot().jobs, jobs.job(JOB)) == ((), None)
    with jobs.metrics() as store:
        assert store.ids(JobScope(JOB)) == []
    recorder.observe(JobStatusChanged(JobStatus.FINISHED, 0))
    jobs.snapshot()
    assert look().status is JobStatus.FINISHED
    with pytest.raises(KeyError):
        jobs.look_of(JOB)


def test_the_verdict_says_since_when(jobs, recorder):
    busy = io_of(busy_ms_per_s=990.0)
    recorder.observe(TaskIoReported(((attempt(), busy),), 0))
    recorder.observe(
        ExecutionStateChanged(attempt(), ExecutionState.INITIALIZING, ExecutionState.RUNNING, 0)
    )
    job = jobs.job(JOB)
    verdict = jobs.verdict(job)
    assert (verdict.limit.vertex_id, verdict.limit.since_ms) == (SOURCE, job.now_ms)


def test_a_wish_for_slots_is_recorded(jobs, recorder):
    recorder.observe(SlotsMissing(4, 2, "too few; Spark has 2 cores"))
    assert jobs.job(JOB).missing_slots == SlotsMissing(4, 2, "too few; Spark has 2 cores")


def test_a_program_sees_its_job_also_when_others_have_forgotten_it(jobs, recorder):
    look = jobs.look_of(JOB)
    recorder.observe(JobStatusChanged(JobStatus.FINISHED, 0))
    jobs.capacity = 0
    jobs.snapshot()
    assert jobs.job(JOB) is None
    assert look().status is JobStatus.FINISHED


def test_what_followed_a_failure_is_recorded(jobs, recorder):
    job = Job()
    job.exceptions.begin(FailureInfo("ValueError", "x"), 5)
    recorder.observe(JobTick(job))
    job.exceptions.restarts(70)
    recorder.observe(JobTick(job))
    ((root, _),) = jobs.job(JOB).failures
    assert (root.number, root.restart, root.delay_ms) == (1, 1, 70)
    (group,) = jobs.job(JOB).failure_groups.groups
    assert (group.newest, group.count) == (root, 1)


def test_figures_over_time_are_those_that_are_kept(jobs, recorder):
    recorder.observe(TaskIoReported(((attempt(), io_of(busy_ms_per_s=250.0)),), 0))
    recorder.observe(
        ExecutionStateChanged(attempt(), ExecutionState.INITIALIZING, ExecutionState.RUNNING, 0)
    )
    job = jobs.job(JOB)
    source, sink = job.vertices
    assert jobs.figures(job, source, FINE) == []
    with jobs.histories() as histories:
        histories.look(job)
    ((at_ms, row),) = jobs.figures(job, source, FINE)
    assert at_ms == job.now_ms // 1_000 * 1_000
    assert row[FIGURES.index("busyTimeMsPerSecond.max")] == 250
    assert jobs.figures(job, sink, FINE) == []
