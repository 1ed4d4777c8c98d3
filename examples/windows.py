"""Windows of event time over visits to a shop: sums by ten seconds, sessions of each visitor, and who came too late.

python examples/windows.py
"""

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

# (visitor, cents spent, milliseconds)
VISITS = [
    ("ann", 300, 1_000),
    ("bob", 500, 4_000),
    ("ann", 200, 8_000),
    ("ann", 100, 31_000),
    ("bob", 700, 33_000),
]
VISIT = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
LATE = OutputTag("too late", VISIT)


class When(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Total(AggregateFunction):
    """Cents of a window, one by one as they come."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithBounds(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, next(iter(elements))


def visits(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    return env.from_collection(VISITS, VISIT).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(When())
    )


def sales(stream: DataStream) -> tuple[DataStream, DataStream]:
    """(visitor, start, end, cents) of ten seconds each, and visits that came after their window was over."""
    tens = (
        stream
        .key_by(lambda visit: visit[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .side_output_late_data(LATE)
        .aggregate(Total(), WithBounds())
    )
    return tens, tens.get_side_output(LATE)


def sessions(stream: DataStream) -> DataStream:
    """(visitor, start, end, cents) of visits without a break of fifteen seconds."""
    return (
        stream
        .key_by(lambda visit: visit[0])
        .window(EventTimeSessionWindows.with_gap(Time.seconds(15)))
        .aggregate(Total(), WithBounds())
    )


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    seen = visits(environment)
    by_tens, late = sales(seen)
    by_tens.print("ten seconds")
    late.print("too late")
    sessions(seen).print("session")
    environment.execute("sales")
