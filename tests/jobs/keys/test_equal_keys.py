"""Whole jobs whose records have keys of many classes. Expectations: Python's `==` for two values of one class."""

import pytest

from penstock.common import Configuration
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.testing import CollectingSink, MiniCluster
from tests.tools.runtime.key_values import VALUES, Caseless, are_one_key

STREAMING, BATCH = RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH


class Members(KeyedProcessFunction):
    """For each record of (key, number): the numbers of its key so far, by value state and by map state."""

    def open(self, runtime_context):
        self.numbers = runtime_context.get_state(ValueStateDescriptor("numbers"))
        self.by_key = runtime_context.get_map_state(MapStateDescriptor("by key"))

    def process_element(self, value, ctx):
        key, number = value
        self.numbers.update([*(self.numbers.value() or []), number])
        self.by_key.put(key, [*(self.by_key.get(key) or []), number])
        ctx.timer_service().register_event_time_timer(1)
        yield "record", self.numbers.value(), list(self.by_key.values())

    def on_timer(self, timestamp, ctx):
        yield "timer", self.numbers.value(), [ctx.get_current_key()]


def run(build, mode, backend):
    configuration = Configuration.from_dict({"state.backend.type": backend})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.set_runtime_mode(mode)
    env.use_executor(MiniCluster().executor())
    sink = CollectingSink()
    build(env).sink_to(sink)
    env.execute()
    return sink.values


@pytest.mark.parametrize(
    ("mode", "backend"), [(STREAMING, "hashmap"), (STREAMING, "rocksdb"), (BATCH, "hashmap")]
)
def test_records_of_equal_keys_meet_and_others_do_not(mode, backend):
    def build(env):
        records = env.from_collection(list(range(len(VALUES)))).rebalance()
        keyed = records.map(lambda number: (VALUES[number], number)).key_by(lambda pair: pair[0])
        return keyed.process(Members())

    found = run(build, mode, backend)
    groups = {}
    for number, value in enumerate(VALUES):
        first = next(place for place, other in enumerate(VALUES) if are_one_key(other, value))
        groups.setdefault(first, set()).add(number)
    timers = {min(numbers): set(numbers) for kind, numbers, _ in found if kind == "timer"}
    assert timers == groups
    assert all(
        any(are_one_key(key, VALUES[number]) for number in numbers)
        for kind, numbers, (key, *_) in found
        if kind == "timer"
    )
    assert all(entries == [numbers] for kind, numbers, entries in found if kind == "record")


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_a_key_that_gives_no_bytes_is_refused_with_its_record(mode):
    def build(env):
        records = env.from_collection(["a", "b"])
        return records.key_by(Caseless).map(str)

    with pytest.raises(Exception, match=r"key_by, built at .*record 'a'.*Caseless has an __eq__"):
        run(build, mode, "hashmap")
