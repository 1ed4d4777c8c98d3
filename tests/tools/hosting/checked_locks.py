"""Locks that note who takes them where a cancel may interrupt, and a body that runs as a user's function does."""

import sys
import threading
import traceback
from collections import Counter
from contextlib import contextmanager

from penstock.engine.runtime import interruption as interruption_module
from penstock.engine.runtime.interruption import Interruption, is_interruptible


@contextmanager
def users_code():
    """The body runs as if it were a user's function on a task's thread."""
    own = Interruption(threading.get_ident)
    own.begin()
    own.open()
    try:
        yield own
    finally:
        own.end()
        interruption_module.OF_THREAD.set(None)


class CheckedLock:
    """As the lock of `threading` that it stands for; notes who takes it on a thread that may be interrupted."""

    violations: Counter = Counter()
    taken = 0
    _make = staticmethod(threading.Lock)

    def __init__(self) -> None:
        self._lock = self._make()

    def acquire(self, *arguments, **named):
        CheckedLock.taken += 1
        if is_interruptible():
            stack = traceback.extract_stack(limit=6)[:-1]
            CheckedLock.violations["\n".join(traceback.format_list(stack))] += 1
        return self._lock.acquire(*arguments, **named)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

    def __getattr__(self, name):
        return getattr(self._lock, name)


class CheckedRLock(CheckedLock):
    _make = staticmethod(threading.RLock)


def check_locks(monkeypatch, *packages):
    """Check every lock that code of these packages makes from now on, itself or by way of a Condition. Returns what counts them."""

    def made_by(checked, plain):
        def make():
            frame = sys._getframe(1)
            while frame is not None and frame.f_globals.get("__name__") == "threading":
                frame = frame.f_back
            is_meant = frame is not None and frame.f_globals["__name__"].startswith(packages)
            return checked() if is_meant else plain()

        return make

    CheckedLock.violations = Counter()
    CheckedLock.taken = 0
    monkeypatch.setattr(threading, "Lock", made_by(CheckedLock, threading.Lock))
    monkeypatch.setattr(threading, "RLock", made_by(CheckedRLock, threading.RLock))
    return CheckedLock
