"""AsyncCallThreads: coroutines on a loop, plain functions on a pool, outcomes as mails. Real threads, no sleeping."""

import asyncio
import queue
import threading

import pytest

from penstock.engine.hosting.taskmanager.task.async_calls import AsyncCallThreads

WAIT_S = 30


class Calling:
    """Runs the mails of one AsyncCallThreads by hand."""

    def __init__(self, function, capacity=4):
        self.mails = queue.SimpleQueue()
        self.outcomes = {}
        self.mail_count = 0
        self.calls = AsyncCallThreads(self.mails.put, "calls")
        self.calls.open(function, self._take, capacity)

    def _take(self, outcomes):
        self.outcomes.update({outcome.number: outcome for outcome in outcomes})

    def until(self, count):
        while len(self.outcomes) < count:
            self.mails.get(timeout=WAIT_S)()
            self.mail_count += 1
        return self.outcomes


async def double(value):
    await asyncio.sleep(0)
    return [value * 2]


def plain_double(value):
    return [value * 2]


@pytest.mark.parametrize("function", [double, plain_double])
def test_every_call_has_one_outcome(function):
    calling = Calling(function)
    calling.calls.submit([(number, number) for number in range(50)])
    outcomes = calling.until(50)
    assert [outcomes[number].result for number in range(50)] == [[n * 2] for n in range(50)]
    assert calling.mail_count <= 50
    calling.calls.close()


def test_coroutines_run_at_the_same_time_on_one_thread_that_is_not_the_callers():
    everybody = asyncio.Event()
    arrived = []

    async def meet(value):
        arrived.append(threading.get_ident())
        if len(arrived) == 3:
            everybody.set()
        await everybody.wait()
        return [value]

    calling = Calling(meet)
    calling.calls.submit([(1, "a"), (2, "b"), (3, "c")])
    calling.until(3)
    assert len(set(arrived)) == 1
    assert threading.get_ident() not in arrived
    calling.calls.close()


def test_plain_functions_run_at_the_same_time_on_several_threads():
    barrier = threading.Barrier(3, timeout=WAIT_S)

    def meet(value):
        barrier.wait()
        return [value]

    calling = Calling(meet, capacity=3)
    calling.calls.submit([(1, "a"), (2, "b"), (3, "c")])
    assert all(outcome.error is None for outcome in calling.until(3).values())
    calling.calls.close()


async def fails(value):
    raise ValueError(value)


def plain_fails(value):
    raise ValueError(value)


@pytest.mark.parametrize("function", [fails, plain_fails])
def test_an_error_is_an_outcome_whose_traceback_begins_in_the_users_function(function):
    calling = Calling(function)
    calling.calls.submit([(1, "x")])
    error = calling.until(1)[1].error
    assert isinstance(error, ValueError)
    assert error.__traceback__.tb_frame.f_code.co_name == function.__name__
    calling.calls.close()


def test_a_cancelled_coroutine_has_no_outcome():
    is_cancelled = threading.Event()
    never = asyncio.Event()

    async def waits(value):
        if value == "quick":
            return []
        try:
            await never.wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    calling = Calling(waits)
    calling.calls.submit([(1, "slow"), (2, "quick")])
    calling.until(1)
    calling.calls.cancel(1)
    assert is_cancelled.wait(WAIT_S)
    calling.calls.submit([(3, "quick")])
    assert set(calling.until(2)) == {2, 3}
    calling.calls.close()


def test_close_cancels_what_runs_and_ends_the_thread():
    has_started = threading.Event()
    ended = []

    async def waits(value):
        has_started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(value)

    calling = Calling(waits)
    calling.calls.submit([(1, "a")])
    assert has_started.wait(WAIT_S)
    calling.calls.close()
    assert ended == ["a"]
    assert calling.mails.empty()
    calling.calls.close()


def test_a_plain_function_that_returns_a_coroutine_is_told_to_be_async():
    def starts(value):
        return double(value)

    calling = Calling(starts)
    calling.calls.submit([(1, 1)])
    with pytest.raises(TypeError, match="async def"):
        raise calling.until(1)[1].error
    calling.calls.close()


class KnowsEven:
    """Knows the results of even numbers, waits for those of odd ones, and fails at 13."""

    def __init__(self):
        self.waited = []

    def results_now(self, value):
        if value == 13:
            raise ValueError("thirteen")
        return None if value % 2 else [value]

    async def async_invoke(self, value):
        self.waited.append(value)
        await asyncio.sleep(0)
        return [-value]


def test_what_a_function_knows_without_waiting_is_one_mail_and_no_call():
    function = KnowsEven()
    calling = Calling(function.async_invoke, capacity=100)
    calling.calls.submit([(number, number) for number in range(0, 40, 2)])
    outcomes = calling.until(20)
    assert [outcomes[number].result for number in range(0, 40, 2)] == [[n] for n in range(0, 40, 2)]
    assert (calling.mail_count, function.waited) == (1, [])
    calling.calls.close()


def test_the_others_wait_and_an_error_is_that_of_its_call_alone():
    function = KnowsEven()
    calling = Calling(function.async_invoke, capacity=100)
    calling.calls.submit([(number, number) for number in (11, 12, 13, 14, 15)])
    outcomes = calling.until(5)
    assert [outcomes[number].result for number in (11, 12, 14, 15)] == [[-11], [12], [14], [-15]]
    assert isinstance(outcomes[13].error, ValueError)
    assert function.waited == [11, 15]
    calling.calls.close()
