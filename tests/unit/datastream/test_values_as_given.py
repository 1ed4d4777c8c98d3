"""Every method of the API takes the code that it gets as it is at the call. Source: PyFlink, which pickles it there."""

import threading

import pytest

from penstock.common import Duration, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    AsyncDataStream,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.model.errors import GraphError
from penstock.testing import CollectingSink, MiniCluster

AMOUNT = 0
NAMED = {"amount": 0}


class Later:
    """Base of the functions below. `now` returns the value that the program changes after the call."""

    def __init__(self, now):
        self.now = now


class Map(Later, MapFunction):
    def map(self, value):
        return self.now()


class Process(Later, ProcessFunction):
    def process_element(self, value, ctx):
        yield self.now()


class Keyed(Later, KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield self.now()


class Key(Later, KeySelector):
    def get_key(self, value):
        return self.now()


class Aggregate(Later, AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return self.now()

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a


class Window(Later, ProcessWindowFunction):
    def process(self, key, context, elements):
        yield self.now()


class Apply(Later, WindowFunction):
    def apply(self, key, window, inputs):
        return [self.now()]


class AllWindow(Later, ProcessAllWindowFunction):
    def process(self, context, elements):
        yield self.now()


class CoMap(Later, CoMapFunction):
    def map1(self, value):
        return self.now()

    map2 = map1


class CoFlatMap(Later, CoFlatMapFunction):
    def flat_map1(self, value):
        yield self.now()

    flat_map2 = flat_map1


class CoProcess(Later, CoProcessFunction):
    def process_element1(self, value, ctx):
        yield self.now()

    process_element2 = process_element1


class KeyedCoProcess(Later, KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield self.now()

    process_element2 = process_element1


class Broadcast(Later, BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield self.now()

    def process_broadcast_element(self, value, ctx):
        yield self.now()


class Joined(Later, ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield self.now()


class Stamp(Later, TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return self.now()


class TimeOf(ProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.timestamp()


class KeyOf(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key()


class Channel(Later, Partitioner):
    def partition(self, key, channels):
        return self.now()


class Subtask(MapFunction):
    def open(self, runtime_context):
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.index


def one(env):
    return env.from_collection([7])


def timed(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    return one(env).assign_timestamps_and_watermarks(strategy)


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


def seven(_value):
    return 7


def windowed(stream):
    return stream.window(TumblingEventTimeWindows.of(Duration.of_millis(10)))


def asynchronous(env, now):
    async def called(value):
        return [now()]

    return AsyncDataStream.ordered_wait(one(env), called, Duration.of_seconds(30))


def stamped(now):
    return WatermarkStrategy.no_watermarks().with_timestamp_assigner(Stamp(now))


METHODS = {
    "map": lambda env, now: one(env).map(lambda _value: now()),
    "map of a MapFunction": lambda env, now: one(env).map(Map(now)),
    "flat_map": lambda env, now: one(env).flat_map(lambda _value: [now()]),
    "filter": lambda env, now: env.from_collection([1, 2]).filter(lambda n: n == now()),
    "process": lambda env, now: one(env).process(Process(now)),
    "key_by": lambda env, now: one(env).key_by(lambda _value: now()).process(KeyOf()),
    "key_by of a KeySelector": lambda env, now: one(env).key_by(Key(now)).process(KeyOf()),
    "keyed process": lambda env, now: one(env).key_by(seven).process(Keyed(now)),
    "reduce": lambda env, now: (
        env
        .from_collection([7, 7])
        .key_by(seven)
        .reduce(lambda _a, _b: now())
        .filter(lambda n: n != 7)
    ),
    "window aggregate": lambda env, now: windowed(timed(env).key_by(seven)).aggregate(
        Aggregate(now)
    ),
    "window process": lambda env, now: windowed(timed(env).key_by(seven)).process(Window(now)),
    "window_all process": lambda env, now: (
        timed(env)
        .window_all(TumblingEventTimeWindows.of(Duration.of_millis(10)))
        .process(AllWindow(now))
    ),
    "window apply": lambda env, now: (
        env.from_collection([7]).key_by(seven).count_window(1).apply(Apply(now))
    ),
    "connect map": lambda env, now: one(env).connect(env.from_collection([])).map(CoMap(now)),
    "connect flat_map": lambda env, now: (
        one(env).connect(env.from_collection([])).flat_map(CoFlatMap(now))
    ),
    "connect process": lambda env, now: (
        one(env).connect(env.from_collection([])).process(CoProcess(now))
    ),
    "keyed connect": lambda env, now: (
        one(env).connect(env.from_collection([])).key_by(seven, seven).process(KeyedCoProcess(now))
    ),
    "broadcast": lambda env, now: (
        one(env)
        .connect(env.from_collection([]).broadcast(MapStateDescriptor("all")))
        .process(Broadcast(now))
    ),
    "join": lambda env, now: (
        timed(env)
        .join(timed(env))
        .where(seven)
        .equal_to(seven)
        .window(TumblingEventTimeWindows.of(Duration.of_millis(10)))
        .apply(lambda _left, _right: now())
    ),
    "interval_join": lambda env, now: (
        timed(env)
        .key_by(seven)
        .interval_join(timed(env).key_by(seven))
        .between(Duration.of_millis(-1), Duration.of_millis(1))
        .process(Joined(now))
    ),
    "asynchronous": asynchronous,
    "timestamps": lambda env, now: (
        one(env).assign_timestamps_and_watermarks(stamped(now)).process(TimeOf())
    ),
    "partition_custom": lambda env, now: (
        one(env)
        .partition_custom(lambda _key, _channels: now(), seven)
        .map(Subtask())
        .set_parallelism(2)
    ),
    "partition_custom of a Partitioner": lambda env, now: (
        one(env).partition_custom(Channel(now), seven).map(Subtask()).set_parallelism(2)
    ),
    "source": lambda env, now: env.from_source(
        DataGeneratorSource(lambda _n: now(), 1), WatermarkStrategy.no_watermarks(), "source"
    ),
    "watermarks of a source": lambda env, now: env.from_source(
        DataGeneratorSource(seven, 1), stamped(now), "source"
    ).process(TimeOf()),
}


def closure():
    amount = 1

    def change(to):
        nonlocal amount
        amount = to

    return lambda: amount, change


def variable():
    def change(to):
        globals()["AMOUNT"] = to

    change(1)
    return lambda: AMOUNT, change


def mutable_global():
    NAMED["amount"] = 1
    return lambda: NAMED["amount"], lambda to: NAMED.update(amount=to)


def attribute():
    class Amount:
        value = 0

        def __call__(self):
            return self.value

    amount = Amount()
    amount.value = 1
    return amount, lambda to: setattr(amount, "value", to)


def global_of_a_class():
    class Amount:
        def __call__(self):
            return AMOUNT

    globals()["AMOUNT"] = 1
    return Amount(), lambda to: globals().update(AMOUNT=to)


@pytest.mark.parametrize(
    "changing", [closure, variable, mutable_global, attribute, global_of_a_class]
)
def test_what_changes_after_the_call_does_not_reach_the_function(changing):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.use_executor(MiniCluster().executor())
    now, change = changing()
    streams = []
    for name, method in METHODS.items():
        change(1)
        first = method(env, now).map(lambda found, name=name: (name, found))
        change(0)
        second = method(env, now).map(lambda found, name=f"{name}, again": (name, found))
        streams += [first, second]
    change(9)
    sink = CollectingSink()
    streams[0].union(*streams[1:]).sink_to(sink)
    env.execute()
    assert set(sink.values) >= {(name, 1) for name in METHODS}
    again = {(f"{name}, again", 0) for name in METHODS if name != "filter"}  # It lets nothing pass.
    assert set(sink.values) == {(name, 1) for name in METHODS} | again


def test_the_selectors_of_a_join_are_as_they_were_in_where_and_equal_to():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.use_executor(MiniCluster().executor())
    pairs = env.from_collection([(1, 2)]).assign_timestamps_and_watermarks(stamped(lambda: 0))
    place = 0
    where = pairs.join(pairs).where(lambda pair: pair[place])
    place = 1
    equal_to = where.equal_to(lambda pair: pair[place] - 1)
    place = 2
    window = equal_to.window(TumblingEventTimeWindows.of(Duration.of_millis(10)))
    sink = CollectingSink()
    window.apply(lambda left, right: (left, right)).sink_to(sink)
    env.execute()
    assert sink.values == [((1, 2), (1, 2))]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda stream, lock: stream.map(lambda value: (lock, value)), "operator 'Map'"),
        (lambda stream, lock: stream.key_by(lambda value: (lock, value)), "the key selector"),
        (
            lambda stream, lock: stream.partition_custom(lambda key, n: lock, lambda value: value),
            "the partitioner",
        ),
    ],
)
def test_what_cannot_be_pickled_is_refused_at_the_call(call, what):
    stream = one(StreamExecutionEnvironment.get_execution_environment())
    with pytest.raises(
        GraphError,
        match=rf"{what}, built at .*test_values_as_given.py:\d+, cannot be sent.*open\(\)",
    ):
        call(stream, threading.Lock())
