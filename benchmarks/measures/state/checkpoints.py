"""Checkpoints: what they cost a running job, how long one takes, how fast state comes back.

The first two on the embedded Spark with two TaskManagers: a keyed process function that keeps a sum for each of a million
keys (115 MB of objects), at full speed, with a checkpoint every second and without (the floor), by the clock and by the CPU time of
all workers; and checkpoints every 100 ms of a job that has almost
nothing to do, and unaligned ones every second of a job whose sources wait for room most of the time. The last in one process, for one slot: snapshots of two million keys (int -> (int, text)) in a local
directory, read, checked and put into a new backend, on the heap and with RocksDB (incremental, the same key groups).
"""

import pickle
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, environment
from benchmarks.processor_time import worker_seconds
from benchmarks.workloads.running_sum import RunningSum, key_of
from penstock.common import Types, WatermarkStrategy
from penstock.common.job_client import JobClient
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.taskmanager.task.held_off_gc import COLLECTOR_HELD_OFF
from penstock.engine.model.checkpoints import OperatorRestore
from penstock.engine.model.ids import JobId
from penstock.engine.runtime.operators.keyed import restore_backend
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.contract import KeyedStateBackend, ValueState
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.rocks.backend import RocksKeyedStateBackend, RocksSettings
from penstock.engine.runtime.state.rocks.database import slot_memory
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, Sharing
from penstock.engine.runtime.state.snapshot_reader import OtherParts, read_operator
from penstock.engine.runtime.state.snapshot_writer import write_operator

KEYS = 1_000_000
INTERVAL_S = 1
WINDOW_S = 30
IDLE_RATE = 10
IDLE_CHECKPOINTS = 30
FULL_CHECKPOINTS = 10
SLOW_S = 0.001
RESTORED_KEYS = 2_000_000
GROUPS = 128
ALL_GROUPS = (0, GROUPS - 1)
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()


def pair_of(number: int) -> tuple[int, int]:
    return number * 7919 % KEYS, 1


def is_negative(pair: tuple[int, int]) -> bool:
    return pair[1] < 0


# ---------------------------------------------------------------------- a running job


@dataclass(frozen=True)
class FullSpeed:
    """`per_s`: records a second. `per_cpu_s`: a second of CPU time of all workers. `stop_ms`: of the slowest task for a checkpoint."""

    per_s: float
    per_cpu_s: float
    stop_ms: float


def _at_full_speed(interval_s: int | None) -> FullSpeed:
    """Once every key has a state."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        env = environment({"execution.checkpointing.dir": directory})
        if interval_s is not None:
            env.enable_checkpointing(interval_s * 1000)
        source = DataGeneratorSource(pair_of, 1 << 50)
        pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "Pairs")
        pairs.key_by(key_of).process(RunningSum()).filter(is_negative).print()
        job = env.execute_async("benchmark checkpoints")
        while _records_in(job) < 3 * KEYS:
            time.sleep(0.1)
        first, started, used = _records_in(job), time.monotonic(), worker_seconds()
        time.sleep(WINDOW_S)
        count, passed = _records_in(job) - first, time.monotonic() - started
        used = worker_seconds() - used
        checkpoints = job.get_checkpoints().result()
        done = checkpoints.completed
        taken = [one.sync_ms for one in checkpoints.history if one.is_completed]
        job.cancel().result()
    if interval_s is not None and done < WINDOW_S // (2 * interval_s):
        raise SystemExit(f"checkpoints: only {done} were completed in {WINDOW_S} s")
    return FullSpeed(count / passed, count / used, median(taken) if taken else 0.0)


def _records_in(job: JobClient) -> int:
    """Of the keyed function's subtasks."""
    return sum(
        io.records_in for name, _, io in job.get_task_metrics().result() if "PROCESS" in name
    )


def _idle_durations() -> list[float]:
    """Milliseconds of each checkpoint."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        history = {"web.checkpoints.history": IDLE_CHECKPOINTS}
        env = environment({"execution.checkpointing.dir": directory} | history)
        env.enable_checkpointing(100)
        source = DataGeneratorSource(pair_of, 1 << 50, IDLE_RATE)
        pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "Pairs")
        pairs.key_by(key_of).process(RunningSum()).filter(is_negative).print()
        job = env.execute_async("benchmark idle checkpoints")
        while (done := job.get_checkpoints().result()).completed < IDLE_CHECKPOINTS:
            time.sleep(0.1)
        job.cancel().result()
    return [float(one.duration_ms) for one in done.history if one.is_completed]


def slow(pair: tuple[int, int]) -> tuple[int, int]:
    time.sleep(SLOW_S)
    return pair


def _back_pressured_durations() -> list[float]:
    """Milliseconds of each unaligned checkpoint of a job whose every buffer is full."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        unaligned = {"execution.checkpointing.unaligned.enabled": True}
        env = environment({"execution.checkpointing.dir": directory} | unaligned)
        env.enable_checkpointing(1000)
        source = DataGeneratorSource(pair_of, 1 << 50)
        pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "Pairs")
        pairs.key_by(key_of).map(slow).filter(is_negative).print()
        job = env.execute_async("benchmark back pressure")
        while not _is_back_pressured(job):
            time.sleep(0.1)
        before = job.get_checkpoints().result().completed
        while (done := job.get_checkpoints().result()).completed < before + FULL_CHECKPOINTS:
            time.sleep(0.1)
        job.cancel().result()
    ended = [float(one.duration_ms) for one in done.history if one.is_completed]
    return ended[-FULL_CHECKPOINTS:]


