"""Columns instead of objects: filter, key and window over Arrow record batches, without a Python object per record.

python examples/columns.py
"""

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.columns import avg, col, count
from penstock.datastream.window import TumblingEventTimeWindows

BIDS = [
    Row("lamp", 10, 1_000),
    Row("lamp", 30, 2_000),
    Row("vase", 4, 3_000),
    Row("lamp", 50, 11_000),
    Row("vase", 90, 12_000),
]
BID = Types.ROW_NAMED(["item", "price", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


def prices(env: StreamExecutionEnvironment) -> DataStream:
    """Item, start and end of ten seconds, bids and their average price, of bids of ten and more."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    return (
        env
        .from_collection(BIDS, BID)
        .assign_timestamps_and_watermarks(strategy)
        .filter(col("price") >= 10)
        .key_by(col("item"))
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .aggregate(count().alias("bids"), avg("price").alias("price"))
    )


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    prices(environment).print()
    environment.execute("prices by item")
