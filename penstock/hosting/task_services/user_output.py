"""Sends what user functions write to stdout and stderr to the driver, with the operator's name.

Installed only in a TaskManager's own process. In a MiniCluster the console is the user's own.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

from penstock.model.bounded_text import MOST_OF_LINE, cut
from penstock.model.ids import AttemptId
from penstock.model.messages import UserOutput
from penstock.runtime.interruption import uninterruptible

_MAX_LINE: Final = 16 * 1024
_MAX_MESSAGE: Final = 1 << 20
"""Characters of one message, so that what a function prints fits a control message, however much it is."""

Where = Callable[[], tuple[AttemptId | None, str]]


class RoutedStream(io.TextIOBase):
    """Splits each thread's writes into lines and hands them to `send`."""

    def __init__(self, where: Where, send: Callable[[UserOutput], None], *, is_error: bool) -> None:
        super().__init__()
        self._where = where
        self._send = send
        self._is_error = is_error
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
            attempt_id, operator = self._where()
            for part in _parts([cut(line, MOST_OF_LINE) for line in lines]):
                with uninterruptible():
                    self._send(UserOutput(attempt_id, operator, part, self._is_error))
        return len(text)

    def flush(self) -> None:
        """Does nothing: whole lines are sent at once, and a partial line waits for its end or the task's."""

    def end_thread(self) -> None:
        """Send the partial line of the calling thread, whose task ends."""
        if getattr(self._local, "held", ""):
            self.write("\n")


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


def install(where: Where, send: Callable[[UserOutput], None]) -> None:
    """Replace this process's stdout and stderr."""
    sys.stdout = RoutedStream(where, send, is_error=False)
    sys.stderr = RoutedStream(where, send, is_error=True)
