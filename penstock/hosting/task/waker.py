"""Waker: how any thread wakes one waiting thread. A wake that comes before the wait is not lost."""

from __future__ import annotations

import threading


class Waker:
    """A binary semaphore on a bare lock: cheaper than an Event, which matters because it is used for every batch."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # It is awake already.

    def wait(self, timeout_s: float | None) -> None:
        """Wait until woken or the time is over; None: no limit."""
        if timeout_s is None:
            self._lock.acquire()
        elif timeout_s > 0:
            self._lock.acquire(timeout=timeout_s)
        else:
            self._lock.acquire(blocking=False)
