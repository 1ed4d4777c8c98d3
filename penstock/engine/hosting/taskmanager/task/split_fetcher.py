"""FetcherThread: runs a SplitReader on its own thread, with a bounded hand-over to the
SourceReader.

Source: Flink SplitFetcher, FutureCompletingBlockingQueue (capacity 2), SplitFetcherManager.close;
differs: closing waits 1 s, not 30 s: a fetch that blocks must not make its whole TaskManager look
stuck.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.engine.hosting.os.interrupts import uninterruptible_condition
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.sources.contract import Fetched, SplitReader

CAPACITY: Final = 2
CLOSE_TIMEOUT_S: Final = 1.0


class FetcherThread:
    """`engine.runtime.sources.contract.SplitFetcher`. The thread waits while it has no split, or while the hand-over is full."""

    def __init__(self, reader: SplitReader, wake: Callable[[], None], name: str) -> None:
        """`wake`: called from the thread when there is something to poll."""
        self._reader = reader
        self._wake = wake
        self._changed = uninterruptible_condition()
        self._orders: deque[Callable[[], None]] = deque()
        self._results: deque[Fetched] = deque()
        self._open_splits = 0
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        with uninterruptible():
            self._thread.start()

    # ------------------------------------------------------------------ mailbox thread

    def add_splits(self, splits: Sequence[Any]) -> None:
        with self._changed:
            self._open_splits += len(splits)
        self.run(lambda: self._reader.add_splits(splits))

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        self.run(lambda: self._reader.pause_or_resume_splits(to_pause, to_resume))

    def poll(self) -> Fetched | None:
        with self._changed:
            if self._results:
                self._changed.notify()
                return self._results.popleft()
            if self._error is not None:
                raise self._error
            return None

    def close(self) -> None:
        """Make the thread close the reader and end. A fetch that does not wake up is left behind,
        and the thread closes the reader later.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._wake_up_reader()
        self._thread.join(CLOSE_TIMEOUT_S)

    def run(self, order: Callable[[], None]) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify()
        self._wake_up_reader()

    def _wake_up_reader(self) -> None:
        """The reader shares a lock with its own thread, which would wait for ever if a cancel left it taken."""
        with uninterruptible():
            self._reader.wake_up()

    # ------------------------------------------------------------------ the fetcher's thread

    def _run(self) -> None:
        self._guarded(self._turns)
        # After the error, if there is one: a client may wait in its end for a server that is away.
        self._guarded(self._reader.close)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Keeps the first error for `poll`."""
        try:
            step()
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
            self._wake()

    def _turns(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Carry out orders, then fetch once. False: closed."""
        with self._changed:
            self._changed.wait_for(self._may_go_on)
            if self._is_closed:
                return False
            orders = list(self._orders)
            self._orders.clear()
        for order in orders:
            order()
        if not self._open_splits:
            return True
        fetched = self._reader.fetch()
        if fetched.batches or fetched.finished:
            with self._changed:
                self._open_splits -= len(fetched.finished)
                self._results.append(fetched)
            self._wake()
        return True

    def _may_go_on(self) -> bool:
        if self._is_closed or self._orders:
            return True
        return bool(self._open_splits) and len(self._results) < CAPACITY
