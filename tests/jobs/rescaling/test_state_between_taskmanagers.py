"""State of a job that changes its size goes from TaskManager to TaskManager (docs/spec/elasticity.md#handover)."""

import pytest

from penstock.engine.hosting.local.minicluster import MiniCluster, ThreadProvider
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.options.autoscaler import ElasticOptions
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

IN_FILES = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "execution.checkpointing.interval": "1 h",
    "execution.checkpointing.data-inline-threshold": "0 kb",
}


class Nodes(ThreadProvider):
    """Each TaskManager is on a node of its own."""

    def data_endpoint(self, resource_id):
        return Endpoint(f"127.0.0.{1 + int(resource_id.removeprefix('tm-'))}")


class OnNodes(MiniCluster):
    def provider(self, settings, needed):
        self.last_provider = Nodes(1)
        return self.last_provider


def changed(tmp_path, stage, then=lambda _cluster: None, after=4, apart=True, **more):
    """A job of two subtasks that has got others, and then ends. Returns its client and what it was seen to do.

    `then`: called when the checkpoint of the handover is complete, and no task of the next generation is deployed. `apart`: the
    TaskManagers are on nodes of their own.
    """
    clusters = []
    watcher = Generations(then=lambda count: then(clusters[0]) if count == 1 else None)
    place = {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    clusters.append((OnNodes if apart else MiniCluster)(parallelism=2, observer=watcher))
    env = minicluster_environment(clusters[0], RESTARTS | IN_FILES | place | given)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    vertices = parallelism_of(manager_of(client).job_graph)
    client.rescale(dict.fromkeys(vertices, after)).result()
    watcher.wait_for_generation(1)
    wait_until_running(client)
    stage.gate.set()
    client.get_job_execution_result().result()
    return client, watcher


def restored(client):
    """How many bytes the tasks took from TaskManagers, and from files."""
    metrics = [io for _, _, io in client.get_task_metrics().result()]
    local = sum(io.restored_local_bytes for io in metrics)
    return local, sum(io.restored_remote_bytes for io in metrics)


def failures(client):
    return list(manager_of(client).job_master.exceptions)


@pytest.mark.parametrize(
    ("backend", "incremental"), [("hashmap", "false"), ("rocksdb", "false"), ("rocksdb", "true")]
)
@pytest.mark.parametrize("after", [4, 1])
def test_no_file_is_read_where_those_who_wrote_it_live(
    tmp_path, stage, backend, incremental, after
):
    """Two of the four are new: what they have came from others."""
    more = {"state__backend__type": backend, "execution__checkpointing__incremental": incremental}
    client, watcher = changed(tmp_path, stage, after=after, **more)
    local, remote = restored(client)
    assert local > 0
    assert remote == 0
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    assert watcher.parallelisms == [{after}]
    assert failures(client) == []


def test_on_one_machine_a_task_takes_what_its_taskmanager_has_and_reads_the_rest(tmp_path, stage):
    client, _ = changed(tmp_path, stage, after=1, apart=False)
    local, remote = restored(client)
    assert local > 0
    assert remote > 0
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def test_without_room_for_it_all_is_read_from_files(tmp_path, stage):
    client, _ = changed(tmp_path, stage, **{ElasticOptions.KEPT_STATE.key: "0"})
    local, remote = restored(client)
    assert local == 0
    assert remote > 0
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def test_a_taskmanager_that_keeps_nothing_any_more_costs_no_restart(tmp_path, stage):
    """What the other one wrote comes from there, and the rest from files."""

    def forget(cluster):
        cluster.last_provider.managers["tm-1"].data_plane.handed_state.forget(lambda _one: True)

    client, _ = changed(tmp_path, stage, forget)
    local, remote = restored(client)
    assert local > 0
    assert remote > 0
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    assert failures(client) == []


def test_a_taskmanager_that_is_killed_in_between_leaves_its_files(tmp_path, stage):
    """The job restarts, because one of its slots is gone, from the checkpoint of the handover: no record twice, none lost."""

    def kill(cluster):
        cluster.last_provider.managers["tm-1"].abandon()

    client, _ = changed(tmp_path, stage, kill)
    _, remote = restored(client)
    assert remote > 0
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
