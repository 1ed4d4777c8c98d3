"""A job of two vertices with two subtasks each, beside a REST server, that fails when a test says so."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.hosting.rest import SETTINGS
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.waiting import wait_until

_WANTED = threading.Semaphore(0)


def number_or_failure(number):
    if _WANTED.acquire(blocking=False):
        raise ValueError(f"planned failure at {number}")
    return number


def fail_once() -> None:
    """The next record fails, and the job restarts."""
    _WANTED.release()


@contextmanager
def failing_on_demand(name, checkpoints, **settings) -> Generator[object]:
    """The client of the running job, which is cancelled afterwards. `checkpoints`: their folder."""
    given = {**SETTINGS, **RESTARTS, "execution.checkpointing.dir": str(checkpoints), **settings}
    env = minicluster_environment(MiniCluster(4), given).set_parallelism(2)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    slow = numbers.map(number_or_failure, output_type=Types.LONG()).name("slow")
    sums = slow.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).name("sum")
    sums.filter(lambda n: False).print()
    running = env.execute_async(name)
    yield running
    running.cancel().result()
    status = running.get_job_status
    wait_until(lambda: status().result().name == "CANCELED", "the job does not end")
