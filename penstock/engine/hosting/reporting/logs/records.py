"""From Python's log records to lines, and the hook that sees every record of a process.

The hook stands before all handlers, so that it sees records however the program configures `logging`: by `basicConfig`,
`dictConfig` or not at all. It changes no logger, handler or level.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Final

from penstock.engine.hosting.reporting.logs.lines import LogLine, Place
from penstock.engine.model.texts.bounded_text import MOST_OF_LINE, bounded_str, cut
from penstock.engine.runtime.interruption import uninterruptible

_TRACEBACKS: Final = logging.Formatter()
_NOWHERE: Final = Place()
_HOOKED: Final = "callHandlers"
"""The one method of loggers that all records pass, and that knows no handler yet."""
Take = Callable[[logging.LogRecord], bool]


class _Now(threading.local):
    """`record`: the one that handlers of this thread get now."""

    record: logging.LogRecord | None = None


_NOW: Final = _Now()
_LOGGING: Final[dict[int, None]] = {}
"""The threads that are in the hook."""
_END_WAIT_S: Final = 5.0
_POLL_S: Final = 0.001


class _End:
    """`thread`: the one that ends the interpreter; None: it does not end yet."""

    thread: int | None = None


def _end() -> None:
    """Drop what other threads log from now on, and wait for those that are in a handler.

    Daemon threads stand still when the interpreter ends. One that is in a handler then keeps the handler's lock, and a
    finalizer that logs would wait for it for ever.
    """
    _End.thread = threading.get_ident()
    deadline = time.monotonic() + _END_WAIT_S  # A handler of the user may stand still.
    while _LOGGING.keys() - {_End.thread} and time.monotonic() < deadline:
        time.sleep(_POLL_S)  # Those in the hook signal nothing: that would need a lock.


# When this module is imported, so that it comes after what others do at the end.
atexit.register(_end)


def message_of(record: logging.LogRecord) -> str:
    """Return the text of a record. A record whose arguments do not fit its text gives both."""
    try:
        text = record.getMessage()
    except Exception:  # Any error: it calls the user's __str__.
        text = f"{bounded_str(record.msg)} {bounded_str(record.args)}"
    return cut(text, MOST_OF_LINE)


def line_of(record: logging.LogRecord, place: Place = _NOWHERE, process: str = "") -> LogLine:
    """Convert a record. Calls the user's `__str__`."""
    error = _TRACEBACKS.formatException(record.exc_info) if record.exc_info else ""
    stack = record.stack_info or ""
    return LogLine(
        record.created,
        record.levelname,
        record.name,
        record.threadName or "",
        message_of(record),
        place,
        process,
        cut("\n".join(filter(None, (error, stack))), MOST_OF_LINE),
    )


def handled_now() -> logging.LogRecord | None:
    """Return the record that a handler of this thread gets right now; None: none does."""
    return _NOW.record


def hook(take: Take) -> Callable[[], None]:
    """Have `take` see each record that a logger of this process lets pass, on the thread that logs. Returns: what undoes it.

    `take` must not raise. It returns whether the handlers of loggers get the record too. What it logs itself is not given to it. No
    cancel interrupts them: each handler has a lock, which all threads that log need.
    """
    call_handlers = logging.Logger.callHandlers

    def hooked(logger: logging.Logger, record: logging.LogRecord) -> None:
        if _NOW.record is not None:
            call_handlers(logger, record)
            return
        with uninterruptible(), _as_now(record):
            if _End.thread in {None, threading.get_ident()} and take(record):
                call_handlers(logger, record)

    def undo() -> None:
        setattr(logging.Logger, _HOOKED, call_handlers)

    setattr(logging.Logger, _HOOKED, hooked)
    return undo


@contextlib.contextmanager
def _as_now(record: logging.LogRecord) -> Generator[None]:
    thread = threading.get_ident()
    _NOW.record, _LOGGING[thread] = record, None
    try:
        yield
    finally:
        _NOW.record = None
        _LOGGING.pop(thread, None)
