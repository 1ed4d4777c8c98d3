"""A BATCH job treats one key after the other: its records in the order of time, then its timers; then nothing of it is left.

Expectations: docs/spec/programs.md#batch; Flink's documentation of its execution modes, its
BatchExecutionInternalTimeService and BatchExecutionKeyedStateBackend.
"""

from itertools import groupby

import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK, NO_TIMESTAMP
from tests.tools.programs.environments import batch_environment, collected
from tests.tools.programs.user_functions import SecondIsTime, first_of

MIXED = [("a", 30), ("b", 5), ("a", 10), ("c", 7), ("b", 40), ("a", 20), ("c", 6)]
"""(key, time): no key's records come together, none's in the order of time."""

MEMORIES = pytest.mark.parametrize("memory", ["128 mb", "1 b"])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondIsTime())


def mixed(memory="128 mb", values=MIXED, env=None, *, is_timed=True, declared=None):
    env = env or batch_environment().set_parallelism(1)
    env.get_configuration().set_string("execution.sorted-inputs.memory", memory)
    stream = env.from_collection(values, PAIR).rebalance().map(lambda value: value, declared)
    return stream.assign_timestamps_and_watermarks(STRATEGY) if is_timed else stream


def by_key(found):
    """What came out for each key, in order; a key's results come together."""
    groups = [(key, [row[1:] for row in rows]) for key, rows in groupby(found, first_of)]
    assert len({key for key, _ in groups}) == len(groups), f"keys are mixed: {found}"
    return dict(groups)


def times_of(key):
    return sorted(time for its, time in MIXED if its == key)


class Watching(KeyedProcessFunction):
    """Tells all that it sees; timers beyond the records of all keys, and before them."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        self.count.update((self.count.value() or 0) + 1)
        service.register_event_time_timer(ctx.timestamp() + 100)
        service.register_event_time_timer(1)
        yield value[0], "record", ctx.timestamp(), service.current_watermark(), self.count.value()

    def on_timer(self, timestamp, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(timestamp + 1)  # nobody comes any more
        key = ctx.get_current_key()
        yield key, "timer", timestamp, service.current_watermark(), self.count.value()


@MEMORIES
@pytest.mark.parametrize("declared", [None, PAIR])
def test_timers_fire_when_their_key_ends_and_before_the_next_begins(memory, declared):
    found = by_key(collected(mixed(memory, declared=declared).key_by(first_of).process(Watching())))
    for key in "abc":
        times = times_of(key)
        assert found[key] == [
            *(("record", time, MIN_WATERMARK, n) for n, time in enumerate(times, 1)),
            *(
                ("timer", time, MAX_WATERMARK, len(times))
                for time in (1, *(t + 100 for t in times))
            ),
        ]


@MEMORIES
def test_all_subtasks_do_so(memory):
    values = [(str(number % 17), number * 7919 % 1000) for number in range(500)]
    stream = mixed(memory, values, batch_environment().set_parallelism(3))
    keyed = stream.key_by(first_of).process(Watching())
    found = collected(keyed.map(lambda row: row))
    for key in map(str, range(17)):
        its = [row[1:3] for row in found if row[0] == key]
        times = sorted(time for other, time in values if other == key)
        timers = [("timer", time) for time in (1, *sorted({t + 100 for t in times}))]
        assert its == [*(("record", time) for time in times), *timers]


class OfProcessingTime(KeyedProcessFunction):
    """Timers of both kinds; those of processing time an hour ahead."""

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 3_600_000)
        service.register_event_time_timer(50)
        service.register_event_time_timer(60)
        service.delete_event_time_timer(60)

    def on_timer(self, timestamp, ctx):
        ctx.timer_service().register_processing_time_timer(0)
        yield ctx.get_current_key(), ctx.time_domain().name, ctx.timer_service().current_watermark()


def test_timers_of_processing_time_fire_behind_those_of_event_time_of_the_same_key():
    one_each = [("a", 1), ("b", 2), ("c", 3)]
    found = by_key(collected(mixed(values=one_each).key_by(first_of).process(OfProcessingTime())))
    both = [("EVENT_TIME", MAX_WATERMARK), ("PROCESSING_TIME", MAX_WATERMARK)]
    assert found == {"a": both, "b": both, "c": both}


class Stamps(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK)
        yield value[0], "record"

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer"


class Stamped(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield *value, ctx.timestamp()


@pytest.mark.parametrize("is_timed", [False, True])
def test_results_have_the_time_of_their_record_or_timer(is_timed):
    results = mixed(is_timed=is_timed).key_by(first_of).process(Stamps())
    found = by_key(collected(results.key_by(first_of).process(Stamped())))
    for key in "abc":
        times = times_of(key)
        of_records = times if is_timed else [NO_TIMESTAMP] * len(times)
        assert found[key] == [*(("record", time) for time in of_records), ("timer", MAX_WATERMARK)]


class NoTimer(KeyedProcessFunction):
    """Sets timers, and has nothing to do when they fire."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        )

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
        self.seen.put(value[1], 1)
        return [(value[0], sorted(self.seen.keys()))]


