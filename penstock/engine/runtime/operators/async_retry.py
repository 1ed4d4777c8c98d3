"""When a call of an async function is repeated. No I/O; with PyFlink's names.

Source: pyflink.datastream.functions (AsyncRetryStrategy, AsyncRetryPredicate), async_retry_strategies; differs: the
exponential strategy keeps nothing between calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.parametrised import OfOne, X
from penstock.engine.model.setting_checks import check_whole

ResultPredicate: TypeAlias = Callable[[list[Any]], bool]
ExceptionPredicate: TypeAlias = Callable[[BaseException], bool]


class AsyncRetryPredicate(OfOne[X], ABC):
    """Decides which results and which errors lead to another attempt."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """Return `(results) -> whether to try again`; None: results never cause a retry."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """Return `(error) -> whether to try again`; None: errors never cause a retry."""


class AsyncRetryStrategy(OfOne[X], ABC):
    """Decides how often and after what delay an attempt is repeated. Attempts count from 1."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another attempt may follow this many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the delay before the next attempt in ms."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Return what decides whether an attempt is repeated."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """Return a strategy of one attempt."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        """Return a strategy of up to `max_attempts` retries, `backoff_time_millis` ms apart."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        """Return a strategy of at most `max_attempts` more attempts with growing delays.

        Delays (ms) start at `initial_delay` and grow by the factor `multiplier` up to
        `max_retry_delay`.
        """
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate):
    """Holds the two predicates, each a function or None."""

    def __init__(
        self,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy):
    """Allows one attempt."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return RetryPredicate()


class FixedDelayRetryStrategy(AsyncRetryStrategy):
    """Repeats an attempt after a fixed delay."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        _check(max_attempts, backoff_time_millis, "backoff_time_millis")
        self._max_attempts = max_attempts
        self._backoff_ms = backoff_time_millis
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_ms

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy):
    """Repeats an attempt after delays that grow."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        _check(max_attempts, initial_delay, "initial_delay")
        check_whole("max_retry_delay", max_retry_delay, initial_delay, "ms")
        if not multiplier >= 1:
            raise ConfigurationError(f"multiplier must be 1 or more, got {multiplier!r}.")
        self._max_attempts = max_attempts
        self._initial_ms = initial_delay
        self._max_ms = max_retry_delay
        self._multiplier = multiplier
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay = float(self._initial_ms)
        for _ in range(current_attempts - 1):
            delay = min(delay * self._multiplier, self._max_ms)
        return int(delay)

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return self._predicate


def _check(max_attempts: int, delay_ms: int, name: str) -> None:
    check_whole("max_attempts", max_attempts, 1)
    check_whole(name, delay_ms, 1, "ms")
