"""Jobs on YARN itself, with HDFS beside it: each TaskManager in a container of YARN's."""

import re
from pathlib import Path

import pyspark
import pytest

from tests.tools.clusters.connect_server import HOME, URL, connect_server
from tests.tools.clusters.yarn_jobs import (
    EXPECTED,
    LIMIT_S,
    SETTINGS,
    counted,
    lines_of,
    meanwhile,
    order,
    run,
    submission,
    yarn,
)
from tests.tools.waiting import wait_until

__all__ = ["yarn"]

pytestmark = pytest.mark.spark


def test_each_taskmanager_is_in_a_container(yarn, tmp_path):
    lines, _ = counted(yarn, tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    containers = {container for _, _, container in lines}
    assert len(containers) == 2
    assert all(one.startswith("container_") for one in containers)
    logs = wait_until(
        lambda: logs_of(yarn, min(containers)), "the logs are not aggregated", LIMIT_S
    )
    assert all(f"taskmanager=tm-{number} REGISTERS" in logs for number in (1, 2))


def logs_of(yarn, container):
    """What `yarn logs` gives of the application of this container; "": nothing yet."""
    _, started, number, *_ = container.split("_")
    application = f"application_{started}_{number}"
    cli = "org.apache.hadoop.yarn.client.cli.LogsCLI"
    return yarn.tool(cli, "-applicationId", application).stdout


@pytest.mark.long
def test_with_dynamic_allocation_executors_come_as_the_job_needs_them(yarn, tmp_path):
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.executor.instances": "0",
    }
    lines, said = counted(yarn, tmp_path, str(tmp_path / "sprung"), "kills", **dynamic)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert "lost TaskManager" in said
    assert "Give Spark more cores" not in said


def test_a_killed_executor_costs_no_row(yarn, tmp_path):
    """YARN gives another container in its place."""
    lines, said = counted(yarn, tmp_path, str(tmp_path / "sprung"), "kills")
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert "lost TaskManager" in said
    assert "restarted subtasks" in said
    assert "1 of 2 executors that Spark has asked YARN for have not come yet" in said
    assert "Give Spark more cores" not in said


def test_a_container_that_is_killed_for_memory_is_reported_in_yarns_words(yarn, tmp_path):
    lines, said = counted(yarn, tmp_path, str(tmp_path / "sprung"), "hoards")
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    (lost,) = [line for line in said.splitlines() if "lost TaskManager" in line]
    assert re.search(r"executor \d has ended: .* \d.\d GB of 1.3 GB physical memory used", lost)
    assert "Consider boosting spark.executor.memoryOverhead" in lost


def test_more_memory_than_yarn_has_is_said_in_its_words_without_frames(yarn, tmp_path):
    done = run(yarn, tmp_path, **{"spark.executor.memory": "50g"})
    assert done.returncode == 1
    _, why, log = done.stderr.splitlines()
    assert why.startswith("penstock: Spark did not start: Required executor memory (51200 MB)")
    Path(log.removeprefix("Its log: ")).unlink()


def test_in_cluster_mode_the_driver_is_in_a_container_too(yarn, tmp_path):
    done = yarn.sandbox.run(*submission(tmp_path), env=yarn.environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    assert len({container for _, _, container in lines}) == 2
    # The first container of an application is its master's.
    assert not [container for _, _, container in lines if container.endswith("_000001")]


def test_a_client_of_a_spark_connect_server_has_its_taskmanagers_in_containers(yarn, tmp_path):
    conf = [f"--conf={key}={value}" for key, value in SETTINGS.items()]
    start = (f"{HOME}/sbin/start-connect-server.sh", "--master", "yarn", *conf)
    penstock, run, *_ = order(tmp_path)
    places = f"-Dexecution.checkpointing.dir=file://{tmp_path}/checkpoints"
    command = (penstock, run, "--master", URL, places, "counts.py", "--", str(tmp_path / "out"))
    with connect_server(yarn.sandbox, tmp_path, *start, environment=yarn.environment) as server:
        done = server.run(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    containers = {container for _, _, container in lines}
    assert len(containers) == 2
    assert all(one.startswith("container_") for one in containers)


# An application of Spark alone: its only task makes a file.
URGENT = """
import sys
from pathlib import Path
from pyspark import SparkContext

SparkContext().parallelize(sys.argv[1:], 1).map(lambda name: Path(name).touch()).collect()
"""


@pytest.mark.long
def test_a_container_that_another_queue_gets_costs_no_row(yarn, tmp_path):
    """The job has more than its queue's half of the memory, until the other queue wants its own."""
    large = {"spark.executor.memoryOverhead": "2g"}
    over = tmp_path / "over"
    (tmp_path / "urgent.py").write_text(URGENT)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = SETTINGS | large | {"spark.executor.instances": "1", "spark.yarn.queue": "urgent"}
    settings = [f"--conf={key}={value}" for key, value in conf.items()]
    urgent = (str(submit), "--master", "yarn", *settings, str(tmp_path / "urgent.py"), str(over))

    def want():
        done = yarn.sandbox.run(*urgent, env=yarn.environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    command = order(tmp_path, str(tmp_path / "sprung"), "waits", str(over), **large)
    code, said = meanwhile(yarn, tmp_path, want, command)
    assert code == 0, said
    lines = lines_of(tmp_path)
    assert sorted((key, count) for key, count, _ in lines) == EXPECTED
    (lost,) = [line for line in said.splitlines() if "lost TaskManager" in line]
    assert re.search(r"executor \d has ended: Container container_\S+ .*was preempted", lost)
