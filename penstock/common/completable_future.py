"""CompletableFuture: a result that may not be there yet. Uses no thread.

Source: pyflink.common.completable_future; differs: `fetch` waits for the result when a caller asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """The result of an operation that may not be complete yet.

    Args:
        fetch: `fetch(timeout_s)` returns the result or raises the failure; TimeoutError: not yet.
    """

    def __init__(self, fetch: Callable[[float | None], T]) -> None:
        self._fetch = fetch
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_done = False
        self._is_cancelled = False

    @classmethod
    def completed(cls, value: T) -> CompletableFuture[T]:
        """Return a future that has this result."""
        return cls(lambda _timeout: value)

    def cancel(self) -> bool:
        """Stop waiting for the result; the job continues.

        Return False if the result is there already.
        """
        if self.done():
            return False
        self._is_cancelled = True
        return True

    def cancelled(self) -> bool:
        """Return whether `cancel` stopped the waiting."""
        return self._is_cancelled

    def done(self) -> bool:
        """Return, without waiting, whether there is a result, a failure or a cancellation."""
        return self._is_cancelled or self._settle(0.0)

    def result(self) -> T:
        """Wait for the result and return it; raise what the operation raised."""
        if self._is_cancelled:
            raise CancelledError
        self._settle(None)
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def exception(self) -> BaseException | None:
        """Wait for the end of the operation, and return its failure or None."""
        if self._is_cancelled:
            raise CancelledError
        self._settle(None)
        return self._error

    def _settle(self, timeout_s: float | None) -> bool:
        if self._is_done:
            return True
        try:
            self._value = self._fetch(timeout_s)
        except TimeoutError:
            return False
        except Exception as error:  # this is the result; result() raises it again
            self._error = error
        self._is_done = True
        return True