@MEMORIES
def test_a_function_without_on_timer_sees_the_same_order(memory):
    found = by_key(collected(mixed(memory).key_by(first_of).process(NoTimer())))
    for key in "abc":
        times = times_of(key)
        assert found[key] == [(times[: n + 1],) for n in range(len(times))]


ASIDE = OutputTag("aside")


class Aside(Watching):
    def process_element(self, value, ctx):
        yield from ((ASIDE, row) for row in super().process_element(value, ctx))

    def on_timer(self, timestamp, ctx):
        yield from super().on_timer(timestamp, ctx)
        yield ASIDE, (ctx.get_current_key(), "timer", timestamp)


def test_side_outputs_are_in_the_same_order():
    env = batch_environment().set_parallelism(1)
    made = mixed(env=env).key_by(first_of).process(Aside())
    aside = made.get_side_output(ASIDE).map(lambda row: ("aside", *row))
    rows = collected(made.map(lambda row: ("main", *row)).union(aside))
    main = by_key([row[1:] for row in rows if row[0] == "main"])
    asides = by_key([row[1:] for row in rows if row[0] == "aside"])
    for key in "abc":
        times = times_of(key)
        timers = [1, *(time + 100 for time in times)]
        assert [row[:2] for row in main[key]] == [("timer", time) for time in timers]
        assert [row[:2] for row in asides[key]] == [
            *(("record", time) for time in times),
            *(("timer", time) for time in timers),
        ]


