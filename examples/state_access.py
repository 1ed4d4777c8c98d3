"""Keyed state: the average of each sensor's last three values, and the largest value so far.

python examples/state_access.py
"""

from penstock.common import Row, Time, Types
from penstock.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, StateTtlConfig, ValueStateDescriptor

READINGS = [
    ("attic", 20.0),
    ("cellar", 12.0),
    ("attic", 22.0),
    ("attic", 27.0),
    ("attic", 29.0),
    ("cellar", 11.0),
]
RESULT = Types.ROW_NAMED(
    ["sensor", "average", "largest"], [Types.STRING(), Types.DOUBLE(), Types.DOUBLE()]
)
KEPT = 3


class Smoothed(KeyedProcessFunction):
    """Values that nobody has asked for in a day are forgotten."""

    def open(self, runtime_context):
        recent = ListStateDescriptor("recent values", Types.DOUBLE())
        recent.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        self.recent = runtime_context.get_list_state(recent)
        self.largest = runtime_context.get_state(ValueStateDescriptor("largest", Types.DOUBLE()))

    def process_element(self, value, ctx):
        recent = [*self.recent.get(), value[1]][-KEPT:]
        self.recent.update(recent)
        largest = max(value[1], self.largest.value() or value[1])
        self.largest.update(largest)
        yield Row(value[0], sum(recent) / len(recent), largest)


def smoothed(env: StreamExecutionEnvironment) -> DataStream:
    readings = env.from_collection(READINGS, Types.TUPLE([Types.STRING(), Types.DOUBLE()]))
    return readings.key_by(lambda reading: reading[0]).process(Smoothed(), RESULT)


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    smoothed(environment).print()
    environment.execute("smoothed readings")
