"""Whole jobs whose records have keys of many classes. Expectations: Python's `==` for two values of one class."""

from dataclasses import dataclass

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


def of_a_class_made_anew(number):
    """Each call makes another class of this name; two objects of them are not equal."""

    @dataclass(frozen=True)
    class Made:
        number: int

    return Made(number)


class InOneMap(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.put(of_a_class_made_anew(1), value)
        yield value


BUILDS = {
    "state": lambda keyed: keyed.process(Members()),
    "reduce": lambda keyed: keyed.reduce(lambda one, other: one),
    "sum": lambda keyed: keyed.sum(1),
}


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("mode", [STREAMING, BATCH])
@pytest.mark.parametrize("is_nested", [False, True])
def test_two_classes_of_one_name_are_not_one_key(name, mode, is_nested):
    def key_of(_record):
        made = of_a_class_made_anew(1)
        return ("a", [made]) if is_nested else made

    def build(env):
        records = env.from_collection([("a", 1), ("b", 2)])
        return BUILDS[name](records.key_by(key_of))

    with pytest.raises(
        Exception, match=r"Made is not the class of this name.*outside of functions"
    ):
        run(build, mode, "hashmap")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_nor_are_they_one_key_of_a_map_state(backend):
    def build(env):
        return env.from_collection(["a", "b"]).key_by(lambda _value: "one").process(InOneMap())

    with pytest.raises(Exception, match=r"'seen' needs a key.*Made is not the class of this name"):
        run(build, STREAMING, backend)


def test_one_class_made_within_a_function_may_be_of_keys():
    kind = type(of_a_class_made_anew(1))

    def build(env):
        records = env.from_collection([1, 2, 1])
        return records.key_by(kind).map(lambda value: value)

    assert sorted(run(build, STREAMING, "hashmap")) == [1, 1, 2]
