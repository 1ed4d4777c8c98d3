"""A keyed job in BATCH whose input is many times its memory: a half of the rows of one key, all key after key in the order of their times.

The source makes the rows; each keyed subtask counts those of a key and sees that their times do not fall. What is looked at is the largest resident memory of
Spark's Python workers, all together.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure
from benchmarks.workloads.range_source import RangeSource
from penstock.common import WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.engine.runtime.elements import Batch, RowBatch

MIB = 1 << 20
LIMIT_SHARE = 5
"""The input is so many times the memory of all workers."""
SUBTASKS = 2
BASE_MIB = 150
"""Of a worker without data: Python, numpy, Arrow."""
KEYS = 100_000
HOT_KEY = -1
TEXT_BYTES = 480
TEXTS = 4096
ROW_BYTES = TEXT_BYTES + 20
BATCH_ROWS = 1024

Pair = tuple[int, str]


def rows_of(low: int, high: int) -> Iterator[Batch]:
    random = np.random.default_rng(low)
    texts = [random.bytes(TEXT_BYTES // 2).hex() for _ in range(TEXTS)]
    for start in range(low, high, BATCH_ROWS):
        count = min(BATCH_ROWS, high - start)
        keys = random.integers(0, KEYS, count)
        keys[::2] = HOT_KEY
        # Each a string of its own, as from a file.
        rows = [(key, texts[key & (TEXTS - 1)][1:]) for key in keys.tolist()]
        yield RowBatch(rows, random.integers(1, 1 << 40, count))


def key_of(pair: Pair) -> int:
    return pair[0]


class CountAll(KeyedProcessFunction):
    """Rows of each key, told when it ends, and that their times do not fall; the worker's peak goes to a file."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._count = self._last = 0

    def process_element(self, value, ctx):
        if self._count == 0:
            self._last = 0
            ctx.timer_service().register_event_time_timer(1 << 60)
        self._count += 1
        if ctx.timestamp() < self._last:
            raise ValueError(f"times fall: {ctx.timestamp()} after {self._last}")
        self._last = ctx.timestamp()

    def on_timer(self, timestamp, ctx):
        yield self._count
        self._count = 0

    def close(self):
        text = Path("/proc/self/status").read_text(encoding="utf-8")
        peak = text.split("VmHWM:")[1].split()[0]
        (Path(self._directory) / str(os.getpid())).write_text(peak, encoding="utf-8")


def run_once(megabytes: int) -> tuple[float, float]:
    """Seconds, and the largest resident MiB of all workers."""
    rows = megabytes * MIB // ROW_BYTES
    memory = (megabytes // LIMIT_SHARE) // SUBTASKS - BASE_MIB
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(SUBTASKS)
        env.get_configuration().set_string("execution.sorted-inputs.memory", f"{memory} mb")
        source = env.from_source(
            RangeSource(rows, rows_of), WatermarkStrategy.no_watermarks(), "Rows"
        )
        counts = source.key_by(key_of).process(CountAll(directory))
        started = time.perf_counter()
        with counts.execute_and_collect("benchmark larger than memory") as found:
            total = sum(found)
        seconds = time.perf_counter() - started
        peaks = [int(path.read_text()) / 1024 for path in Path(directory).iterdir()]
    if total != rows:
        raise SystemExit(f"larger_than_memory: {total} rows of {rows} were counted")
    return seconds, sum(sorted(peaks)[-SUBTASKS:])


def figures(megabytes: int) -> list[Figure]:
    """One run."""
    seconds, peak = run_once(megabytes)
    settings = {"MB": megabytes, "subtasks": SUBTASKS, "keys": KEYS, "rows of one key": "50 %"}
    limit = [megabytes / LIMIT_SHARE]
    return [
        Figure("batch larger than memory", [megabytes / seconds], "MB/s", (), settings),
        Figure("batch larger than memory, workers", [peak], "MiB", limit, settings, "limit"),
    ]
