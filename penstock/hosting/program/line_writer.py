"""LineWriter: writes to the console on a thread of its own, so that a slow one never holds the JobManager up.

Bounded: what does not fit is dropped, and how much is said at the end.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from typing import Final, TextIO

from penstock.hosting.jobmanager.driver_streams import write_text

_WAITING_MAX: Final = 10_000
_CLOSE_TIMEOUT_S: Final = 5.0


class LineWriter:
    """`put` returns at once; `close` waits a bounded time for the console."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[TextIO, str] | None] = queue.Queue(_WAITING_MAX)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="penstock-console", daemon=True)
        self._thread.start()

    def put(self, stream: TextIO, text: str) -> None:
        try:
            self._queue.put_nowait((stream, text))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        if self._dropped:
            text = f"penstock: {self._dropped} messages were dropped: the console is too slow\n"
            with contextlib.suppress(queue.Full):
                self._queue.put((sys.stderr, text), timeout=_CLOSE_TIMEOUT_S)
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_CLOSE_TIMEOUT_S)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            with contextlib.suppress(OSError, ValueError):  # a closed console is nobody's loss
                write_text(*entry)
