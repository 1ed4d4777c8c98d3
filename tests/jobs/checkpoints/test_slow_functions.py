"""A savepoint of a job whose function is slow: how many records it processes between the barrier and the savepoint. The function waits for
the test, record by record, so no clock matters.
"""

import pytest

from penstock.common import WatermarkStrategy
from penstock.testing import MiniCluster
from tests.tools.programs.checkpoint_programs import WAIT_S, wait_until_running
from tests.tools.programs.environments import minicluster_environment
from tests.tools.programs.slow_functions import RECORDS, STEPS, AllAtOnce, Slow, Steps
from tests.tools.waiting import wait_until

FEW = 8
"""Each of two subtasks has one record in hand, one that waits, and one that comes while the other is taken."""


@pytest.fixture
def steps(request):
    made = STEPS[request.node.name] = Steps()
    yield made
    made.permits.release(10 * RECORDS)


@pytest.mark.parametrize("taskmanagers", [1, 2])
@pytest.mark.parametrize("shape", ["rebalanced", "keyed"])
def test_few_records_stand_between_a_barrier_and_its_savepoint(
    steps, request, tmp_path, shape, taskmanagers
):
    name = request.node.name
    env = minicluster_environment(MiniCluster(3 - taskmanagers, parallelism=1))
    source = AllAtOnce(name, splits=1, count=RECORDS, hold=0)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "all at once")
    parted = stream.rebalance() if shape == "rebalanced" else stream.key_by(lambda value: value)
    stream = parted.map(Slow(name)).set_parallelism(2)
    stream.filter(lambda value: value < 0).print()
    client = env.execute_async(name)
    wait_until_running(client)
    wait_until(lambda: steps.entered, "no record was processed")
    at = str(tmp_path / "savepoints")
    waiting = client.stop_with_savepoint(False, at)
    assert steps.source_has_sent_its_barrier.wait(WAIT_S)
    steps.permits.release(FEW)
    wait_until(waiting.done, f"the savepoint waits for more than {FEW} records")
    assert waiting.result()
