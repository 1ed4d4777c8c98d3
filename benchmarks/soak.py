"""Soak: full load for minutes, then look for what grows and what has been left: `make soak`.

A keyed count over two TaskManagers reads rows as fast as it can, with a checkpoint every 5 s, while a client asks the
REST server for every page; its source never ends. Every 20 seconds resident memory, open files, threads and temporary
files of driver and TaskManagers are noted. Memory must stay below 1.2 times what it was after the warm-up, the others
must not be higher at the end than after it. From 80 minutes on, memory may grow by 1 MiB an hour after the first 20
minutes. Then the job is cancelled, and nothing of it may be left. Exit code 1 and a line for each thing that does not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.measures.operators import KEYS
from benchmarks.memory import resident_mib
from benchmarks.probes import TASKMANAGERS, environment
from benchmarks.workloads.running_sum import RunningSum, key_of
from penstock.common import WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
)
from penstock.engine.hosting.taskmanager.child import PROCESS_NAME
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.ops.rest.server import current_server

WARM_UP_S = 30
SAMPLE_S = 20  # They are kept in the driver, whose memory is judged.
MEMORY_FACTOR = 1.2
START_WAIT_S = 60
END_WAIT_S = 10
BATCH = 4096
CHECKPOINT_MS = 5000
SETTLED_S = 20 * 60
LEAST_FOR_SLOPE_S = 55 * 60
MOST_MIB_PER_HOUR = 1.0
_TASKMANAGER = PROCESS_NAME.encode()
_MIB_SLACK = 16  # of a process that is small


class EndlessPairs(Source):
    """Pairs (key, value), the same again and again, in each subtask for itself."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, list(range(context.parallelism())))

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _Reader(context)


class _Reader(PolledSplitReader):
    def read(self, split: int) -> Iterator[Batch]:
        pairs = [(number * 7919 % KEYS, number & 15) for number in range(split, split + BATCH)]
        while True:
            yield RowBatch(pairs)


def is_negative(pair: tuple[int, int]) -> bool:
    return pair[1] < 0


@dataclass(frozen=True)
class Sample:
    """Of one process, and of the directory for temporary files."""

    mib: float
    files: int
    threads: int


def sample(pid: int) -> Sample:
    root = Path(f"/proc/{pid}")
    files = len(list((root / "fd").iterdir()))
    return Sample(resident_mib(pid), files, len(list((root / "task").iterdir())))


def temporary_files() -> set[str]:
    """Those of jobs; the directories of Spark and of the driver end with this process."""
    found = {path.name for path in Path(tempfile.gettempdir()).glob("penstock-*")}
    return {name for name in found if not name.startswith(("penstock-spark-", "penstock-driver-"))}


def taskmanagers() -> list[int]:
    """Process ids; asks once a tenth of a second until all are there."""
    ends = time.monotonic() + START_WAIT_S
    while time.monotonic() < ends:
        found = _running()
        if len(found) == TASKMANAGERS:
            return found
        time.sleep(0.1)
    raise SystemExit(f"soak: {TASKMANAGERS} TaskManagers did not start")


def _running() -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if _TASKMANAGER in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
            except OSError:
                continue  # it has ended
    return found


def mib_per_hour(samples: list[Sample]) -> float | None:
    """The growth since the job has settled: medians of the last and the first fifth. None: the soak is too short."""
    settled = samples[SETTLED_S // SAMPLE_S :]
    if len(settled) * SAMPLE_S < LEAST_FOR_SLOPE_S:
        return None
    fifth = len(settled) // 5
    first, last = (median(one.mib for one in part) for part in (settled[:fifth], settled[-fifth:]))
    return (last - first) / ((len(settled) - fifth) * SAMPLE_S / 3600)


def client_of(job_id: str) -> subprocess.Popen[bytes]:
    """A process that asks the REST server for every page, until it is terminated."""
    server = current_server()
    assert server is not None
    with urllib.request.urlopen(f"{server.address}/jobs/{job_id}") as answer:
        vertex = json.load(answer)["vertices"][0]["id"]
    program = [sys.executable, "-m", "benchmarks.workloads.observation_client"]
    return subprocess.Popen([*program, server.address, job_id, vertex], stdin=subprocess.PIPE)


def watched(names: dict[int, str], seconds: float) -> dict[int, list[Sample]]:
    """Samples of each process."""
    samples: dict[int, list[Sample]] = {pid: [sample(pid)] for pid in names}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(SAMPLE_S)
        for pid, of_process in samples.items():
            of_process.append(sample(pid))
    return samples


def grown(name: str, samples: list[Sample]) -> Iterator[str]:
    """What of a process has grown. Prints a line."""
    first, last, most = samples[0], samples[-1], max(one.mib for one in samples)
    slope = mib_per_hour(samples)
    growth = "too short to judge growth" if slope is None else f"{slope:+.1f} MiB an hour"
    print(f"{name}: {first.mib:.0f} MiB after {WARM_UP_S} s, most {most:.0f}, {growth}")
    print(f"  files {first.files} -> {last.files}, threads {first.threads} -> {last.threads}")
    if most > max(first.mib * MEMORY_FACTOR, first.mib + _MIB_SLACK):
        yield f"{name}: memory grew from {first.mib:.0f} to {most:.0f} MiB"
    if slope is not None and slope > MOST_MIB_PER_HOUR:
        yield f"{name}: memory grows by {slope:.1f} MiB an hour"
    fifth = len(samples) // 5 + 1  # One sample may see a file or thread of a checkpoint.
    for what in ("files", "threads"):
        counts = [getattr(one, what) for one in samples]
        if min(counts[-fifth:]) > max(counts[:fifth]):
            yield f"{name}: {what} grew"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    before = temporary_files()
    with tempfile.TemporaryDirectory(prefix="soak-") as checkpoints:
        options = {
            "execution.checkpointing.dir": f"file://{checkpoints}",
            "penstock.cluster.job-isolation": "true",  # Processes that end with the job.
        }
        env = environment(options)
        env.enable_checkpointing(CHECKPOINT_MS)
        pairs = env.from_source(EndlessPairs(), WatermarkStrategy.no_watermarks(), "Pairs")
        pairs.key_by(key_of).process(RunningSum()).filter(is_negative).print()
        job = env.execute_async("soak")
        names = {pid: f"TaskManager {pid}" for pid in taskmanagers()} | {os.getpid(): "driver"}
        client = client_of(str(job.get_job_id()))
        time.sleep(WARM_UP_S)
        while_running = len(temporary_files())
        samples = watched(names, minutes * 60)
        files_grown = len(temporary_files()) - while_running
        records = sum(io.records_out for _, _, io in job.get_task_metrics().result())
        client.kill()
        client.wait()
        job.cancel().result()
    wrong = [one for pid, name in names.items() for one in grown(name, samples[pid])]
    ends = time.monotonic() + END_WAIT_S
    while set(_running()) & set(names) and time.monotonic() < ends:
        time.sleep(0.1)
    left = temporary_files() - before
    if files_grown > 0 or left:
        wrong.append(f"temporary files: {files_grown} more while it ran, left: {sorted(left)}")
    if still := set(_running()) & set(names):
        wrong.append(f"processes still run: {sorted(still)}")
    print(f"soak: {minutes:g} minutes, {records:,} records, {len(wrong)} things wrong")
    for one in wrong:
        print(f"  {one}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
