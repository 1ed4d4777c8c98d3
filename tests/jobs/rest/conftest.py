"""A driver with a REST server in this process, and a job of it that has no end."""

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.hosting.rest import SETTINGS, rest_server
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

FAST = {
    "rest.flamegraph.num-samples": "5",
    "rest.flamegraph.delay-between-samples": "1 ms",
    "metrics.fetcher.update-interval": "50 ms",
}


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with rest_server() as client:
        yield client


@pytest.fixture
def job(client, tmp_path):
    env = minicluster_environment(
        MiniCluster(4), {**SETTINGS, **FAST, "execution.checkpointing.dir": str(tmp_path)}
    )
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.map(lambda n: n, output_type=Types.LONG()).filter(lambda n: False).print()
    running = env.execute_async("endless")

    def runs():
        return client.get("/jobs/overview")["jobs"][0]["tasks"]["running"] == 2

    try:
        wait_until(runs, "the job does not run")
        yield str(running.get_job_id())
    finally:
        running.cancel().result()
