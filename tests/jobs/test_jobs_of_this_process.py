"""`penstock.jobs()` lists and cancels; a job that is refused for want of slots names them; an iterator that is gone lets its job go."""

import builtins
import gc

import pytest

import penstock
from penstock.common import WatermarkStrategy
from penstock.engine.model.errors import JobCancelledError, NoResourceAvailable
from penstock.testing import MiniCluster
from tests.tools.programs.checkpoint_programs import HeldSource
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def nothing_is_left():
    yield
    for job in penstock.jobs():
        job.cancel()


def endless(stage, cluster=None, parallelism=1):
    """A stream of a job that stands still."""
    env = minicluster_environment(cluster or MiniCluster())
    env.set_parallelism(parallelism)
    source = HeldSource(stage.name, splits=1, count=10, hold=5)
    return env, env.from_source(source, WatermarkStrategy.no_watermarks(), "held")


def mine(name):
    return [job for job in penstock.jobs() if job.name == name]


def running(name):
    wait_until(lambda: mine(name) and mine(name)[0].slots == 1, f"{name} holds no slot")
    (job,) = mine(name)
    return job


def test_a_running_job_is_listed_with_its_slots_and_can_be_cancelled(stage):
    env, stream = endless(stage)
    stream.print()
    client = env.execute_async("listed")
    job = running("listed")
    assert job.job_id == str(client.get_job_id())
    assert job.status.name == "RUNNING"
    assert "'listed' (1 slot, since " in repr(job)
    job.cancel()
    assert client.get_job_status().result().name == "CANCELED"
    assert mine("listed") == []


def test_a_job_that_is_refused_for_want_of_slots_names_the_jobs_that_hold_some(stage):
    cluster = MiniCluster(taskmanagers=2)
    env, stream = endless(stage, cluster)
    stream.print()
    env.execute_async("holder")
    job = running("holder")
    other, large = endless(stage, cluster, parallelism=3)
    large.print()
    with pytest.raises(NoResourceAvailable, match=r"'holder' \(1 slot, since .*penstock\.jobs\(\)"):
        other.execute_async("refused")
    job.cancel()


def test_an_iterator_that_nobody_holds_cancels_its_job(stage):
    _, stream = endless(stage)
    results = stream.execute_and_collect("forgotten")
    job = running("forgotten")
    assert next(results) == (0, 0)
    del results
    gc.collect()
    with pytest.raises(JobCancelledError):
        job.client.get_job_execution_result().result()
    assert mine("forgotten") == []


def test_a_job_whose_client_somebody_has_goes_on_without_its_iterator(stage):
    _, stream = endless(stage)
    client = stream.execute_and_collect("held").get_job_client()
    gc.collect()
    assert [str(client.get_job_id())] == [job.job_id for job in mine("held")]
    client.cancel().result()


def test_a_notebook_cell_that_runs_again_takes_the_place_of_its_job(stage, monkeypatch):
    class Shell:
        execution_count = 1
        user_ns: dict = {}

    monkeypatch.setattr(builtins, "get_ipython", Shell, raising=False)
    Shell.user_ns = {"start": lambda: endless(stage)[1].execute_and_collect("cell")}
    cell = compile("results = start()", "the-cell", "exec")
    exec(cell, Shell.user_ns)
    first = Shell.user_ns["results"].get_job_client()
    Shell.execution_count = 2
    exec(cell, Shell.user_ns)
    second = Shell.user_ns["results"].get_job_client()
    assert first.get_job_status().result().name == "CANCELED"
    assert [job.job_id for job in mine("cell")] == [str(second.get_job_id())]
    Shell.user_ns["results"].close()
