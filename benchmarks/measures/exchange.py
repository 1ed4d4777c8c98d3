"""Exchange between two TaskManagers: a source in one, a counting sink in the other, nothing between them.

Columns: Arrow batches of 32,768 rows of four int64 columns. Rows: batches of 2,048 pairs (int, str). Floors: the same
batches over one socket to another process (`benchmarks.workloads.exchange_floor`): Arrow's encoded record batch behind a
length, decoded again; pickle behind a length, loaded again. Both over a Unix socket, as TaskManagers of one machine
have it, and over loopback TCP.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, TimedSource, environment, marks_in
from benchmarks.workloads.exchange_floor import floor_seconds
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
)
from penstock.datastream.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.operator import Accepts

COLUMN_ROWS = 32_768
COLUMN_NAMES = ("auction", "bidder", "price", "date_time")
COLUMN_BATCHES = 16_000
ROWS = 2_048
ROW_BATCHES = 20_000


def columns() -> pa.RecordBatch:
    """One megabyte."""
    values = np.random.default_rng(7).integers(0, 2**40, (len(COLUMN_NAMES), COLUMN_ROWS))
    return pa.RecordBatch.from_arrays([pa.array(one) for one in values], list(COLUMN_NAMES))


def rows() -> list[tuple[int, str]]:
    return [(number, f"word{number}") for number in range(ROWS)]


class RepeatingSource(Source):
    """`batches` times the same batch."""

    def __init__(self, batches: int, *, is_columnar: bool) -> None:
        self._batches = batches
        self._is_columnar = is_columnar

    @property
    def produced_type(self) -> Any:
        names = list(COLUMN_NAMES)
        return Types.ROW_NAMED(names, [Types.LONG()] * len(names)) if self._is_columnar else None

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, [self._batches])

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _Reader(context, is_columnar=self._is_columnar)


class _Reader(PolledSplitReader):
    def __init__(self, context: ReaderContext, *, is_columnar: bool) -> None:
        super().__init__(context)
        self._batch: Batch = ColumnBatch(columns()) if is_columnar else RowBatch(rows())

    def read(self, split: int) -> Iterator[Batch]:
        for _ in range(split):
            yield self._batch


class CountingSink(Sink):
    """`rows` and `last_ns` (CLOCK_MONOTONIC) when the job has ended."""

    accepts = Accepts.ANY

    def __init__(self) -> None:
        self.rows = 0
        self.last_ns = 0

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Counter()

    def create_committer(self) -> Committer:
        return _Gather(self)


class _Counter:
    def __init__(self) -> None:
        self._rows = 0
        self._last_ns = 0

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self._rows += len(batch)
        self._last_ns = time.monotonic_ns()

    def prepare_commit(self) -> Sequence[object]:
        return [(self._rows, self._last_ns)]

    def close(self) -> None:
        """Nothing is open."""


class _Gather(Committer):
    def __init__(self, sink: CountingSink) -> None:
        self._sink = sink

    def commit(self, committables: Sequence[Any]) -> None:
        for count, last_ns in committables:
            self._sink.rows += count
            self._sink.last_ns = max(self._sink.last_ns, last_ns)

    def abort(self, job_prefix: str) -> None:
        """Failed attempts leave nothing behind."""


def job_seconds(
    batches: int, *, is_columnar: bool, is_tcp: bool, more: dict[str, Any] | None = None
) -> float:
    """First read to last write. Two slot sharing groups of one slot each: two TaskManagers. `more`: settings."""
    sink = CountingSink()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as marks:
        settings = {"penstock.exchange.local-sockets": not is_tcp, **(more or {})}
        env = environment(settings).set_parallelism(1)
        source = TimedSource(RepeatingSource(batches, is_columnar=is_columnar), marks)
        sent = env.from_source(source, WatermarkStrategy.no_watermarks(), "Sender")
        sent = sent.slot_sharing_group("sender")
        sent.sink_to(sink).slot_sharing_group("receiver")
        env.execute("benchmark exchange")
        (mark,) = marks_in(marks)
    expected = batches * (COLUMN_ROWS if is_columnar else ROWS)
    if sink.rows != expected:
        raise SystemExit(f"exchange: {sink.rows:,} rows arrived of {expected:,}")
    return (sink.last_ns - mark.at_ns) / 1e9


def measure(_events: int | None, runs: int) -> list[Figure]:
    return [
        _figure(is_columnar, is_tcp, runs)
        for is_columnar in (True, False)
        for is_tcp in (False, True)
    ]


def _figure(is_columnar: bool, is_tcp: bool, runs: int) -> Figure:
    size, batches = (COLUMN_ROWS, COLUMN_BATCHES) if is_columnar else (ROWS, ROW_BATCHES)
    batch = columns() if is_columnar else rows()
    jobs, floors = [], []
    for _ in range(runs):
        jobs.append(job_seconds(batches, is_columnar=is_columnar, is_tcp=is_tcp))
        floors.append(floor_seconds(batch, batches, is_tcp=is_tcp))
    medium = "loopback TCP" if is_tcp else "Unix socket"
    settings = {
        "rows per batch": size,
        "batches": batches,
        "TaskManagers": TASKMANAGERS,
        "floor": f"one {medium}, two processes",
    }
    total = batches * size
    name = f"exchange of {'columns' if is_columnar else 'rows'} over {medium}"
    rates, floor_rates = [total / s for s in jobs], [total / s for s in floors]
    return Figure(name, rates, "rows/s", floor_rates, settings)
