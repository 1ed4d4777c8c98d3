"""Large state: 400 MB of keyed state in RocksDB that may use 32 MB a slot, over two TaskManagers.

Each of 400,000 keys is met twice: the first record writes a value of 1 kB that cannot be compressed, the second one finds it
unchanged, or fails the job. The second half of the source meets the keys in the opposite order, so that most values are
read when they have left memory long ago. Incremental checkpoints every 5 s. Printed: the most that each TaskManager's
process came to (floor: the same process when its function was opened), the size of the last checkpoint (floor: what of it
was written for it, the rest being shared with the checkpoints before), and records per second.
One run, whatever `--runs` says; `--events`: keys.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.memory import resident_mib
from benchmarks.probes import TASKMANAGERS, environment
from penstock.common import Types, WatermarkStrategy
from penstock.common.job_client import JobClient
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.model.checkpoints import CheckpointSummary

KEYS = 400_000
VALUE_BYTES = 1000
MEMORY = "32 mb"
INTERVAL_S = 5
WHOLE_INTERVAL_S = 30
SAMPLE_S = 0.2
MB = 1e6
ABOUT = (
    __doc__.split("\n\n", maxsplit=1)[1].strip()
    + "\nThe job runs on an embedded Spark on this machine."
)
ABOUT_WHOLE = """A job writes a value of 1 kB for every key, into RocksDB that may use 32 MB a
slot, over two TaskManagers, with an incremental checkpoint every 30 s. A checkpoint behind the
last key is kept, and the job starts again from it. Printed: records per second, what checkpoints
wrote while they were taken, and the state's size through the time from the new start to the first
records of both subtasks, each of which finds its value or fails. One run, whatever `--runs` says;
`--events`: keys. 20 million are 20 GB, and take up to 60 GB of disk."""


def content(key: int) -> bytes:
    return hashlib.shake_128(b"%d" % key).digest(VALUE_BYTES)


def same(key: int) -> int:
    return key


class KeyOf:
    """Keys upwards, then downwards again and again."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def __call__(self, index: int) -> int:
        return index if index < self._keys else self._keys - 1 - index % self._keys


