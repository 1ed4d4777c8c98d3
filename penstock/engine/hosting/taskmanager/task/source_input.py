"""SourceInput: a SourceOperator as the input of a task, with what its reader may ask of the host.

Source: Flink StreamTaskSourceInput, SourceReaderContext.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.hosting.taskmanager.task.split_fetcher import FetcherThread
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.runtime.elements import Element
from penstock.engine.runtime.interruption import UNWATCHED, OperatorCalls, uninterruptible
from penstock.engine.runtime.sources.contract import SourceReader, SplitFetcher, SplitReader
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.fields_read import fields_read
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error


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
        """`calls`: told when the reader's code runs."""
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

    def now_ms(self) -> int:
        return wall_ms()

    def monotonic_ms(self) -> int:
        return monotonic_ms()

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
