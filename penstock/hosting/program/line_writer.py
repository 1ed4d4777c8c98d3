"""LineWriter: writes to the console on a thread of its own, so that a slow console never delays the
JobManager.

It is bounded. What does not fit is dropped, and the number of dropped messages is printed at the
end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Final, TextIO

from penstock.hosting.jobmanager.driver_streams import write_text
from penstock.hosting.worker_thread import WorkerThreads

_WAITING_MAX: Final = 10_000
_CLOSE_TIMEOUT_S: Final = 5.0


class LineWriter:
    """`put` returns at once; `close` waits a bounded time for the console."""

    def __init__(self) -> None:
        self._worker = WorkerThreads("penstock-console", capacity=_WAITING_MAX)
        self._dropped = 0

    def put(self, stream: TextIO, text: str) -> None:
        if not self._worker.put(lambda: _write(stream, text)):
            self._dropped += 1

    def call(self, action: Callable[[], object], *, is_optional: bool = False) -> None:
        """Do this after what was put before. `is_optional`: leave it out if the console is too slow."""
        self._worker.put(action, overdraws=not is_optional)

    def close(self) -> None:
        if self._dropped:
            text = (
                f"penstock: {self._dropped} messages were dropped because the console is too slow\n"
            )
            self._worker.put(lambda: _write(sys.stderr, text), overdraws=True)
        self._worker.close(_CLOSE_TIMEOUT_S)


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # A closed console is no error.
        write_text(stream, text)
