"""Driver's end of print and collect streams: bounded, in order per subtask, credit after the data is taken.

Called from the JobManager's loop; the console thread and the program's own thread take the data.
"""

from __future__ import annotations

import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.model.errors import JobExecutionError
from penstock.model.messages import DriverCredit, DriverData

PRINT_STREAM: Final = "print"

Grant = Callable[[DriverCredit], None]


class PrintConsole:
    """Writes lines of print sinks to the driver's stdout on a thread of its own."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._queue: queue.SimpleQueue[DriverData | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, data: DriverData) -> None:
        """Bounded by the senders' credit."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-print", daemon=True)
            self._thread.start()
        self._queue.put(data)

    def close(self) -> None:
        """Returns when everything put before is written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            lines: list[str] = pickle.loads(data.payload)
            try:
                sys.stdout.write("\n".join(lines) + "\n")
                sys.stdout.flush()
            except (OSError, ValueError):
                pass  # a closed console must not stop the job
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))


class CollectStream:
    """One collect stream: the loop puts, the program's iterator takes."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._queue: queue.SimpleQueue[DriverData | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._is_ended = False
        self._generation = 0
        self.rows_handed_out = 0

    def put(self, data: DriverData) -> None:
        self._queue.put(data)

    def restart(self) -> bool:
        """The job begins again: drop what nobody has seen. False when rows were handed out already."""
        with self._lock:
            if self.rows_handed_out:
                return False
            self._generation += 1
            try:
                while True:
                    self._queue.get_nowait()
            except queue.Empty:
                return True

    def end(self, failure: str | None) -> None:
        """Nothing more comes; a reader sees the failure after the rows before it."""
        self._failure = failure
        self._is_ended = True
        self._queue.put(None)

    def batches(self) -> Iterator[list[Any]]:
        """Rows in lists. Raises JobExecutionError at the end of a failed job."""
        while True:
            data = self._queue.get()
            if data is None:
                self._queue.put(None)  # for a second reader
                if self._failure is not None:
                    raise JobExecutionError(self._failure)
                return
            with self._lock:
                rows: list[Any] = pickle.loads(data.payload)
                self.rows_handed_out += len(rows)
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))
            yield rows


class DriverStreams:
    """All streams of a job, by name."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._console = PrintConsole(grant)
        self._collects: dict[str, CollectStream] = {}
        self._lock = threading.Lock()

    def collect(self, stream: str) -> CollectStream:
        """The same one for the loop that puts and the program that takes."""
        with self._lock:
            if stream not in self._collects:
                self._collects[stream] = CollectStream(self._grant)
            return self._collects[stream]

    def put(self, data: DriverData) -> None:
        if data.stream == PRINT_STREAM:
            self._console.put(data)
        else:
            self.collect(data.stream).put(data)

    def restart(self) -> bool:
        """False when rows of some collect stream were handed out already."""
        with self._lock:
            restarted = [collect.restart() for collect in self._collects.values()]
        return all(restarted)

    def end(self, failure: str | None) -> None:
        """Everything printed is on the console when this returns."""
        self._console.close()
        with self._lock:
            for collect in self._collects.values():
                collect.end(failure)
