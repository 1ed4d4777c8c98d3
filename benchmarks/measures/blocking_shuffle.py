"""Blocking shuffle: what results on disk cost, sort-merge beside a file for each subpartition, written and then read."""

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure
from benchmarks.memory import most_resident_mib, resident_mib
from penstock.hosting.shipping.pickling import dumps_records, loads_records
from penstock.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResultPartitionId,
    VertexId,
)
from penstock.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.runtime.network.partition.bounded_data import FileData
from penstock.runtime.network.partition.buffer_builder import BlockingFormat, SortMerge
from penstock.runtime.network.partition.compression import BufferCompressor
from penstock.runtime.network.partition.result_partition import ResultPartition, blocking_partition
from penstock.runtime.network.partitioner import split_by

ABOUT = """One partition, written by one thread and then read by one, subpartition by
subpartition, in files of this machine's disk (its page cache). Rows: batches of 2,048 pairs (int,
str); columns: Arrow batches of 32,768 rows of four int64 columns; each record goes to a
subpartition at random, and the time to divide batches is counted in both. Compression LZ4, frames
of at most 1 MB. Floor: a file for each subpartition, as before sort-merge, in the same run, in
turns. Seconds are those of the processor, because this is one thread without waits. Memory is by
how much the process grew while it wrote, at most, in a process of its own."""
FRAME_BYTES = 1 << 20
BUFFER_BYTES = 256 << 10
SORT_BUFFERS = 512
ROWS, ROW_BATCHES = 2_048, 600
COLUMN_ROWS, COLUMN_BATCHES = 32_768, 150
SUBPARTITIONS = (2, 200, 2_000)
KINDS = (True, False)


@dataclass
class Run:
    """Seconds, and files that were made."""

    write_s: float
    read_s: float
    files: int


class _Listener:
    def notify_data(self) -> None:
        """Everything is there already."""

    def notify_priority(self, sequence: int) -> None:
        """Nothing has priority."""


def batches(*, is_columnar: bool, how_many: int) -> Iterator[Batch]:
    """A few different ones, again and again."""
    random = np.random.default_rng(7)
    known: list[Batch] = []
    for number in range(how_many):
        if len(known) < 8:
            known.append(_batch(random, is_columnar=is_columnar))
        yield known[number % len(known)]


def _batch(random: np.random.Generator, *, is_columnar: bool) -> Batch:
    if not is_columnar:
        return RowBatch([(one, f"word{one}") for one in random.integers(0, 10_000, ROWS).tolist()])
    values = random.integers(0, 2**20, (4, COLUMN_ROWS))
    names = ["auction", "bidder", "price", "date_time"]
    return ColumnBatch(pa.RecordBatch.from_arrays([pa.array(one) for one in values], names))


@contextmanager
def partition(subpartitions: int, *, is_sort_merge: bool) -> Generator[tuple[ResultPartition, str]]:
    """A result, and the folder of its files."""
    attempt = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)
    name = ResultPartitionId(PartitionId(DataSetId("d"), 0), attempt)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        numbers = count()

        def new_path() -> str:
            return os.path.join(folder, str(next(numbers)))

        sizes = max(SORT_BUFFERS, 4 * subpartitions)
        sort_merge = SortMerge(new_path, min_buffers=sizes) if is_sort_merge else None
        form = BlockingFormat(
            dumps_records,
            loads_records,
            FRAME_BYTES,
            BUFFER_BYTES,
            BufferCompressor("LZ4"),
            sort_merge,
        )
        made = blocking_partition(name, subpartitions, lambda: FileData(new_path()), form)
        try:
            yield made, folder
        finally:
            made.release()


def write(part: ResultPartition, *, is_columnar: bool) -> int:
    """Returns how many records were written."""
    subpartitions = list(part.subpartitions)
    channels = len(subpartitions)
    random = np.random.default_rng(3)
    how_many = COLUMN_BATCHES if is_columnar else ROW_BATCHES
    written = 0
    for batch in batches(is_columnar=is_columnar, how_many=how_many):
        chosen = random.integers(0, channels, len(batch), dtype=np.uint16)
        for channel, piece in split_by(batch, chosen):
            subpartitions[channel].write(piece)
        written += len(batch)
    part.finish()
    return written


