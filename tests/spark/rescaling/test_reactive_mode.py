"""Reactive jobs on executors of their own: they take what Spark has, and follow when executors go and come."""

import signal
from pathlib import Path

import psutil
import pytest

from penstock.engine.hosting.os.spark_thread import SparkThread
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.model.graph.rescaling import parallelism_of
from tests.spark.processes import executor_jvms, taskmanagers_left
from tests.spark.programs import environment
from tests.spark.sessions import FAILS_FAST, LOCAL_CLUSTER
from tests.tools.hosting.running_job import manager_of
from tests.tools.programs.checkpoint_programs import (
    expected_sums,
    lines_of,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import same
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark
_SCHEDULER = "jobmanager.adaptive-scheduler"
SETTINGS = {
    "scheduler-mode": "reactive",
    f"{_SCHEDULER}.executing.cooldown-after-rescaling": "0 s",
    f"{_SCHEDULER}.executing.resource-stabilization-timeout": "0 s",
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 s",
    "restart-strategy.fixed-delay.attempts": "100",
    "taskmanager.numberOfTaskSlots": "1",
}
DECOMMISSIONS = {"spark_decommission_enabled": "true"}
PATIENCE_S = 90


class ReactiveJob:
    """It takes all six cores of two executors, and its sources stand still until the gate opens."""

    def __init__(self, folder, parallelism: int = 1, settings: dict[str, str] = SETTINGS) -> None:
        self.folder = folder
        self.watcher = Generations()
        self.gate = folder / "open"
        env = environment(parallelism, **settings).use_executor(
            ClusterExecutor(SparkHost(), self.watcher)
        )
        sums_to_file(env, folder / "out", SharedSplits(str(self.gate), 6, 40, 20), same)
        self.client = env.execute_async("sums")

    def has(self, parallelism: int) -> bool:
        graph = manager_of(self.client).job_master.job_graph
        return set(parallelism_of(graph).values()) == {parallelism}

    def wait_for(self, parallelism: int) -> None:
        wait_until(lambda: self.has(parallelism), f"it has not {parallelism} subtasks", PATIENCE_S)
        wait_until_running(self.client)

    def finish(self) -> None:
        self.gate.touch()
        self.client.get_job_execution_result().result()
        assert lines_of(self.folder / "out") == expected_sums(6, 40)
        assert not taskmanagers_left()


def test_the_size_of_a_job_follows_the_executors(sessions, tmp_path):
    sessions.on(LOCAL_CLUSTER, **FAILS_FAST, **DECOMMISSIONS)
    job = ReactiveJob(tmp_path)
    job.wait_for(6)
    before = len(job.watcher.replaced)
    executor_jvms()[0].kill()
    job.wait_for(3)
    job.wait_for(6)
    assert {one.is_planned for one in job.watcher.replaced[before:]} == {False, True}
    job.finish()


@pytest.mark.long
def test_slots_that_others_held_when_the_job_began_are_taken_when_they_are_free(sessions, tmp_path):
    spark = sessions.on(LOCAL_CLUSTER, **FAILS_FAST, **DECOMMISSIONS)
    held, begun = tmp_path / "held", str(tmp_path / "begun-")
    held.touch()

    def hold(part):
        Path(f"{begun}{part}").touch()
        wait_until(lambda: not held.exists(), "the slots are still to be held", PATIENCE_S)

    others = SparkThread(
        spark.sparkContext,
        lambda: spark.sparkContext.parallelize(range(3), 3).foreach(hold),
        lambda _: None,
        "others",
    )
    others.start()
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 3, "nobody holds slots", PATIENCE_S)
    job = ReactiveJob(tmp_path)
    job.wait_for(3)
    held.unlink()
    others.join()
    job.wait_for(6)
    job.finish()


@pytest.mark.long
def test_an_executor_that_is_decommissioned_is_left_before_it_goes(sessions, tmp_path):
    """Spark lets it run until its tasks have ended. So it ends only if the job leaves it, and the job never fails."""
    sessions.on(LOCAL_CLUSTER, **FAILS_FAST, **DECOMMISSIONS)
    job = ReactiveJob(tmp_path)
    job.wait_for(6)
    before = len(job.watcher.replaced)
    (leaving, _other) = executor_jvms()
    leaving.send_signal(signal.SIGPWR)
    _, alive = psutil.wait_procs([leaving], timeout=PATIENCE_S)
    assert not alive, "the executor waits for tasks that do not end"
    job.wait_for(6)
    assert all(one.is_planned for one in job.watcher.replaced[before:])
    assert len(job.watcher.replaced) >= before + 2
    assert list(manager_of(job.client).job_master.exceptions) == []
    job.finish()


@pytest.mark.long
def test_a_job_of_a_fixed_size_leaves_an_executor_that_is_decommissioned_too(sessions, tmp_path):
    """Three of six cores are free, so the other executor has room for all its tasks, wherever they are."""
    sessions.on(LOCAL_CLUSTER, **FAILS_FAST, **DECOMMISSIONS)
    fixed = {key: value for key, value in SETTINGS.items() if "scheduler" not in key}
    job = ReactiveJob(tmp_path, 3, fixed)
    job.wait_for(3)
    used = set(manager_of(job.client).watch.host.staying.values())
    leaving = next(
        one
        for one in executor_jvms()
        if one.cmdline()[one.cmdline().index("--executor-id") + 1] in used
    )
    leaving.send_signal(signal.SIGPWR)
    _, alive = psutil.wait_procs([leaving], timeout=PATIENCE_S)
    assert not alive, "the executor waits for tasks that do not end"
    job.wait_for(3)
    assert [one.is_planned for one in job.watcher.replaced] == [True]
    assert list(manager_of(job.client).job_master.exceptions) == []
    job.finish()
