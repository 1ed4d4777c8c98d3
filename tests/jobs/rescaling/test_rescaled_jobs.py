"""Jobs of a MiniCluster that change their parallelism while they run."""

from penstock.model.graph.rescaling import parallelism_of
from tests.tools.output_files import files_below
from tests.tools.programs.checkpoint_programs import (
    expected_sums,
    lines_of,
    restarting_environment,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import same


def checkpointed(observer, tmp_path, **more):
    settings = {
        "execution__checkpointing__interval": "1 h",
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
        "parallelism__default": "2",
        "jobmanager__adaptive_scheduler__executing__cooldown_after_rescaling": "0 s",
    }
    return restarting_environment(observer, **settings | more)


def all_at(client, count):
    """The same parallelism for every vertex."""
    graph = client._control.manager.job_graph
    return dict.fromkeys(parallelism_of(graph), count)


def test_state_moves_to_more_and_to_fewer_subtasks_and_each_record_counts_once(tmp_path, stage):
    watcher = Generations()
    env = checkpointed(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    client.rescale(all_at(client, 4)).result()
    watcher.wait_for_generation(1)
    wait_until_running(client)
    client.rescale(all_at(client, 1)).result()
    watcher.wait_for_generation(2)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert watcher.parallelisms == [{4}, {1}]
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    assert watcher.restored == [], "a change that is wished for is no restart"
    assert files_below(tmp_path / "checkpoints") == []
