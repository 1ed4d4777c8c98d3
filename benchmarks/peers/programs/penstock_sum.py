"""The sink of our own programs: rows and sum of what came, and when the last of it did. The job's own run."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.peers.programs.checks import Arguments, tell
from benchmarks.probes import TimedSource, environment, marks_in
from penstock.common import WatermarkStrategy
from penstock.connectors.api.base import Source
from penstock.datastream import DataStream, RuntimeExecutionMode
from penstock.datastream.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.engine.runtime.elements import Batch, ColumnBatch
from penstock.engine.runtime.operator import Accepts

SumOf = Callable[[Any], int]


class SumSink(Sink):
    """`of`: of a list of rows; with `is_columnar`, of a record batch."""

    def __init__(self, of: SumOf, *, is_columnar: bool) -> None:
        self._of = of
        self.accepts = Accepts.COLUMNS if is_columnar else Accepts.ROWS
        self.rows = self.sum = self.last_ns = 0

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _SumWriter(self._of)

    def create_committer(self) -> Committer:
        return _Gather(self)


class _SumWriter:
    def __init__(self, of: SumOf) -> None:
        self._of = of
        self._rows = self._sum = self._last_ns = 0

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self._rows += len(batch)
        self._sum += self._of(batch.data if isinstance(batch, ColumnBatch) else batch.values)
        self._last_ns = time.monotonic_ns()

    def prepare_commit(self) -> Sequence[object]:
        return [(self._rows, self._sum, self._last_ns)]

    def close(self) -> None:
        """Nothing is open."""


class _Gather(Committer):
    def __init__(self, sink: SumSink) -> None:
        self._sink = sink

    def commit(self, committables: Sequence[Any]) -> None:
        for rows, total, last_ns in committables:
            self._sink.rows += rows
            self._sink.sum += total
            self._sink.last_ns = max(self._sink.last_ns, last_ns)

    def abort(self, job_prefix: str) -> None:
        """Failed attempts leave nothing behind."""


@dataclass(frozen=True)
class Query:
    """One of our programs. `source`: of a directory."""

    source: Callable[[Path], Source]
    pipeline: Callable[[DataStream], DataStream]
    sum_of: SumOf
    is_columnar: bool
    watermarks: WatermarkStrategy

    def sink(self) -> SumSink:
        return SumSink(self.sum_of, is_columnar=self.is_columnar)


def run(arguments: Arguments, query: Query) -> None:
    """Mode `batch`: all of a job in BATCH mode, in a session that has run it on little data already. Else from the first read to the
    last write of a streaming job.
    """
    if arguments.mode == "batch":
        SparkSession.builder.master(f"local[{arguments.parallelism}]").getOrCreate()
        _in_batch(arguments, query, arguments.warm_input)
        seconds, sink = _in_batch(arguments, query, arguments.input)
    else:
        seconds, sink = _streaming(arguments, query)
    tell(seconds, (sink.rows, sink.sum))


def _in_batch(arguments: Arguments, query: Query, directory: Path) -> tuple[float, SumSink]:
    env = environment().set_parallelism(arguments.parallelism)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    sink = query.sink()
    started = time.perf_counter()
    given = env.from_source(query.source(directory), query.watermarks, "Input")
    query.pipeline(given).sink_to(sink)
    env.execute(arguments.workload)
    return time.perf_counter() - started, sink


def _streaming(arguments: Arguments, query: Query) -> tuple[float, SumSink]:
    sink = query.sink()
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as marks:
        env = environment().set_parallelism(arguments.parallelism)
        source = TimedSource(query.source(arguments.input), marks)
        query.pipeline(env.from_source(source, query.watermarks, "Input")).sink_to(sink)
        env.execute(arguments.workload)
        first_ns = min(mark.at_ns for mark in marks_in(marks))
    return (sink.last_ns - first_ns) / 1e9, sink
