"""Waker: how any thread wakes one waiting thread. A wake that comes before the wait is not lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator


class _Held(threading.local):
    """Of each thread: whom it will wake at the end of its `held_wakes`."""

    wakers: dict[Waker, None] | None = None


_HELD = _Held()


@contextlib.contextmanager
def held_wakes() -> Generator[None]:
    """Whom this thread wakes within, it wakes once, at the end.

    A wake costs as much as a small batch where the processor of the waiting thread sleeps, as in a
    virtual machine. Who holds wakes must not wait for anybody.
    """
    _HELD.wakers = {}
    try:
        yield
    finally:
        wakers, _HELD.wakers = _HELD.wakers, None
        for waker in wakers:
            waker.wake()


class Waker:
    """A binary semaphore on a bare lock: cheaper than an Event, which matters because it is used for every batch."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        held = _HELD.wakers
        if held is not None:
            held[self] = None
            return
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
