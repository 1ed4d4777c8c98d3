"""Processes die while a job takes checkpoints: what is committed is what it would have been without that, record for record."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.file_system import FileSink
from penstock.datastream.connectors import DataGeneratorSource
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from tests.chaos.test_driver_failover import SETTINGS, Driver, store_of
from tests.chaos.test_killed_taskmanager import RUNS, Trap, Watcher
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment
from tests.tools.output_files import committed_lines, files_below

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
VALUES = 4000
KEYS = 7


class TrapAfterCheckpoint:
    """Springs once a checkpoint is complete and some records lie behind it."""

    def __init__(self, folder: Path) -> None:
        self.checkpoints = str(folder)

    def __call__(self, value) -> bool:
        try:
            return value > VALUES // 4 and any(Path(self.checkpoints).rglob("_metadata"))
        except OSError:
            return False  # a folder that was discarded meanwhile


def counts(folder: Path, trap: Trap, directory: Path):
    """(key, running count) of numbers, as lines in files."""
    settings = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(directory),
    }
    watcher = Watcher()
    env = environment(2, **settings).use_executor(ClusterExecutor(SparkHost(), watcher))
    source = DataGeneratorSource(lambda index: index, count=VALUES, rate_per_second=2000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    pairs = numbers.map(trap).map(lambda value: (value % KEYS, 1))
    counted = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    lines = counted.map(lambda pair: f"{pair[0]} {pair[1]}")
    lines.sink_to(FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build())
    return env, watcher


def check_files(folder: Path) -> None:
    found = Counter(committed_lines(folder))
    of_key = Counter(value % KEYS for value in range(VALUES))
    expected = {f"{key} {count + 1}" for key in of_key for count in range(of_key[key])}
    assert not {line: n for line, n in found.items() if n > 1}, "doubled"
    assert set(found) == expected


@pytest.mark.parametrize("run", RUNS)
def test_a_killed_taskmanager_costs_no_record_and_doubles_none(spark, tmp_path, run):
    trap = Trap(tmp_path, TrapAfterCheckpoint(tmp_path / "checkpoints"))
    env, watcher = counts(tmp_path / "out", trap, tmp_path / "checkpoints")
    client = env.execute_async("killed")
    os.kill(trap.wait(), signal.SIGKILL)
    client.get_job_execution_result().result()
    assert watcher.restarts == 1
    check_files(tmp_path / "out")
    assert client.get_checkpoints().result().restored == 1
    assert not files_below(tmp_path / "checkpoints")
    assert not taskmanagers_left()


# ---------------------------------------------------------------------- drivers

# The first task that comes so far behind a complete checkpoint tells so; nobody waits for it.
PROGRAM = f"""
import os, sys
from pathlib import Path
from penstock.common import Configuration, Encoder, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource
from penstock.connectors.file_system import FileSink

folder = Path(sys.argv[1])

def tell(value):
    if value > {VALUES // 4} and not (folder / "sprung").exists():
        try:
            is_complete = any((folder / "checkpoints").rglob("_metadata"))
        except OSError:
            is_complete = False
        if is_complete:
            try:
                os.close(os.open(folder / "sprung", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return value
            (folder / "reached").write_text("reached")
    return value

configuration = Configuration()
for key, value in {SETTINGS!r}.items():
    configuration.set_string(key, value)
configuration.set_string("high-availability.storageDir", str(folder / "ha"))
configuration.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
env.enable_checkpointing(100)
source = DataGeneratorSource(lambda index: index, count={VALUES}, rate_per_second=1000)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
pairs = numbers.map(tell).map(lambda value: (value % {KEYS}, 1))
counted = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
counted.map(lambda pair: f"{{pair[0]}} {{pair[1]}}").sink_to(sink)
env.execute("numbers")
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    os.mkfifo(tmp_path / "reached")
    started = []

    def start(name: str) -> Driver:
        started.append(Driver(tmp_path / name, str(tmp_path / "program.py"), str(tmp_path)))
        return started[-1]

    try:
        yield start
    finally:
        for driver in started:
            driver.end()


@pytest.mark.long  # the audit kills drivers, too
@pytest.mark.parametrize("run", RUNS)
def test_a_killed_drivers_job_goes_on_from_its_newest_checkpoint(program, tmp_path, run):
    first = program("first")
    (tmp_path / "reached").read_text()
    first.send(signal.SIGKILL)
    first.wait()
    second = program("second")
    assert second.wait() == 0, second.said
    assert "it continues from checkpoint" in second.said
    check_files(tmp_path / "out")
    assert not files_below(tmp_path / "checkpoints")
    assert store_of(tmp_path).job_keys() == []


@pytest.mark.long  # the audit stops drivers, too
@pytest.mark.parametrize("run", RUNS)
def test_a_driver_that_was_stopped_does_no_harm_to_the_one_that_goes_on(program, tmp_path, run):
    first = program("first")
    (tmp_path / "reached").read_text()
    first.send(signal.SIGSTOP)
    second = program("second")
    assert second.hears("it continues from checkpoint"), second.said
    first.send(signal.SIGCONT)
    assert first.wait() == 1
    assert "JobSuspendedError" in first.said
    assert second.wait() == 0, second.said
    check_files(tmp_path / "out")
