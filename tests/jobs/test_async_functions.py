"""Async functions through whole jobs, run in threads of this process."""

import asyncio
import threading

import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy
from penstock.datastream.async_retry_predicates import (
    empty_result_predicate,
    has_exception_predicate,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import ValueIsTime

ATTEMPTS = {}
HAS_ENTERED, HAS_LEFT = threading.Event(), threading.Event()
LONG = Time.seconds(60)


class Squares(AsyncFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    async def async_invoke(self, value):
        await asyncio.sleep(0.001 * (value % 3))
        return [value * value]


class Repeats(AsyncFunction):
    async def async_invoke(self, value):
        return [value] * value


class Fails(AsyncFunction):
    async def async_invoke(self, value):
        if value == 13:
            raise RuntimeError("no such thirteen")
        return [value]


class Flaky(AsyncFunction):
    """Each value succeeds at its third attempt: an error, an empty list, the result."""

    async def async_invoke(self, value):
        ATTEMPTS[value] = ATTEMPTS.get(value, 0) + 1
        if ATTEMPTS[value] == 1:
            raise OSError("try again")
        return [] if ATTEMPTS[value] == 2 else [value]


class Hangs(AsyncFunction):
    async def async_invoke(self, value):
        if value % 2:
            await asyncio.Event().wait()
        return [value]

    def timeout(self, value):
        return [-value]


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2))


def test_ordered_results_are_in_order_whatever_the_calls_take(env):
    env.set_parallelism(1)
    numbers = env.from_collection(list(range(200)))
    squares = AsyncDataStream.ordered_wait(numbers, Squares(), LONG, 7, Types.LONG())
    assert collected(squares) == [n * n for n in range(200)]


def test_unordered_results_are_complete_also_with_a_capacity_of_one(env):
    numbers = env.from_collection(list(range(300)))
    assert sorted(collected(AsyncDataStream.unordered_wait(numbers, Squares(), LONG))) == [
        n * n for n in range(300)
    ]
    repeats = AsyncDataStream.unordered_wait(env.from_collection([0, 1, 2, 3]), Repeats(), LONG, 1)
    assert sorted(collected(repeats)) == [1, 2, 2, 3, 3, 3]


def test_plain_functions_run_on_threads(env):
    def where(value):
        return [(value, threading.current_thread().name)]

    found = collected(AsyncDataStream.ordered_wait(env.from_collection([1, 2, 3]), where, LONG))
    assert sorted(value for value, _ in found) == [1, 2, 3]
    assert all("async" in name for _, name in found)


def test_event_time_stays_right_behind_an_unordered_function(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())
    numbers = env.from_collection(list(range(500))).assign_timestamps_and_watermarks(strategy)
    passed = AsyncDataStream.unordered_wait(numbers, Repeats(), LONG, 20)
    late_free = (
        passed
        .map(lambda n: (n // 100, 1))
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Duration.of_millis(100)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    assert sorted(collected(late_free)) == [
        (hundred, sum(range(hundred * 100, hundred * 100 + 100))) for hundred in range(5)
    ]


def test_errors_and_empty_results_are_tried_again_as_the_strategy_says(env):
    ATTEMPTS.clear()
    strategy = AsyncRetryStrategy.fixed_delay(3, 5, empty_result_predicate, has_exception_predicate)
    numbers = env.from_collection([1, 2, 3])
    got = collected(AsyncDataStream.ordered_wait_with_retry(numbers, Flaky(), LONG, strategy))
    assert sorted(got) == [1, 2, 3]
    assert ATTEMPTS == {1: 3, 2: 3, 3: 3}


def test_calls_that_hang_give_what_timeout_gives(env):
    numbers = env.from_collection(list(range(6)))
    got = collected(AsyncDataStream.unordered_wait(numbers, Hangs(), Time.milliseconds(50), 3))
    assert sorted(got) == [-5, -3, -1, 0, 2, 4]


class Waits(AsyncFunction):
    async def async_invoke(self, value):
        HAS_ENTERED.set()
        try:
            await asyncio.Event().wait()
        finally:
            HAS_LEFT.set()


def test_a_job_is_cancelled_while_calls_are_under_way(env):
    numbers = env.from_collection(list(range(1000)))
    AsyncDataStream.ordered_wait(numbers, Waits(), LONG, 3).print()
    client = env.execute_async("waits")
    assert HAS_ENTERED.wait(60)
    client.cancel().result()
    assert client.get_job_status().result().name == "CANCELED"
    assert HAS_LEFT.wait(60)


def test_a_users_error_names_operator_record_and_line(env):
    numbers = env.from_collection([12, 13])
    failing = AsyncDataStream.ordered_wait(numbers, Fails(), LONG)
    with pytest.raises(JobExecutionError) as caught:
        collected(failing)
    text = str(caught.value)
    assert "no such thirteen" in text
    assert "in operator: async wait operator" in text
    assert "at record:   13" in text
    assert "test_async_functions.py" in text
    assert "async_calls.py" not in text


def test_what_is_no_function_or_strategy_is_refused(env):
    numbers = env.from_collection([1])
    with pytest.raises(TypeError, match="AsyncFunction"):
        AsyncDataStream.ordered_wait(numbers, 3, LONG)
    with pytest.raises(TypeError, match="AsyncRetryStrategy"):
        AsyncDataStream.ordered_wait_with_retry(numbers, Fails(), LONG, 3)
    with pytest.raises(TypeError, match="DataStream"):
        AsyncDataStream.ordered_wait([1], Fails(), LONG)
    with pytest.raises(ValueError, match="capacity"):
        AsyncDataStream.ordered_wait(numbers, Fails(), LONG, 0)
