"""Jobs of a fixed size whose TaskManagers leave (docs/spec/elasticity.md#taskmanagers-that-leave)."""

from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import TaskManagersLeaving
from tests.tools.hosting.running_job import manager_of
from tests.tools.programs.checkpoint_programs import (
    expected_sums,
    lines_of,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import same
from tests.tools.waiting import wait_until


def leave(client, name):
    """As the host tells it: the ResourceManager first."""
    manager = manager_of(client)

    def tell():
        event = TaskManagersLeaving((ResourceId(name),), "decommissioned", manager.started_ms)
        manager.shell.feed_resources(event)
        manager.shell.feed_job(event)

    manager.run_soon(tell)


def places(client):
    vertices = manager_of(client).job_master.state.graph.vertices
    return {str(one.execution.location.resource_id) for one in vertices if one.execution.location}


def test_a_job_moves_to_another_taskmanager_and_repeats_nothing(tmp_path, stage):
    watcher = Generations()
    cluster = MiniCluster(taskmanagers=2, parallelism=2, observer=watcher)
    env = minicluster_environment(cluster, RESTARTS | {"execution.checkpointing.interval": "1 h"})
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    assert places(client) == {"tm-1", "tm-2"}
    leave(client, "tm-1")
    wait_until(lambda: places(client) == {"tm-2", "tm-3"}, "it does not move")
    wait_until(lambda: "tm-1" not in cluster.last_provider.managers, "the old one stays")
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    assert [one.is_planned for one in watcher.replaced] == [True]
    assert set(parallelism_of(manager_of(client).job_master.job_graph).values()) == {2}
    assert list(manager_of(client).job_master.exceptions) == []
