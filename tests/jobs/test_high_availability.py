"""Jobs of a MiniCluster with high availability: entries, recovery, fencing; another driver is a store of its own."""

import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.connectors.files.sink import _FileCommitter
from penstock.engine.hosting.jobmanager.coordinators.coordinators import Coordinators
from penstock.engine.hosting.jobmanager.ha import guard as ha_guard
from penstock.engine.hosting.jobmanager.ha.election import Standby
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.machines.leases import Instant, Lease
from penstock.engine.model.errors import (
    ConfigurationError,
    ExternalError,
    JobCancelledError,
    JobExecutionError,
    JobSuspendedError,
)
from penstock.engine.model.states import ExecutionState, JobStatus
from tests.tools.hosting.running_job import control_of
from tests.tools.programs.failover_programs import (
    LEASE_MS,
    configured,
    doubt,
    ha_environment,
    held_job,
    holding,
    numbers_to_file,
    other_driver,
    pause,
    result_of,
)

RUNS: list[int] = []


def remember(value):
    RUNS.append(value)
    return value


def test_an_entry_is_there_while_the_job_runs_and_gone_when_it_has_finished(tmp_path):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "entered") as (_, client):
        store = other_driver(tmp_path).store
        (key,) = store.job_keys()
        lease = store.lease(store.find(key))
        assert (lease.job_id, lease.job_name) == (str(client.get_job_id()), "entered")
    client.get_job_execution_result().result()
    assert store.job_keys() == []
    assert store.ended(key).status == "FINISHED"
    assert result_of(tmp_path) == list(range(10))


def test_a_failed_job_removes_its_entry(tmp_path):
    env = ha_environment(tmp_path)
    numbers_to_file(env, tmp_path, lambda v: 1 // (v - 7))
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        env.execute("fails")
    store = other_driver(tmp_path).store
    assert store.job_keys() == []
    assert result_of(tmp_path) == []


def test_a_cancelled_job_removes_its_entry(tmp_path):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "cancelled") as (held, client):
        cancelled = client.cancel()
        held.open()
        cancelled.result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()
    assert other_driver(tmp_path).store.job_keys() == []
    assert result_of(tmp_path) == []


def steal(folder: Path):
    """Another driver takes the lease, with no regard for whether it has run out."""
    store = other_driver(folder).store
    (key,) = store.job_keys()
    entry = store.find(key)
    former = store.lease(entry)
    mine = Lease(0, "thief", former.job_id, former.job_name, 0, LEASE_MS)
    return store, store.take(entry, mine)


def test_a_job_whose_lease_is_taken_is_suspended_and_touches_nothing(tmp_path):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "taken") as (held, client):
        store, taken = steal(tmp_path)
        result = client.get_job_execution_result()
        own = next(tmp_path.rglob(".*.inprogress"))
        head, writer, tail = own.name.rsplit(".", 2)
        of_the_new_driver = own.with_name(f"{head}.{writer[:-1]}-.{tail}")
        of_the_new_driver.write_text("of an attempt of the same subtask")
        with pytest.raises(JobSuspendedError, match="driver thief has taken it over"):
            result.result()
    assert store.find(taken.key) == taken
    assert store.read(taken, "result") is None
    assert of_the_new_driver.exists()
    assert not list(tmp_path.rglob("part-*"))


class Recorder(JobObserver):
    def __init__(self) -> None:
        self.statuses = []
        self.ticks = threading.Semaphore(0)
        self.finished = []

    def on_job_tick(self, event) -> None:
        self.ticks.release()

    def on_execution_state_changed(self, change) -> None:
        if change.new is ExecutionState.FINISHED:
            self.finished.append(change.attempt_id)

    def on_job_status_changed(self, change) -> None:
        self.statuses.append(change.status)