class Fails(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(7)

    def on_timer(self, timestamp, ctx):
        raise ZeroDivisionError("in a timer")


def test_what_a_timer_raises_is_no_records_fault():
    mixed().key_by(first_of).process(Fails()).print()
    stream = mixed().key_by(first_of).process(Fails())
    with pytest.raises(JobExecutionError, match="ZeroDivisionError: in a timer") as raised:
        collected(stream)
    assert "at record" not in str(raised.value)


class Numbered(MapFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value):
        self.count.update((self.count.value() or 0) + 1)
        return *value, self.count.value()


@MEMORIES
def test_map_filter_and_flat_map_on_keys_see_one_key_after_the_other(memory):
    keyed = mixed(memory).key_by(first_of)
    found = by_key(collected(keyed.map(Numbered())))
    assert found == {k: [(t, n) for n, t in enumerate(times_of(k), 1)] for k in "abc"}
    keyed = mixed(memory).key_by(first_of)
    assert by_key(collected(keyed.filter(lambda value: True))) == by_key(
        collected(mixed(memory).key_by(first_of).flat_map(lambda value: [value]))
    )


class Joined(ReduceFunction):
    """Counts in a state of its own; so it is not combined."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def reduce(self, value1, value2):
        self.count.update((self.count.value() or 0) + 1)
        return value1[0], value1[1] * 100 + value2[1], self.count.value()


@MEMORIES
def test_a_reduce_with_state_gives_each_key_once_in_the_order_of_time(memory):
    found = by_key(collected(mixed(memory).key_by(first_of).reduce(Joined())))
    assert found == {"a": [(102030, 2)], "b": [(540, 1)], "c": [(607, 1)]}


class Sides(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.STRING()))

    def _saw(self, side, value, ctx):
        self.seen.update((self.seen.value() or "") + side)
        ctx.timer_service().register_event_time_timer(99)
        yield value[0], ctx.timestamp(), ctx.timer_service().current_watermark(), self.seen.value()

    def process_element1(self, value, ctx):
        return self._saw("1", value, ctx)

    def process_element2(self, value, ctx):
        return self._saw("2", value, ctx)

    def on_timer(self, timestamp, ctx):
        key = ctx.get_current_key()
        yield key, timestamp, ctx.timer_service().current_watermark(), self.seen.value()


@MEMORIES
def test_two_keyed_inputs_are_read_key_after_key_in_the_order_of_time(memory):
    env = batch_environment().set_parallelism(1)
    left = mixed(memory, env=env).key_by(first_of)
    right = mixed(memory, [("c", 1), ("a", 15), ("d", 3), ("a", 25)], env).key_by(first_of)
    found = by_key(collected(left.connect(right).process(Sides())))
    assert found["a"] == [
        (10, MIN_WATERMARK, "1"),
        (15, MIN_WATERMARK, "12"),
        (20, MIN_WATERMARK, "121"),
        (25, MIN_WATERMARK, "1212"),
        (30, MIN_WATERMARK, "12121"),
        (99, MAX_WATERMARK, "12121"),
    ]
    assert [row[2] for row in found["c"]] == ["2", "21", "211", "211"]
    assert found["d"] == [(3, MIN_WATERMARK, "2"), (99, MAX_WATERMARK, "2")]
    assert [row[2] for row in found["b"]] == ["1", "11", "11"]


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left[0], left[1], right[1]


@MEMORIES
def test_an_interval_join_gives_the_pairs_of_one_key_after_the_other(memory):
    env = batch_environment().set_parallelism(1)
    left = mixed(memory, env=env).key_by(first_of)
    right = mixed(memory, [("b", 6), ("a", 12), ("b", 41), ("a", 9)], env).key_by(first_of)
    bounds = Time.milliseconds(-2), Time.milliseconds(2)
    found = by_key(collected(left.interval_join(right).between(*bounds).process(Pairs())))
    assert found == {"a": [(10, 9), (10, 12)], "b": [(5, 6), (40, 41)]}


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ruled(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield value[0], "record", ctx.timestamp(), ctx.current_watermark()

    def on_timer(self, timestamp, ctx):
        rules = sorted(ctx.get_broadcast_state(RULES).keys())
        yield ctx.get_current_key(), "timer", timestamp, ",".join(rules)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, 1)


@MEMORIES
def test_timers_of_a_key_see_all_that_is_broadcast(memory):
    env = batch_environment().set_parallelism(1)
    rules = env.from_collection(["x", "y"], Types.STRING()).broadcast(RULES)
    found = collected(mixed(memory, env=env).key_by(first_of).connect(rules).process(Ruled()))
    for key, rows in by_key(found).items():
        times = times_of(key)
        assert rows == [
            *(("record", time, MIN_WATERMARK) for time in times),
            *(("timer", time, "x,y") for time in times),
        ]


class Told(ProcessWindowFunction):
    """Of each window what is in it, the watermark, and which of its key it is."""

    def process(self, key, context, elements):
        state = context.global_state().get_state(ValueStateDescriptor("windows", Types.LONG()))
        state.update((state.value() or 0) + 1)
        yield key, context.window().start, sorted(t for _, t in elements), state.value()
        assert context.current_watermark() == MAX_WATERMARK

    def clear(self, context):
        """Nothing of the window's own is kept."""


def windows_of(key, size, slide):
    times = times_of(key)
    starts = range(-size, 50, 1)
    found = [
        (start, [time for time in times if start <= time < start + size])
        for start in starts
        if start % slide == 0
    ]
    filled = [(start, inside) for start, inside in found if inside]
    return [(*one, number) for number, one in enumerate(filled, 1)]


@MEMORIES
@pytest.mark.parametrize("trigger", [None, "general"])
@pytest.mark.parametrize(("size", "slide"), [(10, 10), (20, 5)])
def test_windows_fire_key_after_key_the_oldest_first(memory, trigger, size, slide):
    """In the fast engine, and in that for all windows."""
    length, step = Time.milliseconds(size), Time.milliseconds(slide)
    fixed = TumblingEventTimeWindows.of(length)
    windows = fixed if size == slide else SlidingEventTimeWindows.of(length, step)
    windowed = mixed(memory).key_by(first_of).window(windows)
    if trigger is not None:
        windowed = windowed.trigger(OnTime())
    found = by_key(collected(windowed.process(Told())))
    assert found == {key: windows_of(key, size, slide) for key in "abc"}


class InOrder(ProcessWindowFunction):
    """The elements as they come."""

    def process(self, key, context, elements):
        yield key, context.window().start, [time for _, time in elements]

    def clear(self, context):
        """Nothing is kept."""


@MEMORIES
def test_windows_of_many_keys_that_overlap_have_their_records_in_the_order_of_time(memory):
    values = [(str(number % 7), number * 7919 % 1000) for number in range(600)]
    windows = SlidingEventTimeWindows.of(Time.milliseconds(100), Time.milliseconds(30))
    found = by_key(
        collected(mixed(memory, values).key_by(first_of).window(windows).process(InOrder()))
    )
    for key in map(str, range(7)):
        times = sorted(time for other, time in values if other == key)
        inside = {s: [t for t in times if s <= t < s + 100] for s in range(-120, 1000, 30)}
        assert found[key] == [(start, of_it) for start, of_it in inside.items() if of_it]


class OnTime(EventTimeTrigger):
    """As the default, but not of its class: no engine may take it for that."""


@MEMORIES
def test_sessions_and_count_windows_end_with_their_key(memory):
    gap = EventTimeSessionWindows.with_gap(Time.milliseconds(15))
    sessions = mixed(memory).key_by(first_of).window(gap).process(Told())
    assert by_key(collected(sessions)) == {
        "a": [(10, [10, 20, 30], 1)],
        "b": [(5, [5], 1), (40, [40], 2)],
        "c": [(6, [6, 7], 1)],
    }
    counted = (
        mixed(memory)
        .key_by(first_of)
        .count_window(2)
        .reduce(lambda one, other: (one[0], one[1] * 100 + other[1]))
    )
    assert by_key(collected(counted)) == {"a": [(1020,)], "b": [(540,)], "c": [(607,)]}


@MEMORIES
def test_a_window_without_a_function_of_its_own_does_so_too(memory):
    windows = TumblingEventTimeWindows.of(Time.milliseconds(20))
    reduced = (
        mixed(memory)
        .key_by(first_of)
        .window(windows)
        .reduce(lambda one, other: (one[0], one[1] * 100 + other[1]))
    )
    assert by_key(collected(reduced)) == {
        "a": [(10,), (2030,)],
        "b": [(5,), (40,)],
        "c": [(607,)],
    }


class Sizes(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, len(list(elements)), context.current_watermark()

    def clear(self, context):
        """Nothing is kept."""


@MEMORIES
def test_a_trigger_that_counts_fires_while_its_key_is_read(memory):
    windows = TumblingEventTimeWindows.of(Time.milliseconds(100))
    windowed = mixed(memory).key_by(first_of).window(windows).trigger(CountTrigger.of(2))
    found = by_key(collected(windowed.process(Sizes())))
    assert found == {
        "a": [(2, MIN_WATERMARK)],
        "b": [(2, MIN_WATERMARK)],
        "c": [(2, MIN_WATERMARK)],
    }


@MEMORIES
def test_two_streams_in_one_window_are_joined_key_after_key(memory):
    env = batch_environment().set_parallelism(1)
    left = mixed(memory, env=env)
    right = mixed(memory, [("b", 6), ("a", 12), ("b", 41), ("a", 39), ("z", 1)], env)
    joined = left.join(right).where(first_of).equal_to(first_of)
    windows = TumblingEventTimeWindows.of(Time.milliseconds(10))
    found = by_key(
        collected(joined.window(windows).apply(lambda one, other: (one[0], one[1], other[1])))
    )
    assert found == {"a": [(10, 12), (30, 39)], "b": [(5, 6), (40, 41)]}


@MEMORIES
def test_what_has_no_state_of_keys_reads_a_keyed_stream_as_it_comes(memory):
    found = collected(mixed(memory).key_by(first_of))
    assert sorted(tuple(row) for row in found) == sorted((value[0], value) for value in MIXED)
