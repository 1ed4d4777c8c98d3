"""A driver that is interrupted or killed leaves no process behind: no JVM, no worker, no TaskManager."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.engine.hosting.taskmanager.child import PROCESS_NAME
from tests.spark.processes import command_of

pytestmark = pytest.mark.spark
LIMIT_S = 10
DRIVER = """
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource

configuration = Configuration()
configuration.set_string("penstock.jobmanager.silence-timeout", "2 s")
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
endless = DataGeneratorSource(lambda i: i, None, rate_per_second=100)
numbers = env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless")
numbers.rebalance().map(lambda i: i).print()
env.execute("endless")
"""


@pytest.fixture
def driver(tmp_path):
    """A driver process whose endless job on embedded Spark has printed its first record."""
    script = tmp_path / "endless.py"
    script.write_text(DRIVER)
    root = str(Path(penstock.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,
    )
    family: list[psutil.Process] = []
    try:
        assert b"> " in process.stdout.readline()
        family += [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        yield process, family
    finally:
        for member in psutil.process_iter(["pid"]):
            if member in family:
                member.kill()
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("send", "number"),
    [
        pytest.param(os.kill, signal.SIGINT, id="interrupted alone", marks=pytest.mark.long),
        pytest.param(
            os.killpg, signal.SIGINT, id="Ctrl-C to the whole group", marks=pytest.mark.long
        ),
        pytest.param(os.kill, signal.SIGKILL, id="killed"),
    ],
)
def test_a_driver_that_goes_takes_everything_along_within_ten_seconds(driver, send, number):
    process, family = driver
    commands = [command_of(member) for member in family]
    assert sum(PROCESS_NAME in command for command in commands) == 2
    assert any("java" in command for command in commands)
    assert any("pyspark.daemon" in command for command in commands)
    send(process.pid, number)
    _, alive = psutil.wait_procs(family, timeout=LIMIT_S)
    assert [command for member in alive if (command := command_of(member))] == []


@pytest.mark.long  # the audit stops drivers, too
def test_task_managers_of_a_driver_that_is_frozen_end_by_themselves(driver):
    process, family = driver
    hosted = [member for member in family if PROCESS_NAME in command_of(member)]
    os.kill(process.pid, signal.SIGSTOP)
    _, alive = psutil.wait_procs(hosted, timeout=LIMIT_S)
    assert alive == []
