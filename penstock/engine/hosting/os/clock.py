"""The two clocks of Penstock, in milliseconds. Machines use the monotonic one; records, timers and
people the wall clock.

A deadline for calls into client libraries that keep none, or not always the one they were given.

A call cannot be ended from outside. So it runs on a thread of its own, and whoever waits for it leaves at the deadline.
A call that asks a server several times notes each answer with `progress`, and then each of them has the whole deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeVar

from penstock.engine.model.errors import ExternalError

T = TypeVar("T")
_THREAD: Final = threading.local()
HELP: Final = "Look whether the server runs, and whether a firewall drops what is sent to it."


class NoAnswer(ExternalError):
    """A call has not returned in time. It may still be at work: its client must not be used again."""


def within(limit_s: float, call: Callable[[], T], what: str, more: str = "") -> T:
    """Returns what the call returns, and raises what it raises.

    `limit_s`: since it began, or since its last `progress`. `what`: begins the error: who cannot do what.
    `more`: ends it: what allows more time. Raises: NoAnswer: the call has not returned in that time.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    deadline = _Deadline(limit_s, what, more)
    thread = threading.Thread(
        target=_run,
        args=(call, results, errors, deadline),
        name="penstock-client-call",
        daemon=True,
    )
    del call  # what it refers to ends with it, also while the error is kept
    thread.start()
    while thread.is_alive():
        thread.join(deadline.left_s())
    if errors:
        raise errors.pop()
    return results.pop()


def each_within(limit_s: float, values: Generator[T], what: str, more: str = "") -> Generator[T]:
    """Yields what the generator yields. Each value, and its end, is a call as of `within`."""
    try:
        while found := within(limit_s, lambda: [*islice(values, 1)], what, more):
            yield found[0]
    except GeneratorExit:
        within(limit_s, values.close, what, more)
        raise


def progress() -> None:
    """Begins the deadline of the running call anew, on that call's thread. Elsewhere it does nothing.

    Raises: NoAnswer: whoever waited for the call has left, so it must change nothing more.
    """
    deadline: _Deadline | None = getattr(_THREAD, "deadline", None)
    if deadline is not None:
        deadline.begin()


class _Deadline:
    """Once it has passed it stays so, for the call and for whoever waits for it."""

    def __init__(self, limit_s: float, what: str, more: str) -> None:
        self._limit_s = limit_s
        self._text = f"{what}: no answer within {limit_s:g} s. {HELP}{more}"
        self._lock = threading.Lock()
        self._end_s = monotonic() + limit_s
        self._is_over = False

    def begin(self) -> None:
        with self._lock:
            if self._is_over:
                raise self._error()
            self._end_s = monotonic() + self._limit_s

    def left_s(self) -> float:
        with self._lock:
            left_s = self._end_s - monotonic()
            if left_s > 0:
                return left_s
            self._is_over = True
            raise self._error()

    def _error(self) -> NoAnswer:
        return NoAnswer(self._text)


def _run(
    call: Callable[[], Any],
    results: list[Any],
    errors: list[BaseException],
    deadline: _Deadline,
) -> None:
    _THREAD.deadline = deadline
    try:
        results.append(call())
    except BaseException as error:  # Whatever it is, who waits gets it.
        errors.append(error)
    finally:
        del call


_WAKING_S: Final = 0.00005
_TURN_S: Final = 0.002


def monotonic_ms() -> int:
    """Since an arbitrary moment of this machine; never set back. For durations, deadlines, and events of machines."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Since 1970, roughly equal on all machines. It may be set back."""
    return time.time_ns() // 1_000_000


def giving_way(parts: Iterable[T]) -> Iterator[T]:
    """Pass on the parts of long work that is not urgent, and give way after each 2 ms of it."""
    began = time.perf_counter()
    for one in parts:
        yield one
        if time.perf_counter() - began > _TURN_S:
            give_way()
            began = time.perf_counter()


def give_way() -> None:
    """Let a thread that waits for the interpreter go first. Long work that is not urgent calls it between its parts.

    It takes 0.1 ms. Whoever only gives the interpreter back has it again before the other one is awake.
    """
    time.sleep(_WAKING_S)
