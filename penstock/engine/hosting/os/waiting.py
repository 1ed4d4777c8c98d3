"""Waits for a job on the user's own thread, and knows who reads the results of which job, and so is given its error.

A user sees the error of a job once: where the program gets it, or on the console if it never does.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self

from penstock.engine.model.ids import JobId
from penstock.engine.model.texts.bounded_text import printable

_LOG: Final = logging.getLogger(__name__)
_SLICE_S: Final = 0.5
"""Waiting is split into short waits, so that Ctrl-C reaches the main thread."""
_CANCEL_S: Final = 10.0


class Given(StrEnum):
    """When the program is given a job's error: NEVER, because nobody reads its results. NOW: somebody waits for them. LATER: where
    the program reads on.
    """

    NEVER = "never"
    NOW = "now"
    LATER = "later"


@dataclass(slots=True)
class _Readers:
    """`all`: the readers of one job. `waiting`: those that wait at this moment. `notify`: shows the
    job's error, which no reader has been given yet; None: there is none.
    """

    all: int = 0
    waiting: int = 0
    notify: Callable[[], None] | None = None


_READERS: Final[dict[JobId, _Readers]] = {}
_LOCK: Final = threading.RLock()
"""Python's collector may end a reader within a call on the same thread."""


class Reader:
    """Who will be given the job's error, until `let_go`: an iterator over results, or a client that was asked for the result. Within
    `with` it waits. Any thread.
    """

    def __init__(self, job_id: JobId) -> None:
        self._job_id = job_id
        with _LOCK:
            readers = _READERS.get(job_id) or _Readers()
            readers.all += 1
            _READERS[job_id] = readers
        # Without `let_go`, when nobody refers to it any more, and at the program's end.
        self._letting_go = weakref.finalize(self, _let_go, job_id)

    def __enter__(self) -> Self:
        self._wait(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(-1)

    def was_given(self) -> None:
        """The program has the job's error, or knows that there is none."""
        with _LOCK:
            if self._letting_go.alive:
                _READERS[self._job_id].notify = None

    def let_go(self) -> None:
        """Nobody reads on. An error that no reader was given is shown now."""
        self._letting_go()

    def _wait(self, by: int) -> None:
        with _LOCK:
            _READERS[self._job_id].waiting += by


@contextlib.contextmanager
def awaited(job_id: JobId) -> Generator[None]:
    """Inside the context, the program waits for the job; after it, the program knows how the job
    has ended.
    """
    reader = Reader(job_id)
    try:
        with reader:
            yield
        reader.was_given()
    finally:
        reader.let_go()


def owe(job_id: JobId, notify: Callable[[], None]) -> Given:
    """Record that the job has failed. `notify`: shows the error; it is called if all readers end
    before one was given the error.

    Returns: when the program is given the error. NEVER: `notify` is not called.
    """
    with _LOCK:
        readers = _READERS.get(job_id)
        if readers is None:
            return Given.NEVER
        readers.notify = notify
        return Given.NOW if readers.waiting else Given.LATER


def _let_go(job_id: JobId) -> None:
    with _LOCK:
        readers = _READERS[job_id]
        readers.all -= 1
        if readers.all:
            return
        del _READERS[job_id]
    if readers.notify is not None:
        readers.notify()


class End(Protocol):
    """The end of a job: `threading.Event`, or what asks for it elsewhere."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it has come within `timeout` seconds."""


def wait_for_end(ended: End, timeout_s: float | None, job: Interruptible) -> None:
    """Wait. The first Ctrl-C cancels the job, waits until it has ended completely, and is raised again; the next one is raised at
    once. So is the first one if the job continues elsewhere. SIGTERM, by which a cluster ends a driver, suspends the job.

    Raises TimeoutError after `timeout_s`, with the job and its state; SystemExit(143): SIGTERM.
    """
    _CtrlC.hurries = False  # A program that continues is in no hurry.
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        with _exit_at_sigterm():
            while not ended.wait(_SLICE_S if deadline is None else _left_s(deadline)):
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"{job.describe()} still")
    except KeyboardInterrupt:
        if not ended.is_set():
            _end_interrupted(ended, job)
        raise
    except SystemExit:
        if job.suspend is not None and not ended.is_set():
            _LOG.info("RECEIVED SIGNAL 15: SIGTERM. Suspending %s", job.describe())
            then = job.suspend("SIGTERM ended the driver")
            _say_at_once(f"penstock: SIGTERM; job '{job.name}' is suspended: {then}.\n")
        raise


