"""Where a loop over calls of a user function offers a place to stop: one watermark can fire very many windows or timers.

The task stops there for mails and flushes, as between two slices of a batch. No element overtakes: the barrier behind the watermark still
waits for all that it fires. Does not know operators. Source: none in Flink, whose timers of DataStream programs fire without a stop
(docs/internals/task.md#a-batch-of-records).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_TARGET_MS: Final = 5
"""As long as a slice of a batch."""
_MOST_CALLS: Final = 64
_GROWTH: Final = 4


class Pauses:
    """Counts the calls and reads the clock rarely: the faster the calls are, the more of them pass between two looks."""

    __slots__ = ("_calls", "_left", "_most_calls", "_now_ms", "_since_ms", "_unpaused_ms")

    def __init__(self, now_ms: Callable[[], int], most_calls: int = _MOST_CALLS) -> None:
        self._now_ms = now_ms
        self._most_calls = most_calls
        self.begin()

    def begin(self) -> None:
        """A loop begins. Nobody knows how long its calls take."""
        self._calls = self._left = 1
        self.resume()

    def resume(self) -> None:
        """A loop goes on after it has stopped."""
        self._since_ms = self._now_ms()
        self._unpaused_ms = 0

    @property
    def calls(self) -> int:
        """How many calls may follow before `is_due` has to be asked."""
        return self._left

    def is_due(self, calls: int = 1) -> bool:
        """Count calls. Returns: whether the loop should offer a place to stop now, and then call `resume`."""
        self._left -= calls
        return self._left <= 0 and self._look()

    def _look(self) -> bool:
        now_ms = self._now_ms()
        took_ms = max(0, now_ms - self._since_ms)
        self._since_ms = now_ms
        if took_ms * _GROWTH <= _TARGET_MS:
            self._calls = min(self._most_calls, self._calls * _GROWTH)
        else:
            self._calls = max(1, min(self._most_calls, self._calls * _TARGET_MS // took_ms))
        self._left = self._calls
        self._unpaused_ms += took_ms
        return self._unpaused_ms >= _TARGET_MS
