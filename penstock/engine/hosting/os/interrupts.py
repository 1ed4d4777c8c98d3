"""Interrupts a task's thread where `engine/runtime/interruption.py` allows it. Knows no task.

Source: Flink TaskInterrupter.

Waker: how any thread wakes one waiting thread. A wake that comes before the wait is not lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import threading
from collections.abc import Generator
from typing import Final

from penstock.engine.hosting.os.thread_stacks import thread_frames
from penstock.engine.model.errors import CancelSignal
from penstock.engine.runtime.interruption import Interruption, close_own, reopen


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


_RAISE_IN: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)((
    "PyThreadState_SetAsyncExc",
    ctypes.pythonapi,
))
IMPORTING: Final = "<frozen importlib._bootstrap>"
"""The file of Python's import, in its frames."""


def interrupt(interruption: Interruption) -> bool:
    """Raise CancelSignal in the thread if it is in user code. Any thread. Returns: whether it was
    in user code.

    It arrives at the next bytecode; a C call is not interrupted. Nor is an import, which is tried again
    later: a package that is cut in two lacks parts in this process for ever.
    """
    # Collecting now keeps the collector from starting between the check and the raise, where a
    # finalizer could let another thread run.
    gc.collect(0)
    if any(map(_is_importing, interruption.open_to)):
        return True
    return bool(list(map(_RAISE_IN, interruption.open_to, itertools.repeat(CancelSignal))))


def _is_importing(thread_id: int) -> bool:
    frame = thread_frames().get(thread_id)
    while frame is not None and frame.f_code.co_filename != IMPORTING:
        frame = frame.f_back
    return frame is not None


class UninterruptibleLock:
    """A threading.Lock whose holder is not interrupted. Needed for all locks that are taken below a
    user's function.

    A lock that is acquired by code that is then interrupted would stay locked for ever. Works under
    a threading.Condition too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: Interruption | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        closed = close_own()
        if not self._lock.acquire(blocking, timeout):
            reopen(closed)
            return False
        self._closed = closed
        return True

    def release(self) -> None:
        closed, self._closed = self._closed, None
        self._lock.release()
        reopen(closed)

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def uninterruptible_condition() -> threading.Condition:
    """Return a condition on such a lock. A thread that waits for it may be interrupted."""
    return threading.Condition(UninterruptibleLock())  # type: ignore[arg-type] # any lock serves; typeshed names Python's own
