"""From a process to the executor of Spark that it descends from."""

import pytest

from penstock.engine.hosting.taskmanager.config import with_executor
from penstock.engine.model.deployment import SparkTask

TASK = SparkTask(7, 0, 12)
WORKER = 30, 20, "python -m pyspark.daemon"
DAEMON = 20, 10, "python -m pyspark.daemon"


@pytest.fixture
def proc(tmp_path):
    def with_processes(*processes):
        for pid, parent, line in processes:
            folder = tmp_path / str(pid)
            folder.mkdir()
            folder.joinpath("cmdline").write_bytes(line.replace(" ", "\0").encode() + b"\0")
            folder.joinpath("stat").write_text(f"{pid} (a) b (c) S {parent} 1 1")
        return tmp_path

    return with_processes


@pytest.mark.parametrize(
    ("line", "executor"),
    [
        (
            "java org.apache.spark.executor.CoarseGrainedExecutorBackend --executor-id 3 --cores 2",
            "3",
        ),
        ("java -Xmx1g org.apache.spark.deploy.SparkSubmit pyspark-shell", "driver"),
        ("java SomethingElse", None),
    ],
)
def test_an_executor_is_named_by_its_command_line(proc, line, executor):
    found = with_executor(TASK, 30, proc(WORKER, DAEMON, (10, 0, line)))
    assert found == SparkTask(7, 0, 12, executor)


def test_who_cannot_be_looked_at_is_not_known(proc):
    assert with_executor(TASK, 30, proc(WORKER)) == TASK


def test_without_spark_there_is_nothing_to_look_for(tmp_path):
    assert with_executor(None, 30, tmp_path) is None
