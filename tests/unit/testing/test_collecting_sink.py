"""CollectingSink: all that came, once the job has ended."""

import pytest

from penstock.common import Row, Types
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.model.errors import JobExecutionError
from penstock.testing import CollectingSink, MiniCluster
from tests.tools.programs.environments import minicluster_environment


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster()).set_parallelism(2)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_everything_is_there_when_the_job_has_ended(env, mode):
    env.set_runtime_mode(mode)
    sink = CollectingSink()
    env.from_collection(list(range(10_000))).map(lambda n: n + 1).sink_to(sink)
    assert sink.values == []
    env.execute()
    assert sorted(sink.values) == list(range(1, 10_001))


def test_one_sink_may_stand_for_several_streams_and_jobs(env):
    sink = CollectingSink()
    numbers = env.from_collection([1, 2])
    numbers.sink_to(sink)
    numbers.map(str).add_sink(sink)
    env.execute()
    assert sorted(sink.values, key=repr) == ["1", "2", 1, 2]
    sink.clear()
    env.from_collection([3]).sink_to(sink)
    env.execute()
    assert sink.values == [3]


def test_values_have_the_streams_type(env):
    sink = CollectingSink()
    kind = Types.ROW_NAMED(["a"], [Types.INT()])
    env.from_collection([(1,)], kind).sink_to(sink)
    env.execute()
    assert sink.values == [Row(a=1)]
    assert sink.values[0].a == 1


def test_a_failure_is_told_by_execute_and_what_came_stays(env):
    sink = CollectingSink()
    env.from_collection([1, 0]).map(lambda n: 1 // n).sink_to(sink)
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        env.execute()
    assert set(sink.values) <= {1}
