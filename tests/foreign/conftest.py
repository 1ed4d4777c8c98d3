import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from benchmarks.peers.environments import python_of

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
PROGRAM = """
import sys
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.connectors.datagen import NumberSequenceSource

configuration = Configuration()
for setting in sys.argv[1:]:
    configuration.set_string(*setting.split("=", 1))
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
strategy = WatermarkStrategy.no_watermarks()
numbers = env.from_source(NumberSequenceSource(0, 10**10), strategy, "Numbers")
same = numbers.map(lambda n: n, output_type=Types.LONG())
sums = same.key_by(lambda n: n % 7).reduce(lambda a, b: a + b)
sums.filter(lambda n: False).print()
env.execute("endless")
"""


@pytest.fixture(scope="session")
def flink():
    """The folder of Flink's command line, web files and libraries."""
    python = python_of("flink", ROOT / "build" / "peers")
    find = "import os, pyflink; print(os.path.dirname(pyflink.__file__))"
    home = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True)
    return Path(home.stdout.strip())


class RunningProgram:
    """A driver with an endless job on an embedded Spark."""

    def __init__(self, process, address) -> None:
        self.process = process
        self.address = address
        self.place = address.removeprefix("http://")
        self.job = self.get("/jobs")["jobs"][0]["id"]

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            return json.loads(answer.read())

    def state(self):
        return self.get(f"/jobs/{self.job}/status")["status"]


@pytest.fixture
def program(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(PROGRAM)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    settings = [
        "execution.checkpointing.interval=1 s",
        f"execution.checkpointing.dir={tmp_path / 'checkpoints'}",
        "rest.bind-port=0",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(runtime)}
    log = (tmp_path / "program.log").open("w")
    process = subprocess.Popen(
        [sys.executable, str(script), *settings], env=environment, stderr=log, stdout=log
    )
    try:
        yield RunningProgram(process, _address(process, runtime / "penstock" / "drivers"))
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        log.close()


def _address(process, folder):
    """The address, as soon as all tasks of the job run."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the program has ended"
        for entry in folder.glob("*.json"):
            address = json.loads(entry.read_text())["address"]
            with urllib.request.urlopen(f"{address}/jobs/overview", timeout=60) as answer:
                jobs = json.loads(answer.read())["jobs"]
            if jobs and jobs[0]["tasks"]["running"] == jobs[0]["tasks"]["total"]:
                return address
        os.sched_yield()
    raise AssertionError("the job does not run")
