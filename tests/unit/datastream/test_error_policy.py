"""Every kind of operator with a function of the user puts poison records aside as `on_error` says, and goes on behind them."""

import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    AsyncDataStream,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ReduceFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.engine.model.errors import UserCodeError
from tests.tools.programs.poison import DIRTY, POISON, POISON_COUNT, key, over, run, with_letters

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


def tens(first, second):
    return first[0], first[1] + 0 * over(second) + second[1]


class Process(ProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)


class ReturningProcess(ProcessFunction):
    def process_element(self, value, ctx):
        return [over(value)]


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)


class BothMaps(CoMapFunction):
    def map1(self, value):
        return over(value)

    def map2(self, value):
        return over(value)


class BothFlatMaps(CoFlatMapFunction):
    def flat_map1(self, value):
        yield over(value)

    def flat_map2(self, value):
        return [over(value)]


class BothProcesses(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield over(value)

    def process_element2(self, value, ctx):
        yield over(value)


class BothKeyedProcesses(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield over(value)

    def process_element2(self, value, ctx):
        yield over(value)


class Broadcast(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)

    def process_broadcast_element(self, value, ctx):
        yield over(value)


class KeyedBroadcast(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield over(value)

    def process_broadcast_element(self, value, ctx):
        yield over(value)


class StatefulReduce(ReduceFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def reduce(self, value1, value2):
        return tens(value1, value2)


class Stamps(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return over(value)


async def asks(value):
    return [over(value)]


def generated(value):
    yield over(value)


def many(value):
    """More results for a record than fit one batch."""
    over(value)
    yield from range(1500)


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + over(value)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


TEN = Duration.of_millis(10)
TUMBLING = TumblingEventTimeWindows.of(TEN)
SLIDING = SlidingEventTimeWindows.of(TEN, Duration.of_millis(5))
SESSIONS = EventTimeSessionWindows.with_gap(TEN)


PURE = {
    "map": lambda ds: ds.map(over),
    "flat_map": lambda ds: ds.flat_map(lambda v: [over(v)]),
    "flat_map of a generator": lambda ds: ds.flat_map(generated),
    "flat_map with many results": lambda ds: ds.flat_map(many),
    "flat_map of an iterator": lambda ds: ds.flat_map(lambda v: iter([over(v)])),
    "filter": lambda ds: ds.filter(over),
    "process": lambda ds: ds.process(Process()),
    "process that returns": lambda ds: ds.process(ReturningProcess()),
    "keyed map": lambda ds: ds.key_by(key).map(over),
    "keyed flat_map": lambda ds: ds.key_by(key).flat_map(lambda v: [over(v)]),
    "keyed filter": lambda ds: ds.key_by(key).filter(over),
    "keyed process": lambda ds: ds.key_by(key).process(KeyedProcess()),
    "reduce": lambda ds: ds.key_by(key).reduce(tens),
    "reduce with state": lambda ds: ds.key_by(key).reduce(StatefulReduce()),
    "async, ordered": lambda ds: AsyncDataStream.ordered_wait(ds, asks, Time.seconds(5)),
    "async, unordered": lambda ds: AsyncDataStream.unordered_wait(ds, asks, Time.seconds(5)),
    "co map": lambda ds: ds.connect(nothing(ds)).map(BothMaps()),
    "co flat_map": lambda ds: ds.connect(nothing(ds)).flat_map(BothFlatMaps()),
    "co process": lambda ds: ds.connect(nothing(ds)).process(BothProcesses()),
    "keyed co process": lambda ds: both_keyed(ds).process(BothKeyedProcesses()),
    "keyed co map": lambda ds: both_keyed(ds).map(BothMaps()),
    "keyed co flat_map": lambda ds: both_keyed(ds).flat_map(BothFlatMaps()),
    "broadcast": lambda ds: ds.connect(nothing(ds).broadcast(RULES)).process(Broadcast()),
    "keyed broadcast": lambda ds: (
        ds.key_by(key).connect(nothing(ds).broadcast(RULES)).process(KeyedBroadcast())
    ),
    "broadcast side": lambda ds: nothing(ds).connect(ds.broadcast(RULES)).process(Broadcast()),
    "keyed broadcast side": lambda ds: (
        nothing(ds).key_by(key).connect(ds.broadcast(RULES)).process(KeyedBroadcast())
    ),
}
"""Operators whose results need no times."""

TIMED = {
    "window reduce": lambda ds: ds.key_by(key).window(TUMBLING).reduce(tens),
    "window aggregate": lambda ds: ds.key_by(key).window(TUMBLING).aggregate(Total()),
    "session reduce": lambda ds: ds.key_by(key).window(SESSIONS).reduce(tens),
    "session aggregate": lambda ds: ds.key_by(key).window(SESSIONS).aggregate(Total()),
    "window of all": lambda ds: ds.window_all(TUMBLING).aggregate(Total()),
    "timestamps": lambda ds: ds.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamps())
    ),
}
"""Operators whose records have times, and whose results come at the end."""


def nothing(ds):
    return ds.filter(lambda _: False)


def both_keyed(ds):
    return ds.key_by(key).connect(nothing(ds).key_by(key))


def cases():
    for name, make in PURE.items():
        yield pytest.param(make, None, id=name)
        yield pytest.param(make, list(range(len(DIRTY))), id=f"{name}, with times")
    for name, make in TIMED.items():
        yield pytest.param(make, list(range(len(DIRTY))), id=name)


@pytest.mark.parametrize("in_one_batch", [True, False], ids=["a batch", "one by one"])
@pytest.mark.parametrize(("make", "stamps"), list(cases()))
def test_results_are_those_of_the_good_records_and_letters_have_the_others(
    make, stamps, in_one_batch
):
    good = [place for place, value in enumerate(DIRTY) if value != POISON]
    good_stamps = None if stamps is None else [stamps[place] for place in good]
    clean = [DIRTY[place] for place in good]
    expected, _, none = run(make, clean, good_stamps, in_one_batch=in_one_batch)
    assert expected and none == 0

    results, letters, count = run(with_letters(make), DIRTY, stamps, in_one_batch=in_one_batch)
    assert sorted(results) == sorted(expected)
    assert [one.record for one in letters] == [POISON] * POISON_COUNT
    assert {one.error_class for one in letters} == {"ZeroDivisionError"}
    at = (
        [None] * count
        if stamps is None
        else [stamps[i] for i, v in enumerate(DIRTY) if v == POISON]
    )
    assert [one.timestamp for one in letters] == at
    assert all(", in over\n" in one.traceback for one in letters)
    assert count == POISON_COUNT

    results, _, count = run(
        lambda ds: make(ds).on_error("skip"), DIRTY, stamps, in_one_batch=in_one_batch
    )
    assert (sorted(results), count) == (sorted(expected), POISON_COUNT)


@pytest.mark.parametrize(("make", "stamps"), list(cases()))
def test_without_a_policy_the_poison_record_fails_the_job(make, stamps):
    for build in (make, lambda ds: make(ds).on_error("fail")):
        with pytest.raises(UserCodeError, match="ZeroDivisionError"):
            run(build, DIRTY, stamps, in_one_batch=True)
