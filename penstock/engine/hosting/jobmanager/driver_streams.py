"""The driver's end of print and collect streams: bounded, in order for each subtask. A sender gets
credit when its data is taken.

The JobManager's loop calls it; the console thread and the program's own thread take the data.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TextIO

from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.ids import AttemptId, ExecutionVertexId
from penstock.engine.model.messages import DriverCredit, DriverData
from penstock.engine.model.texts.bounded_text import printable

PRINT_STREAM: Final = "print"
_MOST_UNREAD: Final = 64
"""How many frames of a held stream may be unread before their senders wait."""

Grant = Callable[[DriverCredit], None]


def write_text(stream: TextIO, text: str) -> None:
    """Write all of the text. Characters that the stream's encoding lacks are replaced, on a terminal also those that steer it."""
    if getattr(stream, "isatty", bool)():  # A program's own stream may have no such method.
        text = printable(text)
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
        self._worker = WorkerThreads("penstock-print")

    def put(self, data: DriverData) -> None:
        """Queue a frame; the senders' credit bounds the queue."""
        self._worker.put(lambda: self._write(data))

    def close(self) -> None:
        """Return when everything that was put before is written."""
        self._worker.close()

    def _write(self, data: DriverData) -> None:
        lines: list[str] = pickle.loads(data.payload)
        with contextlib.suppress(OSError, ValueError):  # A closed console must not stop the job.
            write_text(sys.stdout, "\n".join(lines) + "\n")
        self._grant(DriverCredit(data.stream, data.attempt_id, 1))


@dataclass(slots=True)
class _Frame:
    """`is_credited`: its sender may already send another frame."""

    data: DriverData
    is_credited: bool = False


class CollectStream:
    """One collect stream: the loop puts frames, the program's iterator takes them.

    `is_held`: rows are handed out only when a checkpoint that covers them is complete, so that a
    restart never repeats them. The sender gets its credit before that.
    """

    def __init__(self, grant: Grant, *, is_held: bool = False) -> None:
        self._grant = grant
        self._is_held = is_held
        self._held: list[_Frame] = []
        self._queue: deque[_Frame] = deque()
        # The program's thread takes both, and Ctrl-C may come at any time: a Lock is always freed then, a Condition is not.
        self._lock = threading.Lock()
        self._unchanged = threading.Lock()
        self._unchanged.acquire()
        self._failure: str | None = None
        self._is_ended = False
        self._handed_out: set[ExecutionVertexId] = set()

    def put(self, data: DriverData) -> None:
        """Add a frame. The senders' credit bounds the queue; held frames are bounded by what comes
        between two checkpoints.
        """
        with self._lock:
            if not self._is_held:
                self._queue.append(_Frame(data))
                self._wake_reader()
                return
            frame = _Frame(data, len(self._queue) < _MOST_UNREAD)
            self._held.append(frame)
        if frame.is_credited:
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))

    def release(self, checkpoint_id: int | None) -> None:
        """Release the rows that a completed checkpoint covers; None: the job is complete, and all rows count."""
        with self._lock:
            least = math.inf if checkpoint_id is None else checkpoint_id
            self._queue.extend(f for f in self._held if f.data.after_checkpoint < least)
            self._held = [f for f in self._held if f.data.after_checkpoint >= least]
            self._wake_reader()

    def restart(self, vertices: Collection[ExecutionVertexId]) -> bool:
        """These subtasks begin again: drop their rows that nobody has seen.

        Returns: False if rows that will come again were handed out already.
        """
        with self._lock:
            if self._is_held:
                self._held = _without(self._held, vertices)
                return True
            if self._handed_out.intersection(vertices):
                return False
            self._queue = deque(_without(self._queue, vertices))
            return True

    def end(self, failure: str | None) -> None:
        """Nothing more comes. A reader gets the remaining rows before the failure."""
        if failure is None:
            self.release(None)
        with self._lock:
            self._failure = failure
            self._is_ended = True
            self._wake_reader()

    def batches(self) -> Iterator[list[Any]]:
        """Yield lists of rows. Raises JobExecutionError at the end of a failed job."""
        while (frame := self._take()) is not None:
            data = frame.data
            rows: list[Any] = pickle.loads(data.payload)
            if not frame.is_credited:
                self._grant(DriverCredit(data.stream, data.attempt_id, 1))
            yield rows
        if self._failure is not None:
            raise JobExecutionError(self._failure)

    def take_now(self) -> tuple[bytes | None, bool]:
        """Return the next pickled rows if there are any, and whether none come any more."""
        with self._lock:
            if not self._queue:
                return None, self._is_ended
            frame = self._queue.popleft()
            self._handed_out.add(frame.data.attempt_id.execution_vertex_id)
        if not frame.is_credited:
            self._grant(DriverCredit(frame.data.stream, frame.data.attempt_id, 1))
        return frame.data.payload, False

    def _wake_reader(self) -> None:
        """A reader is to look again. Call it with the lock held."""
        if self._unchanged.locked():
            self._unchanged.release()

    def _take(self) -> _Frame | None:
        """Return the next frame, which now counts as handed out; None at the end."""
        while True:
            with self._lock:
                if self._queue:
                    frame = self._queue.popleft()
                    self._handed_out.add(frame.data.attempt_id.execution_vertex_id)
                    return frame
                if self._is_ended:
                    self._wake_reader()  # Another reader.
                    return None
            self._unchanged.acquire()


def _without(frames: Iterable[_Frame], vertices: Collection[ExecutionVertexId]) -> list[_Frame]:
    return [one for one in frames if one.data.attempt_id.execution_vertex_id not in vertices]


class DriverStreams:
    """All streams of a job, by name. `has_reader` False: no program takes collected rows, so they
    are dropped.

    `is_held`: collected rows wait for the checkpoint that covers them.
    """

    def __init__(
        self,
        send: Callable[[AttemptId, DriverCredit], None],
        *,
        is_held: bool = False,
        has_reader: bool = True,
    ) -> None:
        def grant(credit: DriverCredit) -> None:
            send(credit.attempt_id, credit)

        self._has_reader = has_reader
        self._is_held = is_held
        self._grant = grant
        self._console = PrintConsole(grant)
        self._collects: dict[str, CollectStream] = {}
        self._failure: str | None = None
        self._is_ended = False
        self._lock = threading.Lock()

    def collect(self, stream: str) -> CollectStream:
        """Return the stream of this name. The loop and the program get the same one."""
        with self._lock:
            if stream not in self._collects:
                made = CollectStream(self._grant, is_held=self._is_held)
                if self._is_ended:  # Of a job without rows, whose reader comes late.
                    made.end(self._failure)
                self._collects[stream] = made
            return self._collects[stream]

    def put(self, data: DriverData) -> None:
        if data.stream == PRINT_STREAM:
            self._console.put(data)
        elif not self._has_reader:
            self._grant(DriverCredit(data.stream, data.attempt_id, 1))
        else:
            self.collect(data.stream).put(data)

    def release(self, checkpoint_id: int) -> None:
        """The checkpoint is complete, and a restart would begin with it or a later one."""
        with self._lock:
            for collect in self._collects.values():
                collect.release(checkpoint_id)

    def restart(self, vertices: Collection[ExecutionVertexId]) -> bool:
        """Return False if rows of these subtasks were handed out already."""
        with self._lock:
            restarted = [collect.restart(vertices) for collect in self._collects.values()]
        return all(restarted)

    def end(self, failure: str | None) -> None:
        """End all streams. Everything printed is on the console when this returns."""
        self._console.close()
        with self._lock:
            self._failure, self._is_ended = failure, True
            for collect in self._collects.values():
                collect.end(failure)