def test_a_driver_whose_clock_leaps_does_nothing_until_it_has_asked(tmp_path, monkeypatch):
    """As after SIGCONT: its lease has run out on its own clock, but nobody took it."""
    env = ha_environment(tmp_path, recorder := Recorder())
    leap = [0]
    read = ha_guard.read_instant
    monkeypatch.setattr(
        ha_guard,
        "read_instant",
        lambda: Instant(read().steady_ms + leap[0], read().wall_ms + leap[0]),
    )
    with held_job(env, tmp_path, "leap") as (held, client):
        leap[0] = 3_600_000
    client.get_job_execution_result().result()
    assert recorder.statuses == [JobStatus.RUNNING, JobStatus.FINISHED]
    assert result_of(tmp_path) == list(range(10))


def test_a_driver_that_was_fenced_while_its_tasks_finished_commits_nothing(tmp_path, monkeypatch):
    """The lease goes between the end of the last task and the commit."""
    env = ha_environment(tmp_path)
    before_commit = ha_guard.LeaseKeeper.before_commit
    stolen = []

    def steal_first(self, committables, commit):
        stolen.append(steal(tmp_path))
        before_commit(self, committables, commit)

    monkeypatch.setattr(ha_guard.LeaseKeeper, "before_commit", steal_first)
    numbers_to_file(env, tmp_path)
    with pytest.raises(JobSuspendedError):
        env.execute("late")
    ((store, taken),) = stolen
    assert store.find(taken.key) == taken
    assert not list(tmp_path.rglob("part-*"))


def test_all_waits_while_the_leadership_is_in_doubt(tmp_path):
    env = ha_environment(tmp_path, recorder := Recorder())
    with held_job(env, tmp_path, "doubt") as (held, client):
        trust = doubt(client)
        before = len(recorder.finished)
        held.open()
        for _ in range(8):
            assert recorder.ticks.acquire(timeout=30)
        assert len(recorder.finished) == before
        trust()
    client.get_job_execution_result().result()
    assert result_of(tmp_path) == list(range(10))


@contextmanager
def driver_that_dies_at(monkeypatch, owner, name):
    """The thread that keeps its lease stops dead in a call: no renewal any more."""
    dead = threading.Event()

    def die(self, *arguments, **named):
        dead.set()
        threading.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        yield dead


def test_a_driver_that_dies_before_the_commit_has_its_commit_done_by_the_next(
    tmp_path, monkeypatch, capfd
):
    """The result was recorded, so the job is not run again: its files are renamed, and that is all."""
    env = ha_environment(tmp_path)
    RUNS.clear()
    numbers_to_file(env, tmp_path, remember)
    with driver_that_dies_at(monkeypatch, Coordinators, "finalize") as dead:
        env.execute_async("commit")
        assert dead.wait(30)
    assert not list(tmp_path.rglob("part-*"))
    env = ha_environment(tmp_path)
    numbers_to_file(env, tmp_path)
    env.execute("commit")
    assert "its end was recorded as FINISHED" in capfd.readouterr().err
    assert result_of(tmp_path) == list(range(10))
    assert sorted(RUNS) == list(range(10))
    assert other_driver(tmp_path).store.job_keys() == []


def test_the_same_program_finds_the_job_of_a_driver_that_is_gone(tmp_path, capfd):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "gone") as (held, lost):
        resume = pause(lost)
        held.open()  # its tasks finish by themselves
        env = ha_environment(tmp_path)
        numbers_to_file(env, tmp_path, lambda v: v * 1000)  # the stored job runs, not this one
        result = env.execute("gone")
    assert str(result.get_job_id()) == str(lost.get_job_id())
    resume()
    with pytest.raises(JobSuspendedError, match="has taken it over and ended it"):
        lost.get_job_execution_result().result()
    assert result_of(tmp_path) == list(range(10))
    told = capfd.readouterr().err
    assert "waiting for its end" in told
    assert "begins at the start of its sources" in told


def test_a_driver_that_waits_gets_the_end_of_the_job_that_it_waited_for(tmp_path):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "awaited") as (held, client):
        other = other_driver(tmp_path)
        (key,) = other.store.job_keys()
        standby = Standby()
        assert other.try_claim(key, None, standby) is None
    client.get_job_execution_result().result()
    ended = other.try_claim(key, None, standby)
    assert (ended.status, ended.job_id) == ("FINISHED", str(client.get_job_id()))
    assert other.try_claim(key, None, Standby()) is None, "an older end is nobody's answer"


