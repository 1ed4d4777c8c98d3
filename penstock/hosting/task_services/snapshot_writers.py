"""Threads of a TaskManager that write what its tasks have frozen, beside their work.

Source: Flink's async operations thread pool of a StreamTask; differs: one for all tasks, of few threads.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

MAX_WAITING: Final = 256
"""Snapshots of one TaskManager that wait to be written: each holds a copy of a task's state."""
MAX_THREADS: Final = 4
_CLOSE_TIMEOUT_S: Final = 1.0


class SnapshotWriters:
    """Threads that write for all tasks of a TaskManager. Daemons: a file system that hangs must not keep it alive."""

    def __init__(self, threads: int) -> None:
        """`threads`: at most so many, started as they are needed."""
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._max = max(1, min(threads, MAX_THREADS))
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._is_closed = False

    def submit(self, job: Callable[[], None]) -> bool:
        """False: too many wait, or all is over. Any thread."""
        with self._lock:
            if self._is_closed or self._unfinished >= MAX_WAITING + self._max:
                return False
            self._unfinished += 1
            if len(self._threads) < min(self._max, self._unfinished):
                name = f"penstock-snapshots-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
            self._jobs.put(job)
        return True

    def close(self) -> None:
        """What is being written may come to its end; who waits does not."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
            for _ in threads:
                self._jobs.put(None)
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if not self._is_closed:
                    job()
            except BaseException:  # the thread serves all tasks: no job may end it
                traceback.print_exc()
            finally:
                with self._lock:
                    self._unfinished -= 1
