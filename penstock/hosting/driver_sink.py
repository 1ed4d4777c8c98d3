"""Driver's end of print and collect streams: bounded, in order per subtask, credit after the data is taken.

Called from the JobManager's loop; the console thread and the program's own thread take the data.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, TextIO

from penstock.model.errors import JobExecutionError
from penstock.model.ids import ExecutionVertexId
from penstock.model.messages import DriverCredit, DriverData

PRINT_STREAM: Final = "print"

Grant = Callable[[DriverCredit], None]


def write_text(stream: TextIO, text: str) -> None:
    """Whole, also where the stream's encoding has no such characters."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


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
            with contextlib.suppress(OSError, ValueError):  # a closed console must not stop the job
                write_text(sys.stdout, "\n".join(lines) + "\n")
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))


class CollectStream:
    """One collect stream: the loop puts, the program's iterator takes."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._queue: deque[DriverData] = deque()
        self._changed = threading.Condition()
        self._failure: str | None = None
        self._is_ended = False
        self._handed_out: set[ExecutionVertexId] = set()

    def put(self, data: DriverData) -> None:
        """Bounded by the senders' credit."""
        with self._changed:
            self._queue.append(data)
            self._changed.notify()

    def restart(self, vertices: Collection[ExecutionVertexId]) -> bool:
        """These subtasks begin again: drop what nobody has seen of them. False when rows of theirs were
        handed out already.
        """
        with self._changed:
            if self._handed_out.intersection(vertices):
                return False
            kept = [d for d in self._queue if d.attempt_id.execution_vertex_id not in vertices]
            self._queue = deque(kept)
            return True

    def end(self, failure: str | None) -> None:
        """Nothing more comes; a reader sees the failure after the rows before it."""
        with self._changed:
            self._failure = failure
            self._is_ended = True
            self._changed.notify_all()

    def batches(self) -> Iterator[list[Any]]:
        """Rows in lists. Raises JobExecutionError at the end of a failed job."""
        while (data := self._take()) is not None:
            rows: list[Any] = pickle.loads(data.payload)
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))
            yield rows
        if self._failure is not None:
            raise JobExecutionError(self._failure)

    def _take(self) -> DriverData | None:
        """The next frame counts as handed out from here on; None at the end."""
        with self._changed:
            while not self._queue and not self._is_ended:
                self._changed.wait()
            if not self._queue:
                return None
            data = self._queue.popleft()
            self._handed_out.add(data.attempt_id.execution_vertex_id)
            return data


class DriverStreams:
    """All streams of a job, by name. `has_reader` False: nobody will take collected rows, so they are dropped."""

    def __init__(self, grant: Grant) -> None:
        self.has_reader = True
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
        elif not self.has_reader:
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))
        else:
            self.collect(data.stream).put(data)

    def restart(self, vertices: Collection[ExecutionVertexId]) -> bool:
        """False when rows of these subtasks were handed out already."""
        with self._lock:
            restarted = [collect.restart(vertices) for collect in self._collects.values()]
        return all(restarted)

    def end(self, failure: str | None) -> None:
        """Everything printed is on the console when this returns."""
        self._console.close()
        with self._lock:
            for collect in self._collects.values():
                collect.end(failure)
