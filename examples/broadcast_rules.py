"""Rules that all subtasks know: payments are checked against limits that come as a stream of their own.

python examples/broadcast_rules.py
"""

from penstock.common import Types
from penstock.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor

PAYMENTS = [("ann", "food", 40), ("bob", "fuel", 90), ("ann", "fuel", 30), ("bob", "food", 10)]
LIMITS = [("food", 30), ("fuel", 80)]
RULES = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class Check(KeyedBroadcastProcessFunction):
    """Payments wait until the last rule is known; then each is judged."""

    def open(self, runtime_context):
        waiting = ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
        self.waiting = runtime_context.get_list_state(waiting)

    def process_element(self, value, ctx):
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(1)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)

    def on_timer(self, timestamp, ctx):
        limits = ctx.get_broadcast_state(RULES)
        for name, kind, amount in self.waiting.get():
            if amount > limits.get(kind):
                yield f"{name}: {amount} for {kind}, {limits.get(kind)} allowed"


def violations(env: StreamExecutionEnvironment) -> DataStream:
    rules = env.from_collection(LIMITS).broadcast(RULES)
    payments = env.from_collection(PAYMENTS).key_by(lambda payment: payment[0])
    return payments.connect(rules).process(Check())


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    violations(environment).print()
    environment.execute("limits")