def read(part: ResultPartition) -> int:
    """Returns how many records were read."""
    found = 0
    for index in range(len(part.subpartitions)):
        view = part.create_view(index, _Listener())
        while (polled := view.poll()) is not None:
            if isinstance(polled.element, (RowBatch, ColumnBatch)):
                found += len(polled.element)
        view.release()
    return found


def run(subpartitions: int, *, is_columnar: bool, is_sort_merge: bool) -> Run:
    """Write and read one result. Raises: SystemExit: records are missing."""
    with partition(subpartitions, is_sort_merge=is_sort_merge) as (part, folder):
        gc.collect()
        begin = time.process_time()
        written = write(part, is_columnar=is_columnar)
        middle = time.process_time()
        found = read(part)
        end = time.process_time()
        if found != written:
            raise SystemExit(f"blocking_shuffle: {found:,} records were read of {written:,}")
        return Run(middle - begin, end - middle, len(os.listdir(folder)))


def memory_mib(subpartitions: int, *, is_columnar: bool, is_sort_merge: bool) -> float:
    """By how much a process grows at most while it writes a result."""
    program = (
        "from benchmarks.measures import blocking_shuffle as measured\n"
        f"print(measured.growth_mib({subpartitions}, {is_columnar}, {is_sort_merge}))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def growth_mib(subpartitions: int, is_columnar: bool, is_sort_merge: bool) -> float:
    """As `memory_mib`, of this process. Call it once in a process."""
    with partition(2, is_sort_merge=is_sort_merge) as (part, _):
        part.subpartitions[0].write(next(batches(is_columnar=is_columnar, how_many=1)))
        part.finish()  # what is lazy is there
    with partition(subpartitions, is_sort_merge=is_sort_merge) as (part, _):
        before = resident_mib(os.getpid())
        write(part, is_columnar=is_columnar)
        return most_resident_mib(os.getpid()) - before


def measure(_events: int | None, runs: int) -> list[Figure]:
    return [
        figure
        for is_columnar in (False, True)
        for subpartitions in SUBPARTITIONS
        for figure in _figures(subpartitions, runs, is_columnar=is_columnar)
    ]


def _figures(subpartitions: int, runs: int, *, is_columnar: bool) -> list[Figure]:
    done: dict[bool, list[Run]] = {kind: [] for kind in KINDS}
    run(subpartitions, is_columnar=is_columnar, is_sort_merge=True)  # first use of what is lazy
    for number in range(runs):
        for kind in KINDS if number % 2 else reversed(KINDS):
            done[kind].append(run(subpartitions, is_columnar=is_columnar, is_sort_merge=kind))
    records = COLUMN_BATCHES * COLUMN_ROWS if is_columnar else ROW_BATCHES * ROWS
    name = f"{'columns' if is_columnar else 'rows'}, {subpartitions:,} subpartitions"
    about: dict[str, Any] = {"records": records, "floor": "a file for each subpartition"}

    def rates(of: Callable[[Run], float]) -> tuple[list[float], list[float]]:
        sorted_rates, hashed = ([records / of(one) for one in done[kind]] for kind in KINDS)
        return sorted_rates, hashed

    figures = []
    for what, of in (("written", lambda one: one.write_s), ("read", lambda one: one.read_s)):
        mine, floors = rates(of)
        figures.append(Figure(f"{name}, {what}", mine, "records/s", floors, about))
    mine, floors = ([float(one.files) for one in done[kind]] for kind in KINDS)
    figures.append(Figure(f"{name}, files", mine, "files", floors, about))
    held = [memory_mib(subpartitions, is_columnar=is_columnar, is_sort_merge=k) for k in KINDS]
    figures.append(Figure(f"{name}, memory", held[:1], "MiB", held[1:], about))
    return figures
