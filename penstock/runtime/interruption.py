"""Where a task's thread may be interrupted: in the code of users, and nowhere else.

The engine says when such code begins and ends. What such code calls of ours, and what must not be cut in two there (whoever holds a
lock, a commit, a file that is being written), says so with `uninterruptible()`. So a new file is safe without being on any list.

    task's loop    |  map function     |  a sink's commit      |  map function
    not to be cut  |  may be cut       |  uninterruptible()    |  may be cut

Knows no thread: `hosting` raises the signal. Source: Flink TaskInterrupter; differs: Java interrupts blocking calls only,
Python raises at any bytecode.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

_ONCE: Final = (None,)


class OperatorCalls(Protocol):
    """Is told when an operator's code, or a user's function, begins and ends on the task's thread."""

    def entered(self, operator: str) -> None: ...
    def left(self) -> None: ...


class UnwatchedCalls:
    """`OperatorCalls` of a chain that nobody watches."""

    def entered(self, operator: str) -> None:
        """Nobody asks which it is."""

    def left(self) -> None:
        """Nobody interrupts it."""


UNWATCHED: Final = UnwatchedCalls()


class Interruption:
    """Of one thread. All but `open_to` is for that thread alone.

    `open_to`: holds the thread's id while it may be interrupted, else nothing. Whoever interrupts reads it and raises in one step
    under the interpreter's lock, so that the thread cannot leave user code in between.
    """

    def __init__(self, calling_thread: Callable[[], int]) -> None:
        """`calling_thread`: its id."""
        self.open_to: list[int] = []
        self._own: tuple[int, ...] = ()
        self._calling_thread = calling_thread

    def begin(self) -> None:
        """The calling thread is the one. From here on `uninterruptible()` finds it."""
        self._own = (self._calling_thread(),)
        _OF_THREAD.set(self)

    @property
    def is_open_here(self) -> bool:
        """Whether the calling thread is the one, and in user code. asyncio takes context variables along to other threads."""
        return bool(self.open_to) and self._calling_thread() in self._own

    def end(self) -> None:
        """The thread comes to its end: it is not interrupted any more, whatever it calls."""
        self._own = ()
        self.close()

    def open(self) -> None:
        """User code begins."""
        self.open_to[:] = self._own

    def close(self) -> None:
        """User code ends. A signal that was raised before arrives in here."""
        self.open_to.clear()
        for _ in _ONCE:  # the jump back is where the interpreter delivers it
            pass


_OF_THREAD: Final[ContextVar[Interruption | None]] = ContextVar("interruption", default=None)


def is_interruptible() -> bool:
    """Whether the calling thread may be interrupted."""
    own = _OF_THREAD.get()
    return own is not None and own.is_open_here


def close_own() -> Interruption | None:
    """The calling thread may not be interrupted from here on. Returns what `reopen` takes; None: it could not be before."""
    own = _OF_THREAD.get()
    if own is None or not own.is_open_here:
        return None
    try:
        own.close()
    except BaseException:
        # The interrupt itself, which arrives in `close`: user code handles it, open.
        own.open()
        raise
    return own


def reopen(closed: Interruption | None) -> None:
    """Undo `close_own`."""
    if closed is not None:
        closed.open()


@contextmanager
def uninterruptible() -> Generator[None]:
    """What is inside is not cut in two by the cancel of a task. On any other thread it does nothing.

    Keep it short: a call that blocks inside cannot be interrupted, and its TaskManager is killed instead.
    """
    closed = close_own()
    try:
        yield
    finally:
        reopen(closed)
