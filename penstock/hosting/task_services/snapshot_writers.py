"""Threads of a TaskManager that write what its tasks have frozen, beside their work.

Source: Flink's async operations thread pool of a StreamTask; differs: one for all tasks, of few threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.hosting.worker_thread import WorkerThreads

MAX_WAITING: Final = 256
"""Snapshots of one TaskManager that wait to be written: each holds a copy of a task's state."""
MAX_THREADS: Final = 4
_CLOSE_TIMEOUT_S: Final = 1.0


class SnapshotWriters:
    """Threads that write for all tasks of a TaskManager."""

    def __init__(self, threads: int) -> None:
        """`threads`: at most so many, started as they are needed."""
        most = max(1, min(threads, MAX_THREADS))
        self._workers = WorkerThreads("penstock-snapshots", most, capacity=MAX_WAITING + most)

    def submit(self, job: Callable[[], None]) -> bool:
        """False: too many wait, or all is over. Any thread."""
        return self._workers.put(job)

    def close(self) -> None:
        """What is being written may come to its end; who waits does not."""
        self._workers.close(_CLOSE_TIMEOUT_S, drops=True)
