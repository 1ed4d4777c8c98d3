"""Environments whose jobs run in threads of this process, and what streams give there."""

from collections.abc import Callable, Mapping

from penstock.common import Configuration
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver

RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "0 ms",
}
"""Failed jobs begin again at once, three times."""


def minicluster_environment(
    cluster: MiniCluster, settings: Mapping[str, str] | None = None
) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.use_executor(cluster.executor())


def batch_environment(
    observer: JobObserver | None = None, settings: Mapping[str, str] | None = None
):
    env = minicluster_environment(MiniCluster(observer=observer or JobObserver()), settings)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def collected(stream: DataStream) -> list:
    """All that a job gives of the stream, in the order in which it comes."""
    with stream.execute_and_collect("test") as results:
        return list(results)


def collected_in_order(stream: DataStream, key: Callable | None = None) -> list:
    """All that a job gives of the stream, sorted: where it may come in any order."""
    return sorted(collected(stream), key=key)
