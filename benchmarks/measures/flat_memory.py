"""Flat memory: a source ten times as fast as what reads it, for a minute, over two TaskManagers.

Printed: resident memory of each TaskManager's process when its consumer has read for five seconds (its buffers
are full by then), the most that it came to afterwards, and the ratio, which is to stay below 1.2. Without a bound
the backlog alone would be 1.6 GB at the end. One run, whatever `--runs` says; `--events`: milliseconds,
default 60,000.
"""

import os
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.memory import resident_mib
from benchmarks.probes import TASKMANAGERS, environment
from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import MapFunction

SECONDS = 60
WARM_UP_S = 5
SOURCE_RATE = 30_000
FASTER = 10
RECORD_BYTES = 1000
SAMPLE_S = 0.5
START_WAIT_S = 60
CONSUMER_DELAY_S = FASTER * TASKMANAGERS / SOURCE_RATE
ABOUT = (
    __doc__.split("\n\n", maxsplit=1)[1].strip()
    + "\nThe job runs on an embedded Spark on this machine."
)


def make_record(index: int) -> str:
    return f"{index:0{RECORD_BYTES}}"


class SlowReader(MapFunction):
    """Takes a fixed time for each record; leaves its process id in a file."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, runtime_context):
        (Path(self._directory) / str(os.getpid())).touch()

    def map(self, value):
        time.sleep(CONSUMER_DELAY_S)
        return len(value)


def is_negative(value: int) -> bool:
    return value < 0


def measure(milliseconds: int | None, runs: int) -> list[Figure]:
    del runs
    seconds = (milliseconds or SECONDS * 1000) // 1000
    count = SOURCE_RATE * (seconds + START_WAIT_S)
    source = DataGeneratorSource(make_record, count, SOURCE_RATE)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        env = environment()
        records = env.from_source(source, WatermarkStrategy.no_watermarks(), "Fast source")
        slow = records.rebalance().map(SlowReader(directory)).filter(is_negative)
        slow.print()
        job = env.execute_async("benchmark flat memory")
        processes = _processes(directory)
        time.sleep(WARM_UP_S)
        started = {pid: resident_mib(pid) for pid in processes}
        most = dict(started)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(SAMPLE_S)
            most = {pid: max(value, resident_mib(pid)) for pid, value in most.items()}
        job.cancel().result()
    settings = {
        "seconds": seconds,
        "source records/s": SOURCE_RATE,
        "consumers records/s": SOURCE_RATE // FASTER,
        "bytes a record": RECORD_BYTES,
        "TaskManagers": TASKMANAGERS,
        "floor": "the same process after the first seconds",
    }
    begun = list(started.values())
    return [Figure("flat_memory most resident", list(most.values()), "MiB", begun, settings)]


def _processes(directory: str) -> list[int]:
    """Of all TaskManagers, once each consumer has been opened."""
    ends = time.monotonic() + START_WAIT_S
    while time.monotonic() < ends:
        found = [int(path.name) for path in Path(directory).iterdir()]
        if len(found) == TASKMANAGERS:
            return found
        time.sleep(0.1)
    raise SystemExit("flat_memory: the consumers did not start")
