"""SourceInput: a SourceOperator as the input of a task, with what its reader may ask of the host.

Source: Flink StreamTaskSourceInput, SourceReaderContext.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.hosting.split_fetcher import FetcherThread
from penstock.model.errors import PenstockError
from penstock.model.graph.chain import ChainedOperator
from penstock.model.messages import ReportedWatermark, SplitRequest
from penstock.runtime.chain import user_code_error
from penstock.runtime.elements import Element
from penstock.runtime.source import SourceReader, SplitFetcher, SplitReader
from penstock.runtime.source_operator import SourceOperator, SourceSettings

if TYPE_CHECKING:
    from penstock.hosting.task_thread import TaskThread


class SourceInput:
    """`runtime.task.TaskInput`, `runtime.source.ReaderContext` and `runtime.source_operator.SourceClock` in one."""

    is_source = True
    inputs = 1
    held: Sequence[tuple[int, Element]] = ()

    def __init__(self, operator: SourceOperator, spec: ChainedOperator, thread: TaskThread) -> None:
        self._operator = operator
        self._thread = thread
        self._spec = spec
        self.wake_at_ms: int | None = None
        self.reader: SourceReader = operator.source.create_reader(self)

    def start(self) -> None:
        task_settings = self._thread.host.task_settings
        settings = SourceSettings(
            watermark_interval_ms=task_settings.watermark_interval_ms,
            latency_interval_ms=task_settings.latency_interval_ms,
            operator_id=self._spec.uid,
            subtask=self.subtask(),
            may_leave_splits_unaligned=task_settings.may_leave_splits_unaligned,
        )
        self._operator.start(self.reader, self, settings, self._report_watermark)
        self.reader.start()

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._operator.add_splits(splits)

    def allow_watermark(self, watermark_ms: int) -> None:
        """The coordinator of the alignment group says how far this source may run. Mailbox thread."""
        self._operator.allow(watermark_ms)

    def stop(self, *, drain: bool) -> None:
        """The job stops with a savepoint: read no more. Mailbox thread."""
        self._operator.stop(drain=drain)

    # ------------------------------------------------------------------ TaskInput

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        self.wake_at_ms = None
        try:
            elements = self._operator.poll()
        except PenstockError:
            raise
        except (Exception, SystemExit) as error:  # sys.exit() in user code is its failure
            raise user_code_error(self._spec, self._operator, error) from error
        if self._operator.next_wake_ms is not None:
            self.wake_at(self._operator.next_wake_ms)
        return (0, elements) if elements else None

    def poll_priority(self) -> tuple[int, Sequence[Element]] | None:
        """Nothing overtakes what a source reads."""
        return None

    @property
    def is_finished(self) -> bool:
        return self._operator.is_finished

    @property
    def records_in(self) -> int:
        return self._operator.records_out

    # ------------------------------------------------------------------ ReaderContext

    def subtask(self) -> int:
        return self._thread.attempt_id.subtask

    def parallelism(self) -> int:
        return self._thread.deployment.parallelism

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def active_ms(self) -> int:
        return self.monotonic_ms() - self._thread.backpressured_ms

    def _report_watermark(self, watermark_ms: int) -> None:
        node_id = self._spec.node_id
        self._thread.host.send(ReportedWatermark(self._thread.attempt_id, node_id, watermark_ms))

    def send_split_request(self) -> None:
        host = self._thread.host
        host.send(SplitRequest(self._thread.attempt_id, self._spec.node_id, host.host_name))

    def wake_at(self, monotonic_ms: int) -> None:
        if self.wake_at_ms is None or monotonic_ms < self.wake_at_ms:
            self.wake_at_ms = monotonic_ms

    def wake(self) -> None:
        self._thread.processor.notify_input()

    def start_fetcher(self, split_reader: SplitReader) -> SplitFetcher:
        return FetcherThread(split_reader, self.wake, f"penstock-fetcher-{self._spec.name[:40]}")