def test_a_job_that_runs_is_left_alone_by_recover(tmp_path):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "alive") as (held, client):
        assert MiniCluster().executor().recover(configured(tmp_path)) == []
    client.get_job_execution_result().result()


def test_recover_runs_a_job_without_its_program(tmp_path):
    env = ha_environment(tmp_path)
    with held_job(env, tmp_path, "recovered") as (held, lost):
        resume = pause(lost)
        held.open()
        executor = MiniCluster(observer=JobObserver()).executor()
        ((name, control),) = executor.recover(configured(tmp_path))
        assert (name, control.wait(30).status) == ("recovered", JobStatus.FINISHED)
        resume()
        control_of(lost).wait(30)
    assert result_of(tmp_path) == list(range(10))


def test_recover_drops_the_rows_that_nobody_is_there_to_take(tmp_path):
    """More than the credit of a collect stream: the job would wait for its reader for ever."""
    env = ha_environment(tmp_path)
    with holding("collected") as held:
        many = env.from_collection(list(range(7, 17))).map(held).flat_map(lambda v: [v] * 20_000)
        rows = many.execute_and_collect("collected")
        held.wait()
        resume = pause(rows)
        held.open()
        executor = MiniCluster(observer=JobObserver()).executor()
        ((_, control),) = executor.recover(configured(tmp_path))
        assert control.wait(30).status is JobStatus.FINISHED
        resume()
        with pytest.raises(JobExecutionError, match="does not lead"):
            list(rows)


def test_a_commit_that_was_cut_off_in_the_middle_is_completed_once(tmp_path, monkeypatch):
    env = ha_environment(tmp_path)
    numbers_to_file(env, tmp_path)
    halfway, go_on = threading.Event(), threading.Event()
    commit = _FileCommitter.commit

    def commit_half(self, committables):
        commit(self, committables[:1])
        halfway.set()
        assert go_on.wait(30)
        commit(self, committables[1:])

    with monkeypatch.context() as patch:
        patch.setattr(_FileCommitter, "commit", commit_half)
        stopped = env.execute_async("half")
        assert halfway.wait(30)
        resume = pause(stopped)
    assert len(list(tmp_path.rglob("part-*"))) == 1
    env = ha_environment(tmp_path)
    numbers_to_file(env, tmp_path)
    env.execute("half")
    assert result_of(tmp_path) == list(range(10))
    go_on.set()  # the stopped driver goes on in the middle of its commit
    resume()
    control_of(stopped).wait(30)
    assert result_of(tmp_path) == list(range(10))


def test_recover_needs_high_availability():
    with pytest.raises(ConfigurationError, match="NONE"):
        MiniCluster().executor().recover({})


def test_a_job_that_cannot_start_leaves_no_entry(tmp_path):
    env = ha_environment(tmp_path)
    numbers_to_file(env, tmp_path)
    env.use_executor(MiniCluster(taskmanagers=0).executor())
    with pytest.raises(ExternalError, match="can be started"):
        env.execute("too large")
    assert other_driver(tmp_path).store.job_keys() == []


def test_a_fixed_job_id_finds_a_job_whatever_its_name(tmp_path):
    fixed = "0123456789abcdef" * 2
    env = ha_environment(tmp_path, **{"pipeline.fixed-job-id": fixed.upper()})
    with held_job(env, tmp_path, "fixed") as (held, client):
        assert str(client.get_job_id()) == fixed
        assert other_driver(tmp_path).store.job_keys() == [fixed]
    client.get_job_execution_result().result()
    env = ha_environment(tmp_path, **{"pipeline.fixed-job-id": "12"})
    numbers_to_file(env, tmp_path)
    with pytest.raises(ConfigurationError, match="32 hexadecimal"):
        env.execute("wrong id")
