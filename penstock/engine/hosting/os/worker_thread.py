"""WorkerThreads: makes queued calls in order, on threads of its own. Knows nothing of the calls.

The only kind of worker in hosting. Each user sets bounds, error handling and ticks where it makes
its workers.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

Call = Callable[[], object]
_LOG: Final = logging.getLogger(__name__)


def log_error(error: BaseException) -> None:
    """Log the error; the default handler. The thread continues."""
    _LOG.error("worker=%s cause=%r", threading.current_thread().name, error, exc_info=error)


class WorkerThreads:
    """Thread-safe. One thread makes the calls in the order in which they were put; several threads
    start them in that order.

    Threads start when they are needed. They are daemons: a call that never returns must not keep
    the process alive.
    """

    def __init__(
        self,
        name: str,
        threads: int = 1,
        *,
        capacity: int | None = None,
        on_error: Callable[[BaseException], None] = log_error,
        tick: tuple[float, Call] | None = None,
    ) -> None:
        """`name`: of the threads, with a number where there are several. `threads`: the maximum.

        `capacity`: calls that may wait or run; None: any number. `on_error`: takes what a call
        raises. `tick`: (seconds, call): made at that interval by the first thread, once it has
        started.
        """
        self._name = name
        self._max = threads
        self._capacity = capacity
        self._on_error = on_error
        self._tick = tick
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._is_closed = False
        self._drops = False

    def start(self) -> None:
        """Start a thread now, so that ticks begin."""
        with self._lock:
            self._start_threads(1)

    def put(self, call: Call, *, overdraws: bool = False) -> bool:
        """Queue a call. Returns: whether it will be made; False when too many wait, and after
        `close`. `overdraws`: ignore the capacity.
        """
        with self._lock:
            is_full = self._capacity is not None and self._unfinished >= self._capacity
            if self._is_closed or (is_full and not overdraws):
                return False
            self._unfinished += 1
            self._start_threads(min(self._max, self._unfinished))
            self._calls.put(call)
        return True

    def close(self, timeout_s: float | None = None, *, drops: bool = False) -> None:
        """Take no more calls, and wait until the queued ones are made, at most `timeout_s`. Any
        thread.

        One of the own threads does not wait. `drops`: calls that have not begun are not made.
        """
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in self._threads:
                    self._calls.put(None)
            self._drops = self._drops or drops
            threads = [one for one in self._threads if one is not threading.current_thread()]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _start_threads(self, wanted: int) -> None:
        while len(self._threads) < wanted:
            place = len(self._threads)
            name = self._name if self._max == 1 else f"{self._name}-{place}"
            run = self._run_with_ticks if self._tick is not None and not place else self._run
            self._threads.append(threading.Thread(target=run, name=name, daemon=True))
            self._threads[-1].start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._make(call)

    def _run_with_ticks(self) -> None:
        assert self._tick is not None
        interval_s, tick = self._tick
        due_s = time.monotonic()
        while True:
            try:
                call = self._calls.get(timeout=max(0.0, due_s - time.monotonic()))
            except queue.Empty:
                due_s = time.monotonic() + interval_s
                self._guarded(tick)
                continue
            if call is None:
                return
            self._make(call)

    def _make(self, call: Call) -> None:
        try:
            if not self._drops:
                self._guarded(call)
        finally:
            with self._lock:
                self._unfinished -= 1

    def _guarded(self, call: Call) -> None:
        try:
            call()
        except BaseException as error:
            # No call may end the thread, not even by sys.exit(), because the thread makes the calls
            # of others too.
            self._on_error(error)
