"""BatchJob: what it tells of itself."""

import time

from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.testing import MiniCluster


def test_a_wall_clock_that_is_set_back_makes_no_negative_runtime(monkeypatch):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.use_executor(MiniCluster(parallelism=1).executor())
    times = iter(range(10**18, 0, -(10**12)))
    # ruff: ignore[shared-clock-mock] - it is the whole machine's clock that is set back
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    rows = env.from_collection([1, 2, 3]).map(lambda value: value)
    rows.print()
    assert env.execute("clock").get_net_runtime() >= 0


def test_it_logs_every_transition_of_the_job_and_of_its_attempts(caplog):
    caplog.set_level("DEBUG", "penstock.engine.hosting.spark.batch.job")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)
    env.use_executor(MiniCluster(parallelism=1).executor())
    env.from_collection([1, 2, 3]).map(lambda value: value).print()
    job_id = env.execute("logged").get_job_id()
    said = [record.getMessage() for record in caplog.records]
    statuses = [one.split()[1] for one in said if "attempt=" not in one]
    assert statuses == ["CREATED->RUNNING", "RUNNING->FINISHED"]
    moves = [one.split()[2] for one in said if "attempt=" in one]
    assert moves[0].startswith("CREATED->") and moves[-1].endswith("->FINISHED")
    assert all(one.startswith(f"job={job_id} ") for one in said)
