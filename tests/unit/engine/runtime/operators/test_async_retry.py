"""Retry strategies. Expectations: PyFlink's async_retry_strategies, Flink's ExponentialBackoffDelayRetryStrategy."""

import pytest

from penstock.engine.runtime.operators.async_retry import AsyncRetryStrategy


def test_a_fixed_delay_allows_so_many_more_attempts():
    strategy = AsyncRetryStrategy.fixed_delay(2, 50)
    assert [strategy.can_retry(n) for n in (1, 2, 3)] == [True, True, False]
    assert strategy.get_backoff_time_millis(2) == 50


def test_exponential_delays_grow_up_to_the_largest():
    strategy = AsyncRetryStrategy.exponential_backoff(5, 100, 350, 2.0)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4)] == [100, 200, 350, 350]


def test_none_never_retries_and_predicates_are_handed_on():
    assert not AsyncRetryStrategy.no_restart().can_retry(1)
    predicate = AsyncRetryStrategy.fixed_delay(1, 1, len, callable).get_retry_predicate()
    assert (predicate.result_predicate(), predicate.exception_predicate()) == (len, callable)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AsyncRetryStrategy.fixed_delay(0, 1),
        lambda: AsyncRetryStrategy.fixed_delay(1, 0),
        lambda: AsyncRetryStrategy.exponential_backoff(1, 10, 5, 2.0),
        lambda: AsyncRetryStrategy.exponential_backoff(1, 10, 50, 0.5),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(ValueError, match="got"):
        make()
