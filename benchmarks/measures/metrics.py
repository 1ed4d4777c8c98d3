"""What metrics cost: the heartbeat of a TaskManager with 64 tasks of 32 channels each, made and encoded.

Printed: milliseconds for one, and the share of a core that two a second take (`heartbeat.interval` is 500 ms on Spark),
in percent, which is to stay below 1 for a TaskManager of one or a few tasks. Tasks count all the time as they go,
per batch. In one process, without Spark.
"""

import time
from statistics import median

from benchmarks.figures import Figure
from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.network.wire.messages import encode
from penstock.engine.hosting.observer import JobObserver

PARALLELISM = 32
RATE = 3200
SECONDS = 600
HEARTBEATS = 200
BEATS_PER_S = 2
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()


def same(value: int) -> int:
    return value


def is_negative(value: int) -> bool:
    return value < 0


def measure(_events: int | None, runs: int) -> list[Figure]:
    cluster = MiniCluster(PARALLELISM, parallelism=PARALLELISM, observer=JobObserver())
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(PARALLELISM)
    env.use_executor(cluster.executor())
    source = DataGeneratorSource(same, RATE * SECONDS, RATE)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.key_by(same).map(same).filter(is_negative).print()
    job = env.execute_async("benchmark metrics")
    while not all(io.records_out for _, _, io in job.get_task_metrics().result()[:PARALLELISM]):
        time.sleep(0.1)
    taken = [_milliseconds(cluster) for _ in range(runs)]
    job.cancel().result()
    settings = {"tasks": 2 * PARALLELISM, "channels each": PARALLELISM}
    shares = [ms * BEATS_PER_S / 1000 * 100 for ms in taken]
    return [
        Figure("metrics in a heartbeat", taken, "ms", (), settings),
        Figure("metrics, share of a core", shares, "%", (), settings),
    ]


def _milliseconds(cluster: MiniCluster) -> float:
    """Median of many heartbeats of the one TaskManager."""
    assert cluster.last_provider is not None
    (manager,) = cluster.last_provider.managers.values()
    taken = []
    for _ in range(HEARTBEATS):
        started = time.perf_counter()
        encode(manager.heartbeat())
        taken.append((time.perf_counter() - started) * 1000)
    return median(taken)
