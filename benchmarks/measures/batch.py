"""BATCH on Spark's engine beside Spark's own: a word count over the same files, and data larger than memory.

Peers of the word count, in the same call and session, warm, in turns: on columns Spark's DataFrame API (`read.text`, `mapInArrow` with the
same function, `groupBy`), and its RDD API (`flatMap`, `map`, `reduceByKey`) with the same functions as the row API here. Results are
compared each time. Larger than memory: rows of half a KB, half of them of one key, sorted by key and time by two subtasks; the limit is a fifth
of the data, for Spark's Python workers together, with all that Python and its libraries take. `--events`: words, default 20,000,000, and a
megabyte of such data for each 4,000.
"""

import operator
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.figures import Figure
from benchmarks.measures import larger_than_memory
from benchmarks.measures.word_count import WORDS_PER_LINE, add, make_pool, word_of, words_with_one
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.columns import col

DEFAULT_WORDS = 20_000_000
FILES = 8
WORDS_PER_MB = 4000
LEAST_MB = 2000
"""Below this the limit is what two workers take without any data."""
COUNTED = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
ABOUT = __doc__.split("\n\n", maxsplit=1)[1].strip()

Counts = dict[str, int]


def write_lines(directory: Path, words: int) -> None:
    """`FILES` files of lines, the same ones again and again."""
    text = "\n".join(make_pool()) + "\n"
    lines_in_pool = text.count("\n")
    times = max(1, words // WORDS_PER_LINE // FILES // lines_in_pool)
    for number in range(FILES):
        (directory / f"lines-{number}.txt").write_text(text * times, encoding="utf-8")


def words_in(directory: Path) -> int:
    lines = sum(path.read_bytes().count(b"\n") for path in directory.glob("*.txt"))
    return lines * WORDS_PER_LINE


# ---------------------------------------------------------------------- what is measured


def split_lines(lines: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each word, with a one."""
    words = pc.split_pattern(lines.column(0), " ").flatten()
    return pa.RecordBatch.from_arrays([words, pa.repeat(1, len(words))], names=["word", "n"])


def _lines(directory: Path, *, as_columns: bool) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    lines = StreamFormat.text_line_format(as_columns=as_columns)
    source = FileSource.for_record_stream_format(lines, str(directory)).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "Lines")


def count_columns(directory: Path) -> Counts:
    words = _lines(directory, as_columns=True).map_batches(split_lines, COUNTED)
    with words.key_by(col("word")).sum("n").execute_and_collect() as found:
        return {row[0]: row[1] for row in found}


def count_rows(directory: Path) -> Counts:
    pairs = _lines(directory, as_columns=False).flat_map(words_with_one)
    with pairs.key_by(word_of).reduce(add, combine=True).execute_and_collect() as found:
        return dict(found)


# ---------------------------------------------------------------------- peers


def count_in_arrow(directory: Path) -> Counts:
    spark = SparkSession.builder.getOrCreate()

    def split(batches):
        yield from map(split_lines, batches)

    lines = spark.read.text(str(directory))
    words = lines.mapInArrow(split, "word string, n bigint")
    return {row[0]: row[1] for row in words.groupBy("word").sum("n").collect()}


def count_in_rdd(directory: Path) -> Counts:
    context = SparkSession.builder.getOrCreate().sparkContext
    words = context.textFile(str(directory)).flatMap(str.split)
    return dict(words.map(lambda word: (word, 1)).reduceByKey(operator.add).collect())


# ---------------------------------------------------------------------- figures


def in_turns(
    counts: list[Callable[[Path], Counts]], directory: Path, runs: int
) -> list[list[float]]:
    """Seconds of each, run by run, after one that warms up."""
    seconds: list[list[float]] = [[] for _ in counts]
    expected: Counts = {}
    for turn in range(runs + 1):
        for place, count in enumerate(counts):
            started = time.perf_counter()
            found = count(directory)
            if turn:
                seconds[place].append(time.perf_counter() - started)
            expected = expected or found
            if found != expected:
                raise SystemExit(f"batch: {count.__name__} counts otherwise than {counts[0]}")
    return seconds


def word_counts(words: int, runs: int) -> list[Figure]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        write_lines(directory, words)
        total = words_in(directory)
        counts = [count_columns, count_rows, count_in_arrow, count_in_rdd]
        rates = [
            [total / one for one in of_count] for of_count in in_turns(counts, directory, runs)
        ]
    finally:
        shutil.rmtree(directory)
    columns, rows, arrow, rdd = rates
    settings = {"words": total, "files": FILES, "Spark": _master()}
    unit = "words/s"
    return [
        Figure("batch word count on columns", columns, unit, arrow, settings, "peer mapInArrow"),
        Figure("batch word count on columns", columns, unit, rdd, settings, "peer RDD"),
        Figure("batch word count on rows", rows, unit, rdd, settings, "peer RDD"),
    ]


def _master() -> str:
    return SparkSession.builder.getOrCreate().sparkContext.master


def measure(words: int | None, runs: int) -> list[Figure]:
    spark = SparkSession.builder.getOrCreate()
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    try:
        found = word_counts(words or DEFAULT_WORDS, runs)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    megabytes = (words or DEFAULT_WORDS) // WORDS_PER_MB
    return [*found, *larger_than_memory.figures(max(megabytes, LEAST_MB))]
