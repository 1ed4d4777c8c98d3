"""Joins and async functions in TaskManagers that are processes of their own."""

import asyncio

import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import AsyncDataStream, AsyncFunction, JoinFunction, ProcessJoinFunction
from penstock.datastream.window import TumblingEventTimeWindows
from tests.spark.programs import environment

pytestmark = pytest.mark.spark
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
MANY = 2000


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Doubled(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0)
        return [(value[0], value[1], 2 * value[1])]


class Stamps(JoinFunction):
    def join(self, first, second):
        return first[1], second[1], second[2]


class Distance(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield ctx.get_right_timestamp() - ctx.get_left_timestamp()


def key_of(value):
    return value[0]


def numbers(env, step):
    """(key, timestamp), in order."""
    values = [(n % 7, n) for n in range(0, MANY, step)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(values, PAIR).assign_timestamps_and_watermarks(strategy)


def test_a_window_join_behind_an_async_function_gives_every_pair_once(spark):
    env = environment(2)
    looked_up = AsyncDataStream.unordered_wait(numbers(env, 3), Doubled(), Time.seconds(30), 50)
    window = TumblingEventTimeWindows.of(Duration.of_millis(100))
    joined = numbers(env, 2).join(looked_up).where(key_of).equal_to(key_of).window(window)
    with joined.apply(Stamps()).execute_and_collect("join") as results:
        found = sorted(results)
    assert found == sorted(
        (left, right, 2 * right)
        for left in range(0, MANY, 2)
        for right in range(0, MANY, 3)
        if left % 7 == right % 7 and left // 100 == right // 100
    )


def test_an_interval_join_gives_every_pair_within_its_bounds(spark):
    env = environment(2)
    left, right = numbers(env, 2).key_by(key_of), numbers(env, 3).key_by(key_of)
    near = (
        left
        .interval_join(right)
        .between(Duration.of_millis(-10), Duration.of_millis(20))
        .process(Distance())
    )
    with near.execute_and_collect("interval join") as results:
        found = sorted(results)
    assert found == sorted(
        b - a
        for a in range(0, MANY, 2)
        for b in range(max(0, a - 12), min(MANY, a + 23))
        if b % 3 == 0 and a % 7 == b % 7 and -10 <= b - a <= 20
    )
