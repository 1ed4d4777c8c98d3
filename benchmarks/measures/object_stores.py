"""FileSink to S3 beside pyarrow's own writer, on the same server.

Parquet of random numbers (16 bytes a row, which no compression makes smaller) goes to a bucket of moto's server, a process of its own on
the same two cores. In the first row a local Parquet file is read and written: ours by a job of one task in this process, FileSource to
FileSink, with a checkpoint every second, until the last object is visible; floor: pyarrow reads the same batches, and writes them with
its `ParquetWriter` into the stream of its own client. In the second row the batches are in memory, and ours is the writer of the sink
alone, with its commit. Row groups and compression are the same. A run of each in turns; MiB are those of the file. CPU seconds
are those of the writing process, without the server.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from benchmarks.figures import Figure
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.file_system import BucketAssigner, FileSink, FileSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.sink import WriterContext
from penstock.formats.parquet import ParquetBulkWriters, ParquetFormat

ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()
ROWS = 8_000_000
BATCH_ROWS = 65_536
GROUP_ROWS = 131_072
ROW = Types.ROW_NAMED(["n", "x"], [Types.LONG(), Types.DOUBLE()])
SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64())])
BUCKET = "bench"
MIB = 1 << 20


@contextlib.contextmanager
def _server() -> Generator[str]:
    """The query of addresses of a moto server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        yield f"scheme=http&region=us-east-1&endpoint_override={quote(f'127.0.0.1:{port}')}"
    finally:
        process.kill()
        process.wait()


def _batches(rows: int) -> list[pa.RecordBatch]:
    made = np.random.default_rng(7)
    numbers, floats = made.integers(-(1 << 62), 1 << 62, rows), made.random(rows)
    whole = pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(floats)], names=["n", "x"])
    return [whole.slice(start, BATCH_ROWS) for start in range(0, rows, BATCH_ROWS)]


def _written(sink: Any, batches: Iterable[pa.RecordBatch]) -> None:
    """By pyarrow, in row groups of two batches, as ours are."""
    waiting: list[pa.RecordBatch] = []
    with pq.ParquetWriter(sink, SCHEMA) as writer:
        for batch in batches:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))


class _Bench:
    """One server, one local file, and the same rows in memory."""

    def __init__(self, query: str, folder: str, rows: int) -> None:
        self._query = query
        self.system, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?{query}&allow_bucket_creation=true")
        self.system.create_dir(BUCKET)
        self.batches = _batches(rows)
        self.path = f"{folder}/in.parquet"
        _written(self.path, self.batches)
        self.mib = Path(self.path).stat().st_size / MIB

    def sink(self, folder: str) -> FileSink:
        uri = f"s3://{BUCKET}/{folder}?{self._query}"
        builder = FileSink.for_bulk_format(uri, ParquetBulkWriters.for_row_type(ROW))
        return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()

    def job(self, folder: str) -> None:
        configuration = Configuration()
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.use_executor(MiniCluster(parallelism=1).executor()).set_parallelism(1)
        env.enable_checkpointing(1000)
        form = ParquetFormat(batch_size=BATCH_ROWS, type_info=ROW)
        source = FileSource.for_bulk_file_format(form, self.path).build()
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "file")
        stream.sink_to(self.sink(folder))
        env.execute("file to bucket")

    def copied_by_pyarrow(self, folder: str) -> None:
        with (
            pq.ParquetFile(self.path) as file,
            self.system.open_output_stream(f"{BUCKET}/{folder}/file") as stream,
        ):
            _written(stream, file.iter_batches(BATCH_ROWS))

    def writer(self, folder: str) -> None:
        sink = self.sink(folder)
        context = WriterContext(0, 1, 0, "bench", "bench.0.0", ROW, operator_id="sink")
        writer = sink.create_writer(context)
        for batch in self.batches:
            writer.write(ColumnBatch(batch), 0)
        committer = sink.create_committer()
        assert committer is not None, "a FileSink commits"
        committer.commit(writer.prepare_commit())
        writer.close()

    def written_by_pyarrow(self, folder: str) -> None:
        with self.system.open_output_stream(f"{BUCKET}/{folder}/file") as stream:
            _written(stream, self.batches)

    def rates(self, write: Callable[[str], None], folder: str) -> tuple[float, float]:
        """MiB in a second, and in a CPU second of this process. What was written is checked, then removed, for the server has it in
        memory.
        """
        started, used = time.monotonic(), time.process_time()
        write(folder)
        rates = self.mib / (time.monotonic() - started), self.mib / (time.process_time() - used)
        table = pq.read_table(f"{BUCKET}/{folder}", filesystem=self.system)
        if table.num_rows != sum(one.num_rows for one in self.batches):
            raise SystemExit(f"object_stores: {table.num_rows} rows came out")
        self.system.delete_dir_contents(BUCKET)
        return rates


def measure(events: int | None = None, runs: int = 3) -> list[Figure]:
    """`events`: rows."""
    rows = events or ROWS
    with _server() as query, tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        bench = _Bench(query, folder, rows)
        pairs = {
            "Parquet file to S3, job": (bench.job, bench.copied_by_pyarrow),
            "Parquet to S3, writer alone": (bench.writer, bench.written_by_pyarrow),
        }
        figures = []
        for name, (ours, floor) in pairs.items():
            bench.rates(ours, "warm"), bench.rates(floor, "warm")
            both = [
                (bench.rates(ours, f"ours{run}"), bench.rates(floor, f"floor{run}"))
                for run in range(runs)
            ]
            settings = {"rows": rows, "MiB": round(bench.mib)}
            for number, unit in enumerate(("MiB/s", "MiB/CPU second")):
                values = [one[number] for one, _ in both]
                floors = [one[number] for _, one in both]
                figures.append(Figure(name, values, unit, floors, settings))
    return figures
