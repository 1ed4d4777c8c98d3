"""Sends what user functions write to stdout and stderr to the driver, with the operator's name, and
to the log.

Installed only in a TaskManager's own process. In a MiniCluster the console is the user's own. What
a handler of `logging` writes is not sent if the driver gets the record itself.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.engine.hosting.reporting.logs.lines import handled_now
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.messages import UserOutput
from penstock.engine.model.texts.bounded_text import MOST_OF_LINE, cut
from penstock.engine.runtime.interruption import uninterruptible

_MAX_LINE: Final = 16 * 1024
_MAX_MESSAGE: Final = 1 << 20
"""Characters of one message, so that what a function prints fits a control message, however much it is."""

Where = Callable[[], tuple[AttemptId | None, str]]
SENT_FROM: Final = logging.WARNING
"""Records from this level on go to the driver as records, so that what handlers make of them does not."""


class PrintLog(Protocol):
    """Where printed lines are kept next to the log, and put into it."""

    def printed(self, text: str, *, is_error: bool, is_logged: bool) -> None:
        """Keep whole lines. `is_logged`: a handler of `logging` wrote them, so that they are in the log already."""

    def thread_ends(self) -> None:
        """The calling thread's task ends."""


class _NoLog:
    """Keeps nothing."""

    def printed(self, text: str, *, is_error: bool, is_logged: bool) -> None:
        """Does nothing."""

    def thread_ends(self) -> None:
        """Does nothing."""


class RoutedStream(io.TextIOBase):
    """Splits each thread's writes into lines and hands them to `send` and to the log."""

    def __init__(
        self,
        where: Where,
        send: Callable[[UserOutput], None],
        *,
        is_error: bool,
        log: PrintLog | None = None,
    ) -> None:
        super().__init__()
        self._where = where
        self._send = send
        self._is_error = is_error
        self._log = log or _NoLog()
        self._local = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        held: str = getattr(self._local, "held", "") + text
        *lines, rest = held.split("\n")
        if len(rest) > _MAX_LINE:
            lines.append(rest)
            rest = ""
        self._local.held = rest
        if lines:
            self._put([cut(line, MOST_OF_LINE) for line in lines])
        return len(text)

    def _put(self, lines: list[str]) -> None:
        """Keep and send lines. A handler of `logging` may be the one that writes them."""
        record = handled_now()
        attempt_id, operator = self._where()
        for part in _parts(lines):
            with uninterruptible():
                is_logged = record is not None
                self._log.printed(part + "\n", is_error=self._is_error, is_logged=is_logged)
                if record is None or record.levelno < SENT_FROM:
                    self._send(UserOutput(attempt_id, operator, part, self._is_error))

    def flush(self) -> None:
        """Does nothing: whole lines are sent at once, and a partial line waits for its end or the task's."""

    def end_thread(self) -> None:
        """Send the partial line of the calling thread, whose task ends."""
        if getattr(self._local, "held", ""):
            self.write("\n")
        self._log.thread_ends()


def _parts(lines: list[str]) -> Iterator[str]:
    """The lines, as many together as fit a message."""
    part: list[str] = []
    size = 0
    for line in lines:
        if part and size + len(line) > _MAX_MESSAGE:
            yield "\n".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    yield "\n".join(part)


def end_thread() -> None:
    """Send the partial line of the calling thread, if streams are routed in this process. Called at a task's end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, RoutedStream):
            stream.end_thread()


def install(where: Where, send: Callable[[UserOutput], None], log: PrintLog | None = None) -> None:
    """Replace this process's stdout and stderr."""
    sys.stdout = RoutedStream(where, send, is_error=False, log=log)
    sys.stderr = RoutedStream(where, send, is_error=True, log=log)
