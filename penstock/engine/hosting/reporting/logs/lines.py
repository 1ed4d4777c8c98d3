"""A line of a log: its content, its two forms, and how repeated lines are folded.

The text is Flink's default layout with the task before the message, and Python's names of levels.
The JSON has one object a line, with the job under Flink's key `flink-job-id`. Subtasks are counted
from 1, as everywhere in texts. Everybody on the driver's machine can read logs by REST, so neither
form has credentials.

    2026-07-01 10:11:12,345 WARNING my.module [job=1c2f.. operator=Map subtask=3/4 attempt=0] - no price for 'EUR'

Folding logs the first of several equal lines at once, and counts the others and logs them together.
It knows no clock and no console. It is used where lines leave a TaskManager, and where the console
shows the lines of all of them.

A hook turns Python's log records into lines. It stands before all handlers, so that it sees records
however the program configures `logging`: by `basicConfig`, `dictConfig` or not at all. It changes
no logger, handler or level.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.model.messages import LogEvent
from penstock.engine.model.texts.bounded_text import MOST_OF_LINE, bounded_str, cut, printable
from penstock.engine.model.texts.redaction import without_credentials
from penstock.engine.runtime.interruption import uninterruptible

_DIGITS: Final = re.compile(r"\d+")
_MOST_OF_SAMENESS: Final = 500


def sameness_of(template: str, *, has_arguments: bool, text: str) -> str:
    """Return what is equal for lines that differ only in what they are about: the text before its arguments are put in;
    without arguments, the text without its numbers.
    """
    found = template if has_arguments else _DIGITS.sub("#", text[: 2 * _MOST_OF_SAMENESS])
    return found[:_MOST_OF_SAMENESS]


@dataclass(slots=True)
class _Repeated:
    """`last`: the newest of those that were not logged yet. `speak_at_ms`: when they are logged."""

    last: LogEvent
    speak_at_ms: int
    wait_ms: int
    waiting: int = 0
    subtasks: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Repeats:
    """`times`: further lines like `event`, which is the newest of them. `subtasks`: from 0; whose lines they were."""

    event: LogEvent
    times: int
    subtasks: tuple[int, ...]


class Folding:
    """Args: window_ms: how long repeats are counted before they are logged. grows: a line that
    keeps repeating is logged less and less often. most: how many different lines are known at once;
    the others are only counted, in `left_out`.
    """

    def __init__(self, window_ms: int, *, grows: bool = False, most: int = 1000) -> None:
        self.left_out = 0
        self._window_ms = window_ms
        self._grows = grows
        self._most = most
        self._known: dict[Hashable, _Repeated] = {}

    def take(self, event: LogEvent, now_ms: int) -> bool:
        """Take a line. Returns: whether to log it now, because it is the first of its kind."""
        key = (event.level, event.logger, event.sameness)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._most:
                self.left_out += 1 + event.repeats
                return False
            known = _Repeated(event, now_ms + self._window_ms, self._window_ms, event.repeats)
            self._known[key] = known
            if event.repeats:
                _note_subtask(known, event)
            return True
        known.last = event
        known.waiting += 1 + event.repeats
        _note_subtask(known, event)
        return False

    def due(self, now_ms: int, *, is_all: bool = False) -> list[Repeats]:
        """Return what has repeated and is to be logged now. A line without repeats for this time
        counts as new from then on.
        """
        found = []
        for key, known in list(self._known.items()):
            if now_ms < known.speak_at_ms and not is_all:
                continue
            if not known.waiting:
                del self._known[key]
                continue
            subtasks = tuple(sorted(known.subtasks))
            found.append(Repeats(replace(known.last, repeats=0), known.waiting, subtasks))
            known.waiting = 0
            known.subtasks.clear()
            known.wait_ms *= 2 if self._grows else 1
            known.speak_at_ms = now_ms + known.wait_ms
        return found


def _note_subtask(known: _Repeated, event: LogEvent) -> None:
    if event.attempt_id is not None:
        known.subtasks.add(event.attempt_id.subtask)


@dataclass(frozen=True, slots=True)
class Place:
    """The task whose thread logs; "" and 0: a thread of no task. `subtask`: from 1. `job_id` "": of no job."""

    job_id: str = ""
    operator: str = ""
    subtask: int = 0
    parallelism: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class LogLine:
    """`at_s`: since 1970. `error`: a traceback, "" without. `process`: the TaskManager, or the driver."""

    at_s: float
    level: str
    logger: str
    thread: str
    message: str
    place: Place
    process: str = ""
    error: str = ""


def text_of(line: LogLine) -> str:
    """Return the line as text, without a line feed. A message or error of several lines follows it."""
    at = _local(line.at_s).strftime("%Y-%m-%d %H:%M:%S")
    millis = int(line.at_s * 1000) % 1000
    text = without_credentials(f"{line.message}\n{line.error}" if line.error else line.message)
    # The files are read in terminals.
    return printable(f"{at},{millis:03d} {line.level:<7} {line.logger}{_where(line)} - {text}")


def json_of(line: LogLine) -> str:
    """Return the line as one JSON object, without a line feed. Keys without a value are left out."""
    place = line.place
    found: dict[str, object] = {
        "timestamp": _local(line.at_s).isoformat(timespec="milliseconds"),
        "level": line.level,
        "logger": line.logger,
        "message": without_credentials(line.message),
        "thread": line.thread,
        "process": line.process,
        "flink-job-id": place.job_id,
        "operator": place.operator,
        "error": without_credentials(line.error),
    }
    found = {key: value for key, value in found.items() if value}
    if place.subtask:
        found |= {
            "subtask": place.subtask,
            "parallelism": place.parallelism,
            "attempt": place.attempt,
        }
    return json.dumps(found, ensure_ascii=False)


FORMS: Final[Mapping[str, Callable[[LogLine], str]]] = {"text": text_of, "json": json_of}
"""By the value of `penstock.log.format`."""


def _where(line: LogLine) -> str:
    """Return the task of a line. Penstock's own messages begin with their job, so it is left out
    here.
    """
    place = line.place
    if not place.job_id or line.message.startswith(f"job={place.job_id}"):
        return ""
    if not place.subtask:
        return f" [job={place.job_id}]"
    return (
        f" [job={place.job_id} operator={place.operator} "
        f"subtask={place.subtask}/{place.parallelism} attempt={place.attempt}]"
    )


def _local(at_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_s).astimezone()


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
