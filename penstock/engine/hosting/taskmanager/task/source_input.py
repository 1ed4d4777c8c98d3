"""SourceInput: a SourceOperator as the input of a task, with what its reader may ask of the host.

Source: Flink StreamTaskSourceInput, SourceReaderContext.

The host of a source in a task of a TaskManager: talks to the enumerator by messages to the JobManager.

FetcherThread: runs a SplitReader on its own thread, with a bounded hand-over to the
SourceReader.

Source: Flink SplitFetcher, FutureCompletingBlockingQueue (capacity 2), SplitFetcherManager.close;
differs: closing waits 1 s, not 30 s: a fetch that blocks must not make its whole TaskManager look
stuck.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.hosting.os.interrupts import uninterruptible_condition
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.messages import ReportedWatermark, SourceEvent, SplitRequest
from penstock.engine.runtime.elements import Element
from penstock.engine.runtime.interruption import UNWATCHED, OperatorCalls, uninterruptible
from penstock.engine.runtime.sources.contract import (
    Fetched,
    SourceReader,
    SplitFetcher,
    SplitReader,
)
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.fields_read import fields_read
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error


class SourceOfTask:
    """`source_input.SourceHost`."""

    def __init__(self, attempt: TaskAttempt, spec: ChainedOperator) -> None:
        task_settings = attempt.host.task_settings
        checkpointing = task_settings.checkpointing
        self._attempt = attempt
        self._node_id = spec.node_id
        self.parallelism = attempt.deployment.parallelism
        self.settings = SourceSettings(
            watermark_interval_ms=task_settings.watermark_interval_ms,
            latency_interval_ms=task_settings.latency_interval_ms,
            operator_id=spec.uid,
            subtask=attempt.attempt_id.subtask,
            may_leave_splits_unaligned=task_settings.may_leave_splits_unaligned,
            takes_checkpoints=checkpointing is not None and checkpointing.is_periodic,
        )

    def backpressured_ms(self) -> int:
        return self._attempt.backpressured_ms

    def request_split(self) -> None:
        host = self._attempt.host
        host.send(SplitRequest(self._attempt.attempt_id, self._node_id, host.host_name))

    def send_source_event(self, event: object) -> None:
        self._attempt.host.send(SourceEvent(self._attempt.attempt_id, self._node_id, event))

    def report_watermark(self, watermark_ms: int) -> None:
        message = ReportedWatermark(self._attempt.attempt_id, self._node_id, watermark_ms)
        with uninterruptible():
            self._attempt.host.send(message)

    def wake(self) -> None:
        self._attempt.processor.notify_input()


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
        """Make the thread close the reader and end. A fetch that does not wake up is abandoned, and
        the thread closes the reader later.
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


class SourceHost(Protocol):
    """The task of a source, as its input sees it."""

    settings: SourceSettings
    parallelism: int

    def backpressured_ms(self) -> int:
        """How long the source could not read because its task's outputs were full."""

    def request_split(self) -> None: ...
    def send_source_event(self, event: object) -> None: ...
    def report_watermark(self, watermark_ms: int) -> None: ...
    def wake(self) -> None:
        """Make the task poll this input. Any thread."""


class SourceInput:
    """`engine.runtime.task.stream_task.TaskInput`, `engine.runtime.sources.contract.ReaderContext` and
    `engine.runtime.sources.operator.SourceClock` in one.
    """

    is_source = True
    has_read_all = True
    inputs = 1
    held: Sequence[tuple[int, Element]] = ()

    def __init__(
        self,
        operator: SourceOperator,
        spec: ChainedOperator,
        host: SourceHost,
        calls: OperatorCalls = UNWATCHED,
    ) -> None:
        """`calls`: gets a call when the reader's code runs."""
        self._operator = operator
        self._host = host
        self._spec = spec
        self._calls = calls
        self.wake_at_ms: int | None = None
        self.reader: SourceReader = operator.source.create_reader(self)

    def start(self, chain: OperatorChain) -> None:
        """`chain`: that of the source, whose operators are open."""
        read = fields_read(chain.nodes)
        with self._in_reader():
            if read is not None:
                self.reader.read_fields(read)
            self._operator.start(
                self.reader, self, self._host.settings, self._host.report_watermark
            )
            self.reader.start()

    def add_splits(self, splits: Sequence[Any]) -> None:
        with self._in_reader():
            self._operator.add_splits(splits)

    @contextmanager
    def _in_reader(self) -> Generator[None]:
        self._calls.entered(self._spec.name)
        try:
            yield
        finally:
            self._calls.left()

    def allow_watermark(self, watermark_ms: int) -> None:
        """Set the watermark up to which the alignment group lets this source run. Mailbox thread."""
        self._operator.allow(watermark_ms)

    def stop(self, *, drain: bool) -> None:
        """Stop reading, because the job stops with a savepoint. Mailbox thread."""
        self._operator.stop(drain=drain)

    # ------------------------------------------------------------------ TaskInput

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        self.wake_at_ms = None
        self._calls.entered(self._spec.name)
        try:
            elements = self._operator.poll()
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._spec, self._operator, error) from error
        finally:
            self._calls.left()
        if self._operator.next_wake_ms is not None:
            self.wake_at(self._operator.next_wake_ms)
        return (0, elements) if elements else None

    def poll_priority(self) -> tuple[int, Sequence[Element]] | None:
        """Does nothing: no barrier overtakes what a source reads."""
        return None

    @property
    def is_finished(self) -> bool:
        return self._operator.is_finished

    @property
    def records_in(self) -> int:
        return self._operator.records_out

    # ------------------------------------------------------------------ ReaderContext

    def subtask(self) -> int:
        return self._host.settings.subtask

    def parallelism(self) -> int:
        return self._host.parallelism

    now_ms = staticmethod(wall_ms)
    monotonic_ms = staticmethod(monotonic_ms)

    def active_ms(self) -> int:
        return self.monotonic_ms() - self._host.backpressured_ms()

    def takes_checkpoints(self) -> bool:
        return self._host.settings.takes_checkpoints

    def send_split_request(self) -> None:
        with uninterruptible():
            self._host.request_split()

    def send_source_event(self, event: object) -> None:
        with uninterruptible():
            self._host.send_source_event(event)

    def wake_at(self, monotonic_ms: int) -> None:
        if self.wake_at_ms is None or monotonic_ms < self.wake_at_ms:
            self.wake_at_ms = monotonic_ms

    def wake(self) -> None:
        with uninterruptible():
            self._host.wake()

    def start_fetcher(self, split_reader: SplitReader) -> SplitFetcher:
        return FetcherThread(split_reader, self.wake, f"penstock-fetcher-{self._spec.name[:40]}")
