"""DataFrames in and out on real Spark. Expectations: Spark SQL's own answers on the same data, and plain Python."""

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from penstock.common import Duration, RestartStrategies, Row, Time, Types
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.columns import col, count, sum_
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import GraphError, JobExecutionError
from tests.spark.programs import LINES, environment

pytestmark = pytest.mark.spark
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, dt.UTC)
WIDE = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f FLOAT, d DOUBLE, s STRING, x BINARY, dec DECIMAL(12,3), "
    "day DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, a ARRAY<DECIMAL(5,1)>, m MAP<STRING, TIMESTAMP>, "
    "st STRUCT<p: INT, q: ARRAY<STRUCT<r: STRING>>>"
)
FULL = (
    True, -1, 300, -70000, 1 << 60, 1.5, 0.1, "Straße", b"\0x", Decimal("123456789.125"), NOON.date(), NOON,
    NOON.replace(tzinfo=None), [Decimal("1.5"), None], {"k": NOON, "l": None}, (7, [("z",), None]),
)  # fmt: skip


def env_in(mode, parallelism=2, **settings):
    return environment(parallelism, **settings).set_runtime_mode(RuntimeExecutionMode[mode])


def wide_frame(spark):
    return spark.createDataFrame([FULL, tuple([None] * len(FULL))], WIDE)


def as_python(row):
    """What a function sees, as nested plain values with their types said."""
    return [repr(value) for value in row]


class Seen:
    """Returns each Row as it came, or as a tuple, after a look at it."""

    def __init__(self, as_tuple) -> None:
        self.as_tuple = as_tuple

    def __call__(self, row):
        assert isinstance(row, Row)
        if row["b"] is not None:
            assert row[3] == row.i32 == -70000
            assert (row.ts, row.ts.tzinfo) == (NOON, dt.UTC)
            assert (row.ntz, row.ntz.tzinfo) == (NOON.replace(tzinfo=None), None)
            assert row.a == [Decimal("1.5"), None]
            assert row.m == {"k": NOON, "l": None}
            assert row.st.q == [Row(r="z"), None]
            assert repr(row.dec) == "Decimal('123456789.125')"
            _, _, _, fourth, *_ = row
            assert fourth == -70000
        else:
            assert list(row) == [None] * 16
        return tuple(row) if self.as_tuple else row


@pytest.mark.parametrize("mode", ["BATCH", pytest.param("STREAMING", marks=pytest.mark.long)])
def test_every_type_goes_through_a_function_and_comes_back(spark, mode):
    frame = wide_frame(spark)
    stream = env_in(mode).from_spark(frame)
    back = stream.map(Seen(as_tuple=mode == "BATCH"), stream.get_type()).to_spark()
    assert back.dtypes == frame.dtypes
    assert Counter(map(repr, back.collect())) == Counter(map(repr, frame.collect()))


def test_a_word_count_is_spark_sqls(spark):
    lines = spark.createDataFrame([(line,) for line in LINES], "line STRING")
    expected = (
        lines.select(F.explode(F.split("line", r"\s+")).alias("word")).groupBy("word").count()
    )
    pair = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
    words = (
        env_in("BATCH", 3)
        .from_spark(lines)
        .flat_map(lambda row: [(word, 1) for word in row.line.split()], pair)
    )
    counts = words.key_by(lambda row: row.word).reduce(lambda a, b: Row(a[0], a[1] + b[1]))
    counts.to_spark("counts")
    found = spark.sql("SELECT word, count FROM counts")
    assert Counter(found.collect()) == Counter(expected.collect())


def orders_of(spark, rows=2000):
    shop = (F.col("id") * 7 % 5).cast("int").alias("shop")
    at = F.timestamp_millis(F.lit(1_700_000_000_000) + F.col("id") * 1700).alias("at")
    amount = (F.col("id") % 100).cast("decimal(10,2)").alias("amount")
    return spark.range(0, rows, 1, 4).select("id", shop, at, amount)


def test_a_windowed_aggregate_on_columns_is_spark_sqls(spark):
    orders = orders_of(spark).select("id", "shop", "at")
    window = F.window("at", "1 minute")
    expected = orders.groupBy("shop", window.start.alias("begin")).agg(
        F.count("*").alias("orders"), F.sum("id").alias("total")
    )
    stream = env_in("BATCH").from_spark(orders, timestamp_column="at")
    sums = (
        stream
        .key_by(col("shop"))
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .aggregate(count().alias("orders"), sum_("id").alias("total"))
    )
    kind = Types.ROW_NAMED(
        ["shop", "window_start", "orders", "total"],
        [Types.INT(), Types.LONG(), Types.LONG(), Types.LONG()],
    )
    found = sums.to_spark(output_type=kind)
    told = found.select(
        "shop", F.timestamp_millis("window_start").alias("begin"), "orders", "total"
    )
    assert Counter(told.collect()) == Counter(expected.collect())


