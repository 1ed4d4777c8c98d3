"""Calls that are due later, for a loop with a thread and a clock. Thread-safe; times are seconds of one clock."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count


class DelayedCalls:
    """A heap of calls, ordered by when they are due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, due_s: float, action: Callable[[], None]) -> bool:
        """Add a call. Returns: whether it is due before all others."""
        with self._lock:
            heapq.heappush(self._heap, (due_s, next(self._numbers), action))
            return self._heap[0][2] is action

    def seconds_left(self, now_s: float, at_most_s: float) -> float:
        """Return the seconds until the first call is due."""
        with self._lock:
            if not self._heap:
                return at_most_s
            return min(at_most_s, max(0.0, self._heap[0][0] - now_s))

    def take_due(self, now_s: float) -> list[Callable[[], None]]:
        """Return the calls that are due, in the order of their times."""
        due = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now_s:
                due.append(heapq.heappop(self._heap)[2])
        return due