def _is_back_pressured(job: JobClient) -> bool:
    shares = [
        io.backpressured_ms_per_s
        for name, _, io in job.get_task_metrics().result()
        if "Pairs" in name
    ]
    return bool(shares) and min(shares) > 500


# ---------------------------------------------------------------------- one slot


def _backend(folder: Path, names: Iterator[int], *, is_rocks: bool) -> KeyedStateBackend:
    if not is_rocks:
        return HeapKeyedStateBackend(GROUPS)
    settings = RocksSettings(
        lambda: str(folder / f"db-{next(names)}"),
        slot_memory(128 << 20),
        plain_dumps,
        pickle.loads,
        threading.Lock,
    )
    return RocksKeyedStateBackend(GROUPS, settings=settings)


def _values(backend: KeyedStateBackend) -> ValueState:
    return backend.get_state(ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY()))


def _restore_rate(*, is_rocks: bool) -> float:
    """MB/s from the files to a backend whose first value was read."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder, names = Path(name), count()
        storage = CheckpointStorage(f"{name}/checkpoints", JobId("0" * 32))
        backend = _backend(folder, names, is_rocks=is_rocks)
        state = _values(backend)
        for key in range(RESTORED_KEYS):
            backend.set_key(key)
            state.update((key, f"a value of some length, {key}"))
        writer = storage.writer(storage.folder_of(1), checkpoint_id=1)
        snapshot = OperatorSnapshot()
        snapshot.add("state", backend.snapshot())
        snapshot.freeze(plain_dumps)
        sharing = Sharing(ALL_GROUPS, writer.share, storage.is_shared_here) if is_rocks else None
        written = write_operator(snapshot, writer.add, plain_dumps, pickle.loads, sharing)
        writer.close()
        snapshot.close(is_kept=True)
        backend.close()

        started = time.perf_counter()
        restore = OperatorRestore(written.keyed, databases=written.databases)
        with COLLECTOR_HELD_OFF:
            read = read_operator(restore, storage.read, ALL_GROUPS, pickle.loads, OtherParts.HELD)
            again = _backend(folder, names, is_rocks=is_rocks)
            restore_backend(again, read, "state")
            again.set_key(7)
            found = _values(again).value()
        seconds = time.perf_counter() - started
        again.close()
    if found is None or found[0] != 7:
        raise SystemExit(f"checkpoints: key 7 was restored as {found!r}")
    return written.size_bytes / 1e6 / seconds


# ---------------------------------------------------------------------- figures


def measure(_events: int | None, runs: int) -> list[Figure]:
    taken = [(_at_full_speed(INTERVAL_S), _at_full_speed(None)) for _ in range(runs)]
    settings = {"keys": KEYS, "interval": f"{INTERVAL_S} s", "TaskManagers": TASKMANAGERS}
    restored = {"keys": RESTORED_KEYS, "slots": 1}
    return [
        Figure(
            "rate with checkpoints",
            [one.per_s for one, _ in taken],
            "records/s",
            [floor.per_s for _, floor in taken],
            settings | {"floor": "the same job without"},
        ),
        Figure(
            "rate with checkpoints, by CPU time",
            [one.per_cpu_s for one, _ in taken],
            "records/CPU s",
            [floor.per_cpu_s for _, floor in taken],
            settings | {"floor": "the same job without"},
        ),
        Figure("stop of the slowest task", [one.stop_ms for one, _ in taken], "ms", (), settings),
        Figure("checkpoint of an idle job", _idle_durations(), "ms", (), {"tasks": 4}),
        Figure(
            "unaligned checkpoint, back-pressured",
            _back_pressured_durations(),
            "ms",
            (),
            {"tasks": 4, "a record takes": "1 ms"},
        ),
        Figure(
            "restore, heap",
            [_restore_rate(is_rocks=False) for _ in range(runs)],
            "MB/s",
            (),
            restored,
        ),
        Figure(
            "restore, RocksDB",
            [_restore_rate(is_rocks=True) for _ in range(runs)],
            "MB/s",
            (),
            restored,
        ),
    ]
