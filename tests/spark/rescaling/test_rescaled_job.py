"""A job on Spark, `local[8]`, changes its parallelism while it runs: tasks of Spark begin and end for it."""

import pytest

from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment
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
SETTINGS = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "execution.checkpointing.interval": "1 h",
    "taskmanager.numberOfTaskSlots": "1",
    "resourcemanager.taskmanager-timeout": "200 ms",
}


def test_two_four_and_one_subtasks_count_each_record_once(sessions, tmp_path):
    sessions.on("local[8]")
    gate = tmp_path / "open"
    watcher = Generations()
    env = environment(2, **SETTINGS).use_executor(ClusterExecutor(SparkHost(), watcher))
    sums_to_file(env, tmp_path / "out", SharedSplits(str(gate), 6, 40, 20), same)
    client = env.execute_async("sums")
    vertices = manager_of(client).job_graph.vertices
    for generation, count in ((1, 4), (2, 1)):
        wait_until_running(client)
        client.rescale(dict.fromkeys(vertices, count)).result()
        watcher.wait_for_generation(generation)
    wait_until_running(client)
    links = manager_of(client).shell.links
    wait_until(lambda: len(set(links.everybody())) == 1, "the TaskManagers do not end")
    gate.touch()
    client.get_job_execution_result().result()
    assert watcher.parallelisms == [{4}, {1}]
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    assert not taskmanagers_left()
