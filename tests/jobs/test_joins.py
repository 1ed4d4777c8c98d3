"""Joins as a user writes them, run in threads of this process. Expectations:
docs/spec/windows.md#evictors, #window-joins, #interval-join.
"""

from operator import itemgetter

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
)
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import GraphError
from tests.tools.programs.environments import collected_in_order, minicluster_environment


class Last(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[-1]


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Last())
LEFT = [("a", 1, 0), ("b", 2, 3), ("a", 3, 12)]
RIGHT = [("a", "x", 5), ("c", "y", 6), ("a", "z", 13)]
WINDOW = TumblingEventTimeWindows.of(Duration.of_millis(10))


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2))


@pytest.fixture
def streams(env):
    return [
        env.from_collection(rows).assign_timestamps_and_watermarks(IN_ORDER)
        for rows in (LEFT, RIGHT)
    ]


def named(joined):
    return joined.where(itemgetter(0)).equal_to(itemgetter(0)).window(WINDOW)


class Opened(JoinFunction):
    def open(self, runtime_context):
        self.prefix = runtime_context.get_task_name()[:5]

    def join(self, first, second):
        return self.prefix, first[1], second[1]


class Repeated(FlatJoinFunction):
    def join(self, first, second):
        for _ in range(first[1]):
            yield second[1]


class Sizes(CoGroupFunction):
    def co_group(self, first, second):
        yield len(first), len(second)


class Near(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left[1], right[1], ctx.get_left_timestamp() - ctx.get_right_timestamp()


def test_a_window_join_takes_a_lambda_or_a_function_object(streams):
    left, right = streams
    assert collected_in_order(named(left.join(right)).apply(lambda a, b: (a[1], b[1]))) == [
        (1, "x"),
        (3, "z"),
    ]


def test_a_join_function_is_opened_and_a_flat_one_gives_any_number(streams):
    left, right = streams
    opened = named(left.join(right)).apply(Opened(), Types.PICKLED_BYTE_ARRAY())
    assert [result[1:] for result in collected_in_order(opened)] == [(1, "x"), (3, "z")]
    assert collected_in_order(named(left.join(right)).apply(Repeated())) == ["x", "z", "z", "z"]


def test_co_group_calls_also_for_one_side(streams):
    left, right = streams
    assert collected_in_order(named(left.co_group(right)).apply(Sizes())) == [
        (0, 1),
        (1, 0),
        (1, 1),
        (1, 1),
    ]


def test_a_stream_can_be_joined_with_itself(streams):
    left, _ = streams
    assert collected_in_order(named(left.join(left)).apply(lambda a, b: (a[1], b[1]))) == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_an_interval_join_gives_near_pairs(streams):
    left, right = (stream.key_by(itemgetter(0)) for stream in streams)
    near = left.interval_join(right).between(Duration.of_millis(0), Duration.of_millis(5))
    assert collected_in_order(near.process(Near())) == [(1, "x", -5), (3, "z", -1)]
    near = (
        left
        .interval_join(right)
        .between(Duration.of_millis(0), Duration.of_millis(5))
        .upper_bound_exclusive()
    )
    assert collected_in_order(near.process(Near())) == [(3, "z", -1)]


def test_late_records_of_an_interval_join_are_side_outputs(env):
    late = OutputTag("late")
    left = env.from_collection(LEFT).assign_timestamps_and_watermarks(IN_ORDER)
    right = env.from_collection(RIGHT).assign_timestamps_and_watermarks(IN_ORDER)
    joined = (
        left
        .key_by(itemgetter(0))
        .interval_join(right.key_by(itemgetter(0)))
        .between(Duration.of_millis(0), Duration.of_millis(5))
        .side_output_left_late_data(late)
        .process(Near())
    )
    assert collected_in_order(joined.get_side_output(late)) == []


def test_windows_take_evictors_also_under_reduce(env):
    numbers = env.from_collection([("a", n) for n in range(1, 7)])
    windowed = numbers.key_by(itemgetter(0)).window(GlobalWindows.create())
    windowed = windowed.trigger(CountTrigger.of(2)).evictor(CountEvictor.of(3))
    assert collected_in_order(windowed.reduce(lambda a, b: (a[0], a[1] + b[1]))) == [
        ("a", 3),
        ("a", 9),
        ("a", 15),
    ]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value]

    def get_result(self, accumulator):
        return sum(accumulator) / len(accumulator)

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Described(AllWindowFunction):
    def apply(self, window, inputs):
        yield type(window).__name__, list(inputs)


def test_an_evictor_works_under_aggregate_and_on_whole_streams(env):
    numbers = env.from_collection(list(range(1, 7))).set_parallelism(1)
    windowed = numbers.window_all(GlobalWindows.create()).trigger(CountTrigger.of(3))
    means = windowed.evictor(CountEvictor.of(2)).aggregate(Mean(), Described())
    assert collected_in_order(means) == [("GlobalWindow", [2.5]), ("GlobalWindow", [5.5])]
    windowed = numbers.window_all(GlobalWindows.create()).trigger(CountTrigger.of(3))
    after = windowed.evictor(CountEvictor.of(2, True)).apply(Described())
    assert collected_in_order(after) == [
        ("GlobalWindow", [1, 2, 3]),
        ("GlobalWindow", [2, 3, 4, 5, 6]),
    ]
    with pytest.raises(TypeError, match="Evictor"):
        windowed.evictor(2)


def test_what_cannot_work_is_refused_where_it_is_written(env, streams):
    left, right = streams
    with pytest.raises(GraphError, match="lower bound"):
        left.key_by(itemgetter(0)).interval_join(right.key_by(itemgetter(0))).between(
            Duration.of_millis(3), Duration.of_millis(2)
        )
    with pytest.raises(TypeError, match="key_by"):
        left.key_by(itemgetter(0)).interval_join(right)
    where = left.join(right).where(itemgetter(0), Types.INT())
    with pytest.raises(GraphError, match="do not match"):
        where.equal_to(itemgetter(0), Types.LONG())
    with pytest.raises(TypeError, match="WindowAssigner"):
        left.join(right).where(itemgetter(0)).equal_to(itemgetter(0)).window(10)
    session = left.join(right).where(itemgetter(0)).equal_to(itemgetter(0))
    with pytest.raises(TypeError, match="JoinFunction"):
        session.window(EventTimeSessionWindows.with_gap(Duration.of_millis(5))).apply(3)
