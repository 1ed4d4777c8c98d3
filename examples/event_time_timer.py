"""Machines that have gone quiet: an event-time timer says so when a machine has not been heard for ten seconds.

python examples/event_time_timer.py
"""

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

QUIET_MS = 10_000

# (machine, milliseconds since the epoch)
SIGNS = [
    ("press", 1_000),
    ("lathe", 2_000),
    ("lathe", 8_000),
    ("press", 9_000),
    ("press", 18_000),
]


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Quiet(KeyedProcessFunction):
    """One timer for each sign of life; only that of the last one finds nothing newer."""

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("last sign", Types.LONG())
        self.last = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        self.last.update(max(ctx.timestamp(), self.last.value() or 0))  # they may come in any order
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + QUIET_MS)

    def on_timer(self, timestamp, ctx):
        if timestamp == self.last.value() + QUIET_MS:
            yield f"{ctx.get_current_key()} is quiet since {self.last.value()}"


def alarms(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    signs = env.from_collection(SIGNS).assign_timestamps_and_watermarks(strategy)
    return signs.key_by(lambda sign: sign[0]).process(Quiet(), Types.STRING())


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    alarms(environment).print()
    environment.execute("quiet machines")
