"""Latency of one record: from the source that makes it to the sink, over key_by, in milliseconds.

The source has one subtask, map and sink have two, so that half of the keys stay in the source's
TaskManager (local) and half cross to the other one (remote); each sink subtask sees one kind only.
Floor of both: the same records at the same rate over one socket (`benchmarks.workloads.socket_floor`).

Also with a busy Python loop beside it in one TaskManager, that of the source, and in both: a second
pipeline of the job, one of whose subtasks runs in each. With both, two cores have nothing to spare.

Above 200 records a second the rate limiter releases records every 5 ms, all that are due at once;
the floor does the same.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, environment
from benchmarks.workloads.socket_floor import socket_latencies
from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource, NumberSequenceSource
from penstock.datastream.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.engine.runtime.elements import Batch, RowBatch

RATES = (100, 10_000, 100_000)
BUSY_RATES = (10_000, 100_000)
BUSY = {1: "latency beside a busy loop", 2: "latency beside a busy loop in each TaskManager"}
BUSY_CALL_S = 0.001
BUSY_EXTRA_S = 1  # it goes on a little longer than what is measured
KEYS = 64
WARM_UP_S = 2
MEASURED_S = 6

Record = tuple[int, int, int]


def make_record(index: int) -> Record:
    """(key, when it was made, process that made it)."""
    return index % KEYS, time.perf_counter_ns(), os.getpid()


def key_of(record: Record) -> int:
    return record[0]


def unchanged(record: Record) -> Record:
    return record


def burn(index: int) -> int:
    """Holds the GIL as much as it can for a while."""
    until = time.perf_counter() + BUSY_CALL_S
    while time.perf_counter() < until:
        index += 1
    return index


def is_negative(value: int) -> bool:
    return value < 0


class LatencySink(Sink):
    """`samples`: nanoseconds, by "local" and "remote", when the job has ended."""

    def __init__(self) -> None:
        self.samples: dict[str, np.ndarray] = {}

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _LatencyWriter()

    def create_committer(self) -> Committer:
        return _Gather(self.samples)


class _LatencyWriter:
    def __init__(self) -> None:
        self._measured_from_ns: int | None = None
        self._path = "none"
        self._pieces: list[np.ndarray] = []

    def write(self, batch: Batch, watermark_ms: int) -> None:
        now_ns = time.perf_counter_ns()
        assert isinstance(batch, RowBatch)
        if self._measured_from_ns is None:
            _, made_ns, process = batch.values[0]
            self._measured_from_ns = made_ns + WARM_UP_S * 1_000_000_000
            self._path = "local" if process == os.getpid() else "remote"
        made = np.array([record[1] for record in batch.values], np.int64)
        self._pieces.append(now_ns - made[made >= self._measured_from_ns])

    def prepare_commit(self) -> Sequence[object]:
        return [(self._path, np.concatenate(self._pieces).tobytes())] if self._pieces else []

    def close(self) -> None:
        """Nothing is open."""


class _Gather(Committer):
    def __init__(self, samples: dict[str, np.ndarray]) -> None:
        self._samples = samples

    def commit(self, committables: Sequence[Any]) -> None:
        for path, data in committables:
            self._samples[path] = np.frombuffer(data, np.int64)

    def abort(self, job_prefix: str) -> None:
        """Failed attempts leave nothing behind."""


def job_latencies(rate: int, *, busy: int = 0) -> dict[str, np.ndarray]:
    """Nanoseconds of each measured record, local and remote. `busy`: TaskManagers with a loop beside it."""
    source = DataGeneratorSource(make_record, rate * (WARM_UP_S + MEASURED_S), rate)
    sink = LatencySink()
    env = environment()
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "Records")
    records.set_parallelism(1).key_by(key_of).map(unchanged).sink_to(sink)
    if busy:
        calls = int((WARM_UP_S + MEASURED_S + BUSY_EXTRA_S) / BUSY_CALL_S) * busy
        numbers = NumberSequenceSource(0, calls)
        beside = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "Busy")
        burnt = beside.set_parallelism(busy).map(burn).set_parallelism(busy)
        nothing = burnt.filter(is_negative).set_parallelism(busy)
        nothing.sink_to(LatencySink()).set_parallelism(busy)
    env.execute(f"benchmark latency at {rate}/s")
    if set(sink.samples) != {"local", "remote"}:
        raise SystemExit(f"latency: expected local and remote records, got {set(sink.samples)}")
    return sink.samples


def measure(_events: int | None, runs: int) -> list[Figure]:
    figures = [figure for rate in RATES for figure in _figures("latency", rate, runs)]
    for busy, name in BUSY.items():
        figures += [
            figure for rate in BUSY_RATES for figure in _figures(name, rate, runs, busy=busy)
        ]
    return figures


def _figures(name: str, rate: int, runs: int, *, busy: int = 0) -> list[Figure]:
    jobs, floors = [], []
    for _ in range(runs):
        jobs.append(job_latencies(rate, busy=busy))
        floors.append(socket_latencies(rate, KEYS, WARM_UP_S, MEASURED_S))
    settings = {"records/s": rate, "TaskManagers": TASKMANAGERS, "floor": "one socket, pickle"}
    return [
        Figure(
            f"{name} {path} p{percent} at {rate:,}/s",
            [_percentile_ms(job[path], percent) for job in jobs],
            "ms",
            [_percentile_ms(floor, percent) for floor in floors],
            settings,
        )
        for path in ("remote", "local")
        for percent in (50, 99)
    ]


def _percentile_ms(nanoseconds: np.ndarray, percent: int) -> float:
    return float(np.percentile(nanoseconds, percent)) / 1e6
