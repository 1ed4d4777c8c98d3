"""Waits for a job on the user's own thread, and knows which jobs the program waits for: it will be given their errors."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import Final

from penstock.model.ids import JobId

_SLICE_S: Final = 0.5
"""Waiting is split into short waits, so that Ctrl-C reaches the main thread."""
_CANCEL_S: Final = 10.0


_AWAITED: Final[Counter[JobId]] = Counter()
_LOCK: Final = threading.RLock()
"""Python's collector may end a wait within another one on the same thread."""


@contextlib.contextmanager
def awaited(job_id: JobId) -> Generator[None]:
    """Within, the program waits for the job or reads its results. Any number of threads."""
    with _LOCK:
        _AWAITED[job_id] += 1
    try:
        yield
    finally:
        with _LOCK:
            _AWAITED[job_id] -= 1
            if not _AWAITED[job_id]:
                del _AWAITED[job_id]


def is_awaited(job_id: JobId) -> bool:
    """Whether the program waits for this job."""
    return job_id in _AWAITED


def wait_for_end(
    ended: threading.Event,
    timeout_s: float | None,
    cancel: Callable[[], None],
    describe: Callable[[], str],
) -> None:
    """Wait. Ctrl-C cancels the job, waits until it has ended completely, and is raised again.

    `describe`: returns the job and its state, for the TimeoutError that is raised after
    `timeout_s`.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        while not ended.wait(_SLICE_S if deadline is None else _left_s(deadline)):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{describe()} still")
    except KeyboardInterrupt:
        cancel()
        ended.wait(_CANCEL_S)
        raise


def _left_s(deadline: float) -> float:
    return min(_SLICE_S, max(0.0, deadline - time.monotonic()))
