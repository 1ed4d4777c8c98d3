"""Jobs of a MiniCluster under the Adaptive scheduler: they run with the slots that there are, and follow when these change."""

import pytest

from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import ConfigurationError, JobSuspendedError
from penstock.engine.model.graph.rescaling import parallelism_of
from tests.tools.hosting.running_job import manager_of
from tests.tools.programs.checkpoint_programs import (
    expected_sums,
    lines_of,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.failover_programs import pause
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import same
from tests.tools.waiting import wait_until

_SCHEDULER = "jobmanager.adaptive-scheduler"
AT_ONCE = {
    f"{_SCHEDULER}.executing.cooldown-after-rescaling": "0 s",
    f"{_SCHEDULER}.executing.resource-stabilization-timeout": "0 s",
    f"{_SCHEDULER}.submission.resource-stabilization-timeout": "0 s",
    "execution.checkpointing.interval": "1 h",
    "penstock.taskmanager.start-timeout": "200 ms",
}
ADAPTIVE = {"jobmanager.scheduler": "Adaptive"}


def environment(observer, settings, taskmanagers=None, parallelism=3):
    cluster = MiniCluster(taskmanagers=taskmanagers, parallelism=parallelism, observer=observer)
    return minicluster_environment(cluster, RESTARTS | AT_ONCE | settings), cluster


def parallelism(client):
    graph = manager_of(client).job_master.job_graph
    return set(parallelism_of(graph).values())


def test_a_job_goes_on_with_fewer_slots_after_a_loss_and_grows_again(tmp_path, stage):
    watcher = Generations()
    env, cluster = environment(watcher, ADAPTIVE)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until(lambda: parallelism(client) == {3}, "it does not use three slots")
    wait_until_running(client)
    provider = cluster.last_provider
    start, provider.start = provider.start, lambda *_more: None
    provider.stop(sorted(provider.managers)[0])
    wait_until(lambda: parallelism(client) == {2}, "it does not go on with two slots")
    wait_until_running(client)
    provider.start = start
    wait_until(lambda: parallelism(client) == {3}, "it does not grow again")
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    planned = [one.is_planned for one in watcher.replaced]
    assert False in planned
    assert planned[-1], "growing again repeats nothing"


def test_a_reactive_job_takes_all_that_the_cluster_has(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, {"scheduler-mode": "reactive"}, taskmanagers=4, parallelism=1)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until(lambda: parallelism(client) == {4}, "it does not take four slots")
    with pytest.raises(ConfigurationError, match="reactive"):
        client.rescale({"map": 2})
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def test_what_was_asked_for_counts_for_the_driver_that_takes_the_job_over(tmp_path, stage):
    shared = {
        "execution.checkpointing.interval": "20 ms",
        "high-availability.type": "FILE",
        "high-availability.storageDir": str(tmp_path / "ha"),
        "penstock.high-availability.lease-duration": "2 s",
        "penstock.high-availability.renew-interval": "100 ms",
    }
    source = SharedSplits(stage.name, 6, 40, 20)
    watcher = Generations()
    env, _ = environment(watcher, shared, parallelism=2)
    sums_to_file(env, tmp_path / "out", source, same)
    lost = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(lost)
    lost.rescale(dict.fromkeys(parallelism_of(manager_of(lost).job_graph), 3)).result()
    watcher.wait_for_generation(1)
    watcher.wait_for(len(watcher.completed) + 1)
    resume = pause(lost)
    second = Generations()
    env, _ = environment(second, shared, parallelism=2)
    sums_to_file(env, tmp_path / "out", source, same)
    client = env.execute_async("sums")
    wait_until(lambda: parallelism(client) == {3}, "the other driver has forgotten it")
    stage.gate.set()
    client.get_job_execution_result().result()
    resume()
    with pytest.raises(JobSuspendedError):
        lost.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
