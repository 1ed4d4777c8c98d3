"""Ours on columns: no Python object for a record."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.programs import penstock_rows
from benchmarks.peers.programs.checks import BASE_MS, Arguments, each, q5_of
from benchmarks.peers.programs.penstock_sum import Query, SumOf, run
from examples.nexmark_q5 import Hottest, hottest_here
from penstock.common import Time, Types
from penstock.connectors.api.base import Source
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import DataStream
from penstock.datastream.columns import col, count
from penstock.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.formats.parquet import ParquetFormat

COUNTED = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])


def split_lines(lines: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each word, with a one."""
    words = pc.split_pattern(lines.column(0), " ").flatten()
    return pa.RecordBatch.from_arrays([words, pa.repeat(1, len(words))], names=["word", "n"])


def word_count(lines: DataStream) -> DataStream:
    return lines.map_batches(split_lines, COUNTED).key_by(col("word")).sum("n")


def q1(bids: DataStream) -> DataStream:
    return bids.select("auction", "bidder", "ts", "extra", price=col("price") * 0.908)


def q5(bids: DataStream) -> DataStream:
    counts = (
        bids
        .key_by(col("auction"))
        .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2)))
        .aggregate(count().alias("bids"))
        .map_batches(hottest_here, timestamp_column="at")
    )
    return counts.window_all(TumblingEventTimeWindows.of(Time.seconds(2))).process(Hottest())


# ---------------------------------------------------------------------- sums


def word_sum(counts: pa.RecordBatch) -> int:
    words, n = counts.column(0), counts.column(1).to_numpy()
    lengths = pc.binary_length(words).to_numpy().astype(np.int64)
    return int((n * n + n * lengths).sum())


def q1_sum(bids: pa.RecordBatch) -> int:
    auction, bidder, ts, price = (
        bids.column(name).to_numpy() for name in ("auction", "bidder", "ts", "price")
    )
    lengths = pc.binary_length(bids.column("extra")).to_numpy().astype(np.int64)
    thousandths = np.round(1000 * price).astype(np.int64)
    parts = auction + 3 * bidder + 7 * thousandths + 11 * (ts - BASE_MS) + 13 * lengths
    return int(parts.sum())


def source_of(arguments: Arguments, directory: Path) -> Source:
    if arguments.workload == "word_count":
        lines = StreamFormat.text_line_format(as_columns=True)
        return penstock_rows.whole_files(FileSource.for_record_stream_format(lines, str(directory)))
    if arguments.form == "json":
        return penstock_rows.source_of(arguments.workload, directory)
    workload = arguments.workload
    stamps = penstock_rows.timestamps_of(workload)
    columns = ParquetFormat(penstock_rows.FIELDS[workload], timestamps=stamps)
    return penstock_rows.whole_files(FileSource.for_bulk_file_format(columns, str(directory)))


WORKLOADS: dict[str, tuple[Callable[[DataStream], DataStream], SumOf, bool]] = {
    "word_count": (word_count, word_sum, True),
    "q1": (q1, q1_sum, True),
    "q5": (q5, each(lambda row: q5_of(row[1], row[2], row[0])), False),
}


def main() -> None:
    arguments = Arguments()
    pipeline, of, is_columnar = WORKLOADS[arguments.workload]
    watermarks = penstock_rows.watermarks_of(arguments.workload)
    source = functools.partial(source_of, arguments)
    run(arguments, Query(source, pipeline, of, is_columnar, watermarks))


if __name__ == "__main__":
    main()
