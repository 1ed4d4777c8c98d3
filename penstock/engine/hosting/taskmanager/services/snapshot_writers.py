"""Threads of a TaskManager that write snapshots while the tasks continue.

Source: Flink's async operations thread pool of a StreamTask; differs: few threads that all tasks
share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.engine.hosting.os.worker_thread import WorkerThreads

MAX_WAITING: Final = 256
"""How many snapshots of one TaskManager may wait to be written; each holds a copy of a task's state."""
MAX_THREADS: Final = 4
_CLOSE_TIMEOUT_S: Final = 1.0


class SnapshotWriters:
    """Threads that write for all tasks of a TaskManager."""

    def __init__(self, threads: int) -> None:
        """`threads`: the maximum; started as they are needed."""
        most = max(1, min(threads, MAX_THREADS))
        self._workers = WorkerThreads("penstock-snapshots", most, capacity=MAX_WAITING + most)

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a write. False: too many wait, or this is closed. Any thread."""
        return self._workers.put(job)

    def close(self) -> None:
        """Stop. Writes that have begun may end; waiting ones are dropped."""
        self._workers.close(_CLOSE_TIMEOUT_S, drops=True)
