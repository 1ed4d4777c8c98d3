"""Sends what user functions write to stdout and stderr to the driver, with the operator's name.

Installed only in a TaskManager's own process. In a MiniCluster the console is the user's own.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from typing import Final

from penstock.model.ids import AttemptId
from penstock.model.messages import UserOutput
from penstock.runtime.interruption import uninterruptible

_MAX_LINE: Final = 16 * 1024

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
            with uninterruptible():
                self._send(UserOutput(attempt_id, operator, "\n".join(lines), self._is_error))
        return len(text)

    def flush(self) -> None:
        """Does nothing: whole lines are sent at once, and a partial line waits for its end or the task's."""

    def end_thread(self) -> None:
        """Send the partial line of the calling thread, whose task ends."""
        if getattr(self._local, "held", ""):
            self.write("\n")


def end_thread() -> None:
    """Send the partial line of the calling thread, if streams are routed in this process. Called at a task's end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, RoutedStream):
            stream.end_thread()


def install(where: Where, send: Callable[[UserOutput], None]) -> None:
    """Replace this process's stdout and stderr."""
    sys.stdout = RoutedStream(where, send, is_error=False)
    sys.stderr = RoutedStream(where, send, is_error=True)
