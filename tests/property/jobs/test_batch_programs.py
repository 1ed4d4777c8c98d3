"""Runtime mode BATCH gives the final results of the same program, whatever the parallelism and the chains, key after key."""

from collections import Counter
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import KeyedCoProcessFunction, StreamExchangeMode
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK
from tests.property.jobs.test_job_graphs import RECORDS, SETTINGS, add, at, counted, meaning, plans
from tests.tools.programs.environments import batch_environment
from tests.tools.programs.user_functions import SecondIsTime, ValueIsTime

AUTO = "execution.batch.adaptive.auto-parallelism"


def bounded_environment(memory, volume, default):
    """`volume`: bytes for each subtask of what sets no parallelism; None: that is `default`."""
    env = batch_environment(settings={"execution.sorted-inputs.memory": memory})
    configuration = env.get_configuration()
    if volume is None:
        return env.set_parallelism(default)
    configuration.set_string(f"{AUTO}.avg-data-volume-per-task", volume)
    configuration.set_string(f"{AUTO}.max-parallelism", "5")
    return env


def run(plan, records, setting, memory, volume):
    env = bounded_environment(memory, volume, setting.parallelisms[-1])
    if not setting.is_chaining:
        env.disable_operator_chaining()
    open_ones = setting.blocking if volume is not None else [False] * len(setting.blocking)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())
    streams = []
    for values, parallelism in zip(records, setting.parallelisms, strict=False):
        declared = Types.LONG() if setting.is_typed else None
        stream = env.from_collection(values, Types.LONG())
        spread = at(
            stream.rebalance().map(lambda v: v, declared), None if open_ones[0] else parallelism
        )
        streams.append(spread.assign_timestamps_and_watermarks(strategy))
    for step, parallelism, is_open in zip(plan, setting.parallelisms[2:], open_ones, strict=False):
        wanted = None if is_open else parallelism
        streams += add(step, streams, setting, StreamExchangeMode.UNDEFINED, wanted)
    numbered = [
        stream.map(lambda value, number=number: (number, value))
        for number, stream in enumerate(streams)
    ]
    with numbered[0].union(*numbered[1:]).execute_and_collect() as found:
        return Counter(found)


MEMORIES = st.sampled_from(["1 b", "500 b", "128 mb"])
VOLUMES = st.sampled_from([None, "1 b", "300 b", "16 mb"])


@given(plans(), SETTINGS, st.tuples(RECORDS, RECORDS), MEMORIES, VOLUMES)
def test_a_random_program_gives_the_same_results_in_batch_mode(
    plan, setting, records, memory, volume
):
    """However little memory there is for what has to be sorted, and whoever decides the parallelism."""
    streams = [Counter((value, value) for value in values) for values in records]
    for step in plan:
        streams += meaning(step, streams)
    expected = counted(
        ((i, v), n) for i, found in enumerate(streams) for (v, _), n in found.items()
    )
    assert run(plan, records, setting, memory, volume) == expected


@given(RECORDS, st.integers(1, 3), st.booleans(), MEMORIES, VOLUMES)
def test_a_reduce_in_the_order_of_time_gives_what_one_loop_gives(
    values, parallelism, is_timed, memory, volume
):
    """Concatenation is associative, and tells the order; without times that is nobody's, so that only the pieces count."""
    env = bounded_environment(memory, volume, parallelism)
    stream = env.from_collection([str(value) for value in values], Types.STRING()).rebalance()
    spread = stream.map(lambda text: (len(text), text))
    if is_timed:
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        spread = spread.assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(ByNumber())
        )
    reduced = spread.key_by(lambda pair: pair[0]).reduce(joined)
    with reduced.execute_and_collect() as found:
        results = dict(found)
    expected = {}
    for text in [str(value) for value in sorted(values)]:
        expected.setdefault(len(text), []).append(text)
    if is_timed:
        assert results == {length: " ".join(texts) for length, texts in expected.items()}
    else:
        pieces = {length: sorted(text.split()) for length, text in results.items()}
        assert pieces == {length: sorted(texts) for length, texts in expected.items()}


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(value[1])


def joined(left, right):
    return left[0], f"{left[1]} {right[1]}"


class Watching(KeyedCoProcessFunction):
    """Tells all it sees: its subtask, the key, what happens, the time, the watermark, how many records the key has had."""

    def __init__(self, offsets):
        self.offsets = offsets

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def _saw(self, ctx, what):
        key, watermark = ctx.get_current_key(), ctx.timer_service().current_watermark()
        return self.subtask, key, what, ctx.timestamp(), watermark, self.count.value()

    def process_element1(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        for offset in self.offsets:
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + offset)
        yield self._saw(ctx, "record")

    def process_element2(self, value, ctx):
        return self.process_element1(value, ctx)

    def on_timer(self, timestamp, ctx):
        ctx.timer_service().register_event_time_timer(timestamp + 1)
        yield self._saw(ctx, "timer")


def seen_of(times, offsets):
    """What `Watching` sees of a key, but for its subtask and the key."""
    timers = sorted({time + offset for time in times for offset in offsets})
    return [
        *(("record", time, MIN_WATERMARK, n) for n, time in enumerate(sorted(times), 1)),
        *(("timer", time, MAX_WATERMARK, len(times)) for time in timers),
    ]


TIMED = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), max_size=30)
OFFSETS = st.lists(st.integers(-60, 60), max_size=3)
SUBTASKS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(TIMED, TIMED, OFFSETS, SUBTASKS, st.booleans(), MEMORIES)
def test_keys_come_one_after_the_other_and_their_timers_before_the_next(
    left, right, offsets, subtasks, is_typed, memory
):
    """Over two inputs, in whatever order their records come, and however little memory there is."""
    env = bounded_environment(memory, None, subtasks[0])
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondIsTime())
    sides = []
    for values in (left, right):
        stream = env.from_collection(values, pair).rebalance()
        spread = stream.map(lambda value: value, pair if is_typed else None)
        stamped = spread.set_parallelism(subtasks[1]).assign_timestamps_and_watermarks(strategy)
        sides.append(stamped.key_by(lambda value: value[0], Types.LONG()))
    with sides[0].connect(sides[1]).process(Watching(offsets)).execute_and_collect() as found:
        rows = list(found)
    for subtask in range(subtasks[0]):
        keys = [key for key, _ in groupby(row[1] for row in rows if row[0] == subtask)]
        assert len(set(keys)) == len(keys)
    times = {}
    for key, time in (*left, *right):
        times.setdefault(key, []).append(time)
    expected = {key: seen_of(of_it, offsets) for key, of_it in times.items()}
    assert {key: [row[2:] for row in rows if row[1] == key] for key in times} == expected
    assert {row[1] for row in rows} == set(times)
