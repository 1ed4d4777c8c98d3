"""Which advertisement led to which order: clicks joined with orders of the same visitor up to ten seconds later.

python examples/interval_join.py
"""

from penstock.common import Time, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, ProcessJoinFunction, StreamExecutionEnvironment

# (visitor, what, milliseconds)
CLICKS = [("ann", "red banner", 1_000), ("bob", "mail", 2_000), ("ann", "blue banner", 20_000)]
ORDERS = [("ann", "shoes", 7_000), ("bob", "hat", 30_000), ("ann", "socks", 21_000)]


class When(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Led(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield f"{left[0]}: {left[1]} -> {right[1]} after {right[2] - left[2]} ms"


def led(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(When())
    clicks = env.from_collection(CLICKS).assign_timestamps_and_watermarks(strategy)
    orders = env.from_collection(ORDERS).assign_timestamps_and_watermarks(strategy)
    by_visitor = clicks.key_by(lambda click: click[0])
    return (
        by_visitor
        .interval_join(orders.key_by(lambda order: order[0]))
        .between(Time.milliseconds(0), Time.seconds(10))
        .process(Led())
    )


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    led(environment).print()
    environment.execute("what led to orders")