@contextlib.contextmanager
def _exit_at_sigterm() -> Generator[None, None, None]:
    """Have SIGTERM raise SystemExit in the block, unless the program handles it, or this is not its main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_interrupted(ended: End, job: Interruptible) -> None:
    try:
        if interrupted(job):
            ended.wait(_CANCEL_S)
    except KeyboardInterrupt:
        _CtrlC.hurries = True
        raise


@dataclass(slots=True, eq=False)
class Interruptible:
    """A job that Ctrl-C cancels. `status`: returns its state. `instead`: what would have kept its state; "": nothing, because it has
    none. `continues_at`: where it continues instead of being cancelled, and what ends it; "": nowhere. `suspend`: ends the job here
    for a reason, waits a moment for that, keeps its checkpoints, and returns how it is continued; None: that cannot be. `is_interrupted`: Ctrl-C was pressed.
    """

    name: str
    cancel: Callable[[], None]
    status: Callable[[], str]
    instead: str = ""
    continues_at: str = ""
    suspend: Callable[[str], str] | None = None
    is_interrupted: bool = False

    def describe(self) -> str:
        """Return the job and its state."""
        return f"job {self.name} is {self.status()}"


class _CtrlC:
    """`was_pressed`: once at least. `hurries`: again, so nothing is waited for at the program's end."""

    was_pressed = False
    hurries = False


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed while the program waited for a job, and a line has said what becomes of the job."""
    return _CtrlC.was_pressed


def interrupted(job: Interruptible) -> bool:
    """Ctrl-C was pressed while the program waited for the job. The first time the job is cancelled, unless it continues elsewhere, and
    one line says so.

    Returns: whether its end is to be waited for. The second Ctrl-C waits for no job.
    Source: Flink's attached client, which cancels its job at its end and says nothing.
    """
    if job.is_interrupted:
        _CtrlC.hurries = True
        return False
    if not _CtrlC.was_pressed:
        _CtrlC.was_pressed = True
        atexit.register(_let_ctrl_c_end_the_exit)
    if job.continues_at:
        job.is_interrupted = True
        _say_at_once(f"penstock: interrupted; job '{job.name}' continues {job.continues_at}.\n")
        return False
    _LOG.info("RECEIVED SIGNAL 2: SIGINT. Cancelling %s", job.describe())
    job.cancel()
    job.is_interrupted = True
    loss = f" without a savepoint ({job.instead} would have taken one)" if job.instead else ""
    _say_at_once(
        f"penstock: interrupted; job '{job.name}' is cancelled{loss}. Ctrl-C again ends at once.\n"
    )
    return not _CtrlC.hurries


def _say_at_once(line: str) -> None:
    """With its end: the next Ctrl-C may come before another write."""
    sys.stderr.write(printable(line))
    sys.stderr.flush()


def is_in_a_hurry() -> bool:
    """Whether the user has pressed Ctrl-C again, so that the program must end at once."""
    return _CtrlC.hurries


def _let_ctrl_c_end_the_exit() -> None:
    """From now on Ctrl-C ends the process by the signal. At its exit Python would only end the exit handler that runs just then.

    A handler of the program's own stays.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _left_s(deadline: float) -> float:
    return min(_SLICE_S, max(0.0, deadline - time.monotonic()))