class Remembers(KeyedProcessFunction):
    """A value for each key; leaves its process and what that has in memory in a file."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_state(
            ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY())
        )
        resident = str(resident_mib(os.getpid()))
        (Path(self._directory) / str(os.getpid())).write_text(resident, encoding="ascii")

    def process_element(self, value: int, ctx: Any) -> list[int]:
        kept = self.kept.value()
        if kept is None:
            self.kept.update(content(value))
        elif kept != content(value):
            raise ValueError(f"key {value} came back as {kept[:20]!r}...")
        return [] if kept is None else [value]


def is_negative(key: int) -> bool:
    return key < 0


def measure(keys: int | None, runs: int) -> list[Figure]:
    del runs
    keys = keys or KEYS
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        processes, checkpoints = Path(directory) / "processes", Path(directory) / "checkpoints"
        processes.mkdir()
        env = environment({
            "state.backend.type": "rocksdb",
            "state.backend.rocksdb.memory.fixed-per-slot": MEMORY,
            "execution.checkpointing.dir": str(checkpoints),
            "execution.checkpointing.incremental": "true",
        })
        env.enable_checkpointing(INTERVAL_S * 1000)
        source = DataGeneratorSource(KeyOf(keys), 2 * keys)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Keys")
        numbers.key_by(same).process(Remembers(str(processes))).filter(is_negative).print()
        started = time.monotonic()
        job = env.execute_async("benchmark large state")
        most = _watched(job, processes)
        seconds = time.monotonic() - started
        job.get_job_execution_result().result()
        last = job.get_checkpoints().result().latest_completed
        begun = [float((processes / str(pid)).read_text(encoding="ascii")) for pid in most]
    if last is None:
        raise SystemExit("large_state: no checkpoint was completed")
    settings = _settings(keys)
    return [
        Figure("large_state most resident", list(most.values()), "MiB", begun, settings),
        Figure(
            "large_state last checkpoint",
            [last.size_bytes / MB],
            "MB",
            [last.written_bytes / MB],
            settings,
        ),
        Figure("large_state rate", [2 * keys / seconds], "records/s", (), settings),
    ]


def measure_whole(keys: int | None, runs: int) -> list[Figure]:
    del runs
    keys = keys or KEYS
    settings = _settings(keys)
    grown = _grown_and_restored(keys)
    return [
        Figure("whole_state rate of writing", [grown.per_s], "records/s", (), settings),
        Figure("whole_state size", [grown.megabytes], "MB", (), settings),
        Figure("whole_state checkpoints wrote", [grown.written_mb_per_s], "MB/s", (), settings),
        Figure("whole_state restored in", [grown.restored_s], "s", (), settings),
        Figure("whole_state restored", [grown.megabytes / grown.restored_s], "MB/s", (), settings),
    ]


def _settings(keys: int) -> dict[str, object]:
    return {
        "keys": keys,
        "bytes a value": VALUE_BYTES,
        "memory a slot": MEMORY,
        "TaskManagers": TASKMANAGERS,
    }


@dataclass(frozen=True)
class Grown:
    """`per_s`: records until every key had a value. `megabytes`: of the checkpoint behind them. `written_mb_per_s`: of all checkpoints,
    while they were taken. `restored_s`: from the call to the first records of every subtask.
    """

    per_s: float
    megabytes: float
    written_mb_per_s: float
    restored_s: float


def _grown_and_restored(keys: int) -> Grown:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        processes = Path(directory) / "processes"
        processes.mkdir()
        options = {
            "state.backend.type": "rocksdb",
            "state.backend.rocksdb.memory.fixed-per-slot": MEMORY,
            "execution.checkpointing.dir": f"{directory}/checkpoints",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }
        job = _started(keys, options, processes)
        started = time.monotonic()
        while _kept_by(job) < keys:
            time.sleep(SAMPLE_S)
        per_s = keys / (time.monotonic() - started)
        whole = _next_checkpoint(job)
        history = [one for one in job.get_checkpoints().result().history if one.is_completed]
        job.cancel().result()
        wrote = sum(one.written_bytes for one in history) / MB
        took = sum(one.duration_ms for one in history) / 1000
        started = time.monotonic()
        job = _started(keys, options | {"execution.state-recovery.path": whole.location}, processes)
        while min(_kept_by_subtask(job), default=0) == 0:
            time.sleep(0.01)
        restored_s = time.monotonic() - started
        job.cancel().result()
    return Grown(per_s, whole.size_bytes / MB, wrote / took, restored_s)


def _started(keys: int, options: Mapping[str, object], processes: Path) -> JobClient:
    env = environment(options)
    env.enable_checkpointing(WHOLE_INTERVAL_S * 1000)
    source = DataGeneratorSource(KeyOf(keys), 1 << 50)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Keys")
    kept = numbers.key_by(same).process(Remembers(str(processes))).name("Remembers")
    kept.filter(is_negative).print()
    return env.execute_async("benchmark large state, whole")


def _kept_by_subtask(job: JobClient) -> list[int]:
    tasks = job.get_task_metrics().result()
    return [io.records_in for name, _, io in tasks if "Remembers" in name]


def _kept_by(job: JobClient) -> int:
    return sum(_kept_by_subtask(job))


def _next_checkpoint(job: JobClient) -> CheckpointSummary:
    """The first one that began after this call."""
    begun_ms = time.time() * 1000
    while True:
        last = job.get_checkpoints().result().latest_completed
        if last is not None and last.triggered_at_ms > begun_ms:
            return last
        time.sleep(SAMPLE_S)


def _watched(job: JobClient, processes: Path) -> dict[int, float]:
    """The most that each TaskManager had in memory until the job had ended."""
    most: dict[int, float] = {}
    ended = job.get_job_execution_result()
    while not ended.done():
        time.sleep(SAMPLE_S)
        for path in processes.iterdir():
            try:
                most[int(path.name)] = max(
                    most.get(int(path.name), 0), resident_mib(int(path.name))
                )
            except OSError:
                continue  # it has ended
    return most
