"""Soak: full load for minutes, then look for what has been left: `make soak`.

A keyed count over two TaskManagers reads rows as fast as it can; its source never ends. Every few seconds resident
memory, open files, threads and temporary files of driver and TaskManagers are noted. Memory must stay below 1.2 times
what it was after the warm-up, the others must not be higher at the end than after it. Then the job is cancelled, and
nothing of it may be left. Exit code 1 and a line for each thing that does not hold.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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

WARM_UP_S = 30
SAMPLE_S = 5
MEMORY_FACTOR = 1.2
START_WAIT_S = 60
BATCH = 4096
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
    found = Path(tempfile.gettempdir()).glob("penstock-*")
    return {path.name for path in found if not path.name.startswith("penstock-spark-")}


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    before = temporary_files()
    env = environment()
    pairs = env.from_source(EndlessPairs(), WatermarkStrategy.no_watermarks(), "Pairs")
    pairs.key_by(key_of).process(RunningSum()).filter(is_negative).print()
    job = env.execute_async("soak")
    names = {pid: f"TaskManager {pid}" for pid in taskmanagers()} | {os.getpid(): "driver"}
    time.sleep(WARM_UP_S)
    first = {pid: sample(pid) for pid in names}
    while_running = len(temporary_files())
    last, most = dict(first), {pid: one.mib for pid, one in first.items()}
    ends = time.monotonic() + minutes * 60
    while time.monotonic() < ends:
        time.sleep(SAMPLE_S)
        last = {pid: sample(pid) for pid in names}
        most = {pid: max(mib, last[pid].mib) for pid, mib in most.items()}
    files_grown = len(temporary_files()) - while_running
    records = sum(io.records_out for _, _, io in job.get_task_metrics().result())
    job.cancel().result()
    wrong = []
    for pid, name in names.items():
        begun, ended = first[pid], last[pid]
        print(f"{name}: {begun.mib:.0f} MiB after {WARM_UP_S} s, most {most[pid]:.0f}, files {begun.files} -> {ended.files}, threads {begun.threads} -> {ended.threads}")  # fmt: skip
        if most[pid] > max(begun.mib * MEMORY_FACTOR, begun.mib + _MIB_SLACK):
            wrong.append(f"{name}: memory grew from {begun.mib:.0f} to {most[pid]:.0f} MiB")
        if ended.files > begun.files or ended.threads > begun.threads:
            wrong.append(f"{name}: files or threads grew")
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