def test_a_join_is_spark_sqls(spark):
    orders = orders_of(spark, 300).select("id", "shop", "amount")
    shops = spark.createDataFrame([(i, f"shop {i}") for i in range(4)], "shop INT, name STRING")
    expected = orders.join(shops, "shop").select("id", "name", "amount")
    env = env_in("BATCH")
    kind = Types.ROW_NAMED(
        ["id", "name", "amount"], [Types.LONG(), Types.STRING(), Types.DECIMAL(10, 2)]
    )
    joined = (
        env
        .from_spark(orders.withColumn("t", F.lit(0).cast("bigint")), timestamp_column="t")
        .join(env.from_spark(shops.withColumn("t", F.lit(0).cast("bigint")), timestamp_column="t"))
        .where(lambda order: order.shop)
        .equal_to(lambda shop: shop.shop)
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .apply(lambda order, shop: (order.id, shop.name, order.amount), kind)
    )
    assert Counter(joined.to_spark().collect()) == Counter(expected.collect())


def test_nothing_runs_before_spark_needs_it_and_other_streams_stay_for_execute(spark, tmp_path):
    env = env_in("BATCH")
    mark = tmp_path / "ran"

    def touch(row):
        mark.touch()
        return row

    stream = env.from_spark(spark.range(10))
    stream.map(lambda row: row.id).print()
    frame = stream.map(touch, stream.get_type()).to_spark()
    assert frame.columns == ["id"]
    assert not mark.exists()
    assert frame.agg(F.sum("id")).first()[0] == 45
    assert mark.exists()
    env.execute("the rest")


