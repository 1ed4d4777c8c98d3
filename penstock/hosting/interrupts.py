"""Interrupts a task's thread where it may be: see `runtime/interruption.py`. Knows no task.

Source: Flink TaskInterrupter.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from typing import Final

from penstock.runtime.interruption import Interruption, close_own, reopen

_RAISE_IN: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)((
    "PyThreadState_SetAsyncExc",
    ctypes.pythonapi,
))


class CancelSignal(BaseException):
    """Unwinds a task's thread after a cancel; never a failure. Not an Exception: user code must not catch it."""


def interrupt(interruption: Interruption) -> bool:
    """Raise CancelSignal in the thread, if it is in code of users. Any thread. Returns: whether it was.

    It arrives at the next bytecode: a C call is not interrupted.
    """
    gc.collect(
        0
    )  # so that no finalizer runs, and with it no other thread, between looking and raising
    return bool(list(map(_RAISE_IN, interruption.open_to, itertools.repeat(CancelSignal))))


class UninterruptibleLock:
    """As threading.Lock; who holds it is not interrupted. For all locks that are taken below a user's function.

    A lock that is acquired and then cut off would stay locked for ever. Serves under a threading.Condition too.
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
    """On such a lock. While it waits, the thread may be interrupted."""
    return threading.Condition(UninterruptibleLock())  # type: ignore[arg-type] # any lock serves; typeshed names Python's own
