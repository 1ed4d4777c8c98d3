"""Where a task's thread may be interrupted: in user code, and nowhere else.

The engine says when user code begins and ends. User code may call code of Penstock that must not be interrupted: code that holds a
lock, commits, or writes a file. Such code says so itself with `uninterruptible()`, so a new module need not be added to any list.

    task's loop         |  map function        |  a sink's commit     |  map function
    not interruptible   |  interruptible       |  uninterruptible()   |  interruptible

Does not know threads: `hosting` raises the signal. Source: Flink TaskInterrupter; differs: Java interrupts blocking calls only,
Python raises at any bytecode.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

_ONCE: Final = (None,)


class OperatorCalls(Protocol):
    """Gets a call when an operator's code or a user's function begins and ends on the task's
    thread.
    """

    def entered(self, operator: str) -> None: ...
    def left(self) -> None: ...
    def complain(self, line: str) -> None:
        """Log a line for the people who run the job."""


class UnwatchedCalls:
    """The `OperatorCalls` of a chain that nobody watches."""

    def entered(self, operator: str) -> None:
        """Does nothing."""

    def left(self) -> None:
        """Does nothing."""

    def complain(self, line: str) -> None:
        """Does nothing."""


UNWATCHED: Final = UnwatchedCalls()


class Interruption:
    """Whether one thread may be interrupted. Only this thread uses it, except for `open_to`.

    `open_to`: holds the thread's id while it may be interrupted, else nothing. The thread that interrupts reads it and raises in one
    step under the interpreter's lock, so the task's thread cannot leave user code in between.
    """

    def __init__(self, calling_thread: Callable[[], int]) -> None:
        """`calling_thread`: returns the id of the calling thread."""
        self.open_to: list[int] = []
        self._own: tuple[int, ...] = ()
        self._calling_thread = calling_thread

    def begin(self) -> None:
        """Bind this object to the calling thread. From now on `uninterruptible()` finds it."""
        self._own = (self._calling_thread(),)
        OF_THREAD.set(self)

    @property
    def is_open_here(self) -> bool:
        """Whether the calling thread is the bound one and runs user code. The check is needed because asyncio carries context variables to
        other threads.
        """
        return bool(self.open_to) and self._calling_thread() in self._own

    def end(self) -> None:
        """The thread ends: from now on it is not interrupted, whatever it calls."""
        self._own = ()
        self.close()

    def open(self) -> None:
        """User code begins."""
        self.open_to[:] = self._own

    def close(self) -> None:
        """User code ends. A signal that was raised before is delivered inside this call."""
        self.open_to.clear()
        # The interpreter delivers a pending signal at the backward jump of a loop.
        for _ in _ONCE:
            pass


OF_THREAD: Final[ContextVar[Interruption | None]] = ContextVar("interruption", default=None)


def is_interruptible() -> bool:
    """Whether the calling thread may be interrupted."""
    own = OF_THREAD.get()
    return own is not None and own.is_open_here


def close_own() -> Interruption | None:
    """Make the calling thread uninterruptible. Returns the argument for `reopen`; None: the thread was not interruptible."""
    own = OF_THREAD.get()
    if own is None or not own.is_open_here:
        return None
    try:
        own.close()
    except BaseException:
        # This is the interrupt itself, delivered in `close`. User code handles it, so user code
        # continues.
        own.open()
        raise
    return own


def reopen(closed: Interruption | None) -> None:
    """Undo `close_own`."""
    if closed is not None:
        closed.open()


@contextmanager
def uninterruptible() -> Generator[None]:
    """Protect a block from being interrupted by the cancel of a task. On any other thread it does nothing.

    Keep the block short: a call that blocks inside cannot be interrupted, and its TaskManager is killed instead.
    """
    closed = close_own()
    try:
        yield
    finally:
        reopen(closed)
