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
