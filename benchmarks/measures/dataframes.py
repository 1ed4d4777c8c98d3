"""from_spark in a BATCH job: rows of four numeric columns through an identity on columns, dropped or given back with to_spark.

Peer: Spark's own `mapInArrow` with the same identity on the same DataFrame, in the same run, its result written to nowhere.
"""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure
from benchmarks.probes import TASKMANAGERS, environment
from penstock.common import Types
from penstock.connectors.sinks import DiscardingSink
from penstock.datastream import DataStream, RuntimeExecutionMode

DEFAULT_ROWS = 20_000_000
TYPE = Types.ROW_NAMED(
    ["id", "a", "b", "c"], [Types.LONG(), Types.DOUBLE(), Types.INT(), Types.LONG()]
)
ABOUT = """\
A BATCH job of two subtasks reads a DataFrame and hands every record batch to a Python function that gives it back; its result is
dropped, or becomes a DataFrame that is written to nowhere. The peer is `mapInArrow` with that function on the same DataFrame."""


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def all_alike(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, TASKMANAGERS).selectExpr(
        "id", "id * 0.5D AS a", "CAST(id % 1000 AS INT) AS b", "id + 1 AS c"
    )


def through(frame: DataFrame) -> tuple[DataStream, Callable[[str], object]]:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env.from_spark(frame).map_batches(identity, TYPE), env.execute


def dropped(frame: DataFrame) -> None:
    stream, execute = through(frame)
    stream.sink_to(DiscardingSink())
    execute("benchmark from_spark")


def given_back(frame: DataFrame) -> None:
    stream, _ = through(frame)
    to_nowhere(stream.to_spark())


def mapped(frame: DataFrame) -> None:
    to_nowhere(frame.mapInArrow(all_alike, frame.schema))


def to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def rate(run: Callable[[DataFrame], None], frame: DataFrame, rows: int) -> float:
    started = time.perf_counter()
    run(frame)
    return rows / (time.perf_counter() - started)


def measure(rows: int | None, runs: int) -> list[Figure]:
    rows = rows or DEFAULT_ROWS
    frame = rows_of(SparkSession.builder.getOrCreate(), rows)
    ways = (dropped, given_back, mapped)
    for way in ways:  # Python workers, and Spark's compiler
        way(frame.limit(1000))
    done = [[rate(way, frame, rows) for way in ways] for _ in range(runs)]
    in_, both, peers = zip(*done, strict=True)
    settings = {"rows": rows, "columns": 4, "partitions": TASKMANAGERS, "peer": "mapInArrow"}
    return [
        Figure("from_spark", in_, "rows/s", peers, settings, "peer"),
        Figure("from_spark and to_spark", both, "rows/s", peers, settings, "peer"),
    ]
