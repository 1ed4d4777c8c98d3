"""Probes: a source and a sink that tell when the first record was read and the last one written.

Times are CLOCK_MONOTONIC, which all processes of one Linux machine share. So these benchmarks need
driver and TaskManagers on one machine. A reader has no way to report to the driver; it leaves its
time in a file.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.engine.runtime.elements import Batch, RowBatch

TASKMANAGERS = 2


def environment(options: Mapping[str, object] | None = None) -> StreamExecutionEnvironment:
    """Parallelism 2 and one slot each: two TaskManagers, on the embedded Spark. `options`: further ones."""
    configuration = Configuration()
    configuration.set_string("taskmanager.numberOfTaskSlots", "1")
    for key, value in (options or {}).items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(TASKMANAGERS)


@dataclass(frozen=True)
class TimedRun:
    """`data_seconds`: first read to last write. `job_seconds`: all of `execute`, start-up too. `cpu_seconds`: of the TaskManagers, from
    the first read of each to its end.
    """

    kept: Any
    records: int
    data_seconds: float
    job_seconds: float
    cpu_seconds: float


def timed_run(
    source: Source,
    watermarks: WatermarkStrategy,
    pipeline: Callable[[DataStream], DataStream],
    keep: type[dict] | type[list],
    name: str,
    parallelism: int = TASKMANAGERS,
    options: Mapping[str, object] | None = None,
) -> TimedRun:
    """Run the job once. `keep` dict: results are pairs of which the last per key is kept; list: all
    are.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as marks:
        env = environment(options).set_parallelism(parallelism)
        sink = TimedSink(keep)
        events = env.from_source(TimedSource(source, marks), watermarks, "Source")
        pipeline(events).sink_to(sink)
        started = time.perf_counter()
        env.execute(name)
        job_seconds = time.perf_counter() - started
        begun = marks_in(marks)
    data_seconds = (sink.last_ns - min(mark.at_ns for mark in begun)) / 1e9
    cpu_ns = sum(sink.cpu_ns.values()) - sum(
        min(mark.cpu_ns for mark in begun if mark.process == process) for process in sink.cpu_ns
    )
    return TimedRun(sink.kept, sink.records, data_seconds, job_seconds, cpu_ns / 1e9)


class Mark(NamedTuple):
    """When a reader read its first batch, and the CPU time that its process had used by then."""

    at_ns: int
    process: int
    cpu_ns: int


def marks_in(folder: str) -> list[Mark]:
    """Return what the readers of `TimedSource` have written there."""
    return [Mark(*map(int, mark.read_text().split())) for mark in Path(folder).iterdir()]


class TimedSource(Source):
    """Another source, whose readers leave the time of their first batch in `directory`."""

    def __init__(self, inner: Source, directory: str) -> None:
        self._inner = inner
        self._directory = directory

    @property
    def boundedness(self) -> Boundedness:
        return self._inner.boundedness

    @property
    def produced_type(self) -> Any:
        return self._inner.produced_type

    def validate(self) -> None:
        self._inner.validate()

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return self._inner.create_enumerator(context)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        mark = Path(self._directory) / f"first-read-{context.subtask()}"
        return _TimedReader(self._inner.create_reader(context), mark)


class _TimedReader(SourceReader):
    def __init__(self, inner: SourceReader, mark: Path) -> None:
        self._inner = inner
        self._mark = mark
        self._is_marked = False

    def read_fields(self, names: Sequence[str]) -> None:
        self._inner.read_fields(names)

    def start(self) -> None:
        self._inner.start()

    def poll_next(self) -> Polled:
        if self._is_marked:
            return self._inner.poll_next()
        mark = Mark(time.monotonic_ns(), os.getpid(), time.process_time_ns())
        polled = self._inner.poll_next()
        if isinstance(polled, SplitBatch):
            self._mark.write_text(" ".join(map(str, mark)))
            self._is_marked = True
        return polled

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._inner.add_splits(splits)

    def notify_no_more_splits(self) -> None:
        self._inner.notify_no_more_splits()

    def close(self) -> None:
        self._inner.close()


class TimedSink(Sink):
    """Filled when the job has ended: what was kept, how many records came, when the last one did, CPU time by process."""

    def __init__(self, keep: type[dict] | type[list]) -> None:
        self._keep = keep
        self.kept = keep()
        self.records = 0
        self.last_ns = 0
        self.cpu_ns: dict[int, int] = {}

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _TimedWriter(self._keep)

    def create_committer(self) -> Committer:
        return _Gather(self)


class _TimedWriter:
    def __init__(self, keep: type[dict] | type[list]) -> None:
        self._kept = keep()
        self._add = adder(self._kept)
        self._records = 0
        self._last_ns = 0

    def write(self, batch: Batch, watermark_ms: int) -> None:
        assert isinstance(batch, RowBatch)
        self._add(batch.values)
        self._records += len(batch)
        self._last_ns = time.monotonic_ns()

    def prepare_commit(self) -> Sequence[object]:
        return [(self._kept, self._records, self._last_ns, os.getpid(), time.process_time_ns())]

    def close(self) -> None:
        """Nothing is open."""


class _Gather(Committer):
    def __init__(self, sink: TimedSink) -> None:
        self._sink = sink

    def commit(self, committables: Sequence[Any]) -> None:
        sink = self._sink
        for kept, records, last_ns, process, cpu_ns in committables:
            adder(sink.kept)(kept)
            sink.cpu_ns[process] = max(cpu_ns, sink.cpu_ns.get(process, 0))
            sink.records += records
            sink.last_ns = max(sink.last_ns, last_ns)

    def abort(self, job_prefix: str) -> None:
        """Failed attempts leave nothing behind."""


def adder(kept: dict | list) -> Callable[[Any], None]:
    """How `kept` takes in many results at once."""
    return kept.update if isinstance(kept, dict) else kept.extend
