"""Rules that all subtasks know: payments are checked against the limits of their time, which come as a stream of their own.

python examples/broadcast_rules.py
"""

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor

# Time in ms, who, what for, how much.
PAYMENTS = [
    (1_000, "ann", "food", 40),
    (2_000, "bob", "fuel", 90),
    (3_000, "ann", "fuel", 30),
    (4_000, "bob", "food", 10),
]
# From when on, what for, how much is allowed.
LIMITS = [(0, "food", 30), (0, "fuel", 80)]
RULES = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class TimeFirst(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0]


class Check(KeyedBroadcastProcessFunction):
    """A payment waits until the watermark of both streams has reached its time: then all rules of its time are known."""

    def open(self, runtime_context):
        waiting = ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
        self.waiting = runtime_context.get_list_state(waiting)

    def process_element(self, value, ctx):
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def process_broadcast_element(self, value, ctx):
        _, kind, limit = value
        ctx.get_broadcast_state(RULES).put(kind, limit)

    def on_timer(self, timestamp, ctx):
        limits = ctx.get_broadcast_state(RULES)
        later = []
        for payment in self.waiting.get():
            at_ms, name, kind, amount = payment
            if at_ms > timestamp:
                later.append(payment)
            elif amount > limits.get(kind):
                # What on_timer emits has the time of the timer: here that of the payment.
                yield f"{name}: {amount} for {kind}, {limits.get(kind)} allowed"
        self.waiting.update(later)


def violations(env: StreamExecutionEnvironment) -> DataStream:
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeFirst())
    rules = env.from_collection(LIMITS).assign_timestamps_and_watermarks(in_order)
    payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(in_order)
    keyed = payments.key_by(lambda payment: payment[1])
    return keyed.connect(rules.broadcast(RULES)).process(Check())


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    violations(environment).print()
    environment.execute("limits")
