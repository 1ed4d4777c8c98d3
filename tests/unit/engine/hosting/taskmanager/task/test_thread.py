"""How a task's thread ends: it reports, whatever goes wrong on the way out."""

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.taskmanager.task.builder import BuiltTask
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.user_functions import same


def refuse(value):
    raise ValueError(f"not {value}")


def collected(function):
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.use_executor(MiniCluster(parallelism=1).executor())
    with env.from_collection([1, 2]).map(function).execute_and_collect() as found:
        return list(found)


def test_a_task_whose_partitions_cannot_be_closed_has_finished_all_the_same(monkeypatch, caplog):
    close = BuiltTask.close

    def close_badly(built):
        close(built)
        raise RuntimeError("a bug in close")

    monkeypatch.setattr(BuiltTask, "close", close_badly)
    assert collected(same) == [1, 2]
    assert "a bug in close" in caplog.text


def test_a_task_whose_partitions_cannot_be_released_fails_with_its_own_error(monkeypatch, caplog):
    release = BuiltTask.release

    def release_badly(built, failure):
        release(built, failure)
        raise RuntimeError("a bug in release")

    monkeypatch.setattr(BuiltTask, "release", release_badly)
    with pytest.raises(JobExecutionError, match="not 1"):
        collected(refuse)
    assert "a bug in release" in caplog.text