def test_a_failing_function_names_itself_in_sparks_error(spark):
    stream = env_in("BATCH").from_spark(spark.range(3))
    frame = stream.map(
        lambda row: (1 // row.id,), Types.ROW_NAMED(["x"], [Types.LONG()])
    ).to_spark()
    with pytest.raises(Exception, match="ZeroDivisionError") as failed:
        frame.collect()
    assert "at record:   Row(id=0)" in str(failed.value)


def test_a_time_that_is_missing_and_a_column_that_has_none_are_refused(spark):
    env = env_in("BATCH")
    frame = spark.createDataFrame([(1, NOON), (2, None)], "k INT, at TIMESTAMP")
    with pytest.raises(
        GraphError, match="timestamp_column is 'when', but the DataFrame's columns are"
    ):
        env.from_spark(frame, timestamp_column="when")
    with pytest.raises(GraphError, match="the timestamp column 'k' is of type Integer"):
        env.from_spark(frame, timestamp_column="k")
    with pytest.raises(GraphError, match="a watermark needs event times"):
        env.from_spark(frame, watermark=Duration.of_seconds(1))
    with pytest.raises(TypeError, match="from_spark takes a DataFrame"):
        env.from_spark([1, 2])
    late = env.from_spark(frame, timestamp_column="at")
    with pytest.raises(JobExecutionError, match="timestamp column 'at' is NULL in"):
        list(late.execute_and_collect())


# ---------------------------------------------------------------------- streaming


class KillsItsExecutor:
    """The first time that it sees its number: the executor that computes the partition."""

    def __init__(self, mark, number) -> None:
        self.mark = Path(mark)
        self.number = number

    def __call__(self, row):
        if row[0] == self.number and not self.mark.exists():
            self.mark.touch()
            above = psutil.Process().parents()
            next(one for one in above if "CoarseGrained" in " ".join(one.cmdline())).kill()
        return row


ROWS = 6_000


def shuffled(frame, how):
    if how == "groupBy":
        return frame.groupBy("id").agg(F.max("v").alias("v"))
    return frame.repartition(5) if how == "repartition" else frame


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("repartition", marks=pytest.mark.long),
        pytest.param("groupBy", marks=pytest.mark.long),
        pytest.param("as it is", marks=pytest.mark.long),
    ],
)
def test_an_executor_that_dies_while_it_feeds_loses_and_doubles_nothing(
    spark_cluster, tmp_path, how
):
    spark = spark_cluster
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark.conf.set(BATCH_ROWS, "100")
    mixed = (F.col("id") * 7 % ROWS).alias("id")  # each number once
    numbers = spark.range(0, ROWS, 1, 3).select(mixed).withColumn("v", F.col("id") * 3)
    mark = tmp_path / "killed"
    fed = shuffled(numbers, how).rdd.map(KillsItsExecutor(mark, ROWS // 2))
    frame = spark.createDataFrame(fed, "id BIGINT, v BIGINT", verifySchema=False)
    env = env_in("STREAMING")
    env.enable_checkpointing(100)
    stream = env.from_spark(frame).rebalance().map(lambda row: (row.id, row.v))
    with stream.execute_and_collect() as found:
        results = Counter(found)
    assert mark.exists()
    assert results == Counter((i, 3 * i) for i in range(ROWS))


@pytest.mark.long
def test_a_thousand_partitions_are_read_by_two_subtasks_in_flat_memory(spark):
    from tests.spark.processes import taskmanagers

    spark.conf.set(BATCH_ROWS, "10000")
    rows, partitions = 8_000_000, 1000
    frame = spark.range(0, rows, 1, partitions).selectExpr("id", "id + 1 a", "id + 2 b", "id + 3 c")
    env = env_in("STREAMING")
    sums = env.from_spark(frame).map_batches(
        summed, Types.ROW_NAMED(["n", "total"], [Types.LONG(), Types.LONG()])
    )
    seen, peak = [0, 0], []
    with sums.execute_and_collect() as found:
        for number, (n, total) in enumerate(found):
            seen = [seen[0] + n, seen[1] + total]
            if number % 100 == 0:
                peak.append(max(one.memory_info().rss for one in taskmanagers()))
    assert seen == [rows, sum(range(rows))]
    assert max(peak[len(peak) // 2 :]) < max(peak[: len(peak) // 2]) + (32 << 20)


def summed(batch):
    import pyarrow as pa
    import pyarrow.compute as pc

    total = pc.sum(batch.column("id")).as_py() or 0
    return pa.record_batch({"n": pa.array([batch.num_rows]), "total": pa.array([total])})


@pytest.mark.long
def test_watermarks_and_a_streaming_result_as_a_view(spark):
    orders = orders_of(spark, 500).coalesce(1)
    stream = env_in("STREAMING").from_spark(orders, "at", Duration.of_seconds(1))
    kind = Types.ROW_NAMED(["shop", "n"], [Types.INT(), Types.LONG()])
    counts = (
        stream
        .map(lambda row: (row.shop, 1), kind)
        .key_by(lambda row: row.shop)
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .reduce(lambda a, b: Row(a[0], a[1] + b[1]))
    )
    counts.to_spark("window_counts", output_type=kind)
    found = spark.sql("SELECT shop, SUM(n) n FROM window_counts GROUP BY shop")
    assert Counter(found.collect()) == Counter(SparkRow(shop=shop, n=100) for shop in range(5))


class FailsOnce:
    """When it sees its number the first time."""

    def __init__(self, mark, number) -> None:
        self.mark = Path(mark)
        self.number = number

    def __call__(self, row):
        if row.id == self.number and not self.mark.exists():
            self.mark.touch()
            raise ValueError("once")
        return row.id


@pytest.mark.long
@pytest.mark.parametrize("how", ["repartition", "as it is"])
def test_a_restart_reads_on_from_the_checkpoints_positions(spark, tmp_path, how):
    spark.conf.set(BATCH_ROWS, "50")
    frame = shuffled(spark.range(0, ROWS, 1, 3), how)
    env = env_in("STREAMING").use_executor(MiniCluster(slots_per_taskmanager=2).executor())
    env.enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    mark = tmp_path / "failed"
    stream = env.from_spark(frame).map(FailsOnce(mark, ROWS * 2 // 3))
    with stream.execute_and_collect() as found:
        results = Counter(found)
    assert mark.exists()
    assert results == Counter(range(ROWS))


def test_a_partition_that_spark_cannot_compute_fails_the_job_with_sparks_words(spark):
    broken = spark.range(10).selectExpr("IF(id < 5, id, raise_error('too large')) AS id")
    env = env_in("STREAMING").use_executor(MiniCluster().executor())
    env.from_spark(broken).print()
    with pytest.raises(JobExecutionError, match=r"(?s)Spark has given up partition .*too large"):
        env.execute("broken")


ODD = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.STRING()])


def with_half_a_pair(mode):
    """One of five texts has no columns."""
    numbers = env_in(mode, 1).from_collection(range(5))
    return numbers.map(lambda n: Row(n=n, v="cut \ud83d" if n == 3 else "fine"), ODD).name("Texts")


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
@pytest.mark.usefixtures("spark")
def test_a_record_that_has_no_columns_is_skipped_where_its_operator_skips(mode):
    frame = with_half_a_pair(mode).on_error("skip").to_spark()
    assert sorted(row.n for row in frame.collect()) == [0, 1, 2, 4]


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
@pytest.mark.usefixtures("spark")
def test_a_record_that_has_no_columns_is_named_with_its_field_and_the_line(mode):
    stream = with_half_a_pair(mode)
    with pytest.raises(Exception, match="DataFrame") as raised:
        stream.to_spark().collect()
    text = str(raised.value)
    for part in ("n=3", "field 'v'", "test_dataframes.py"):
        assert part in text
