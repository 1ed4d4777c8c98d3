"""SourceOperator: head of a chain that reads from outside. Source: Flink SourceOperator.

Drives a SourceReader, stamps records, keeps one watermark generator per split and emits the combined
watermark. `poll` returns what to emit; waiting is the task's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.errors import EngineBug
from penstock.runtime.convert import to_rows
from penstock.runtime.elements import MAX_WATERMARK, Batch, ColumnBatch, Element, EndOfData
from penstock.runtime.operator import Accepts, Operator
from penstock.runtime.source import ReaderStatus, Source, SourceReader, SplitBatch, SplitFinished
from penstock.runtime.split_watermarks import SplitWatermarks
from penstock.runtime.watermarks import WatermarkStrategy


class SourceOperator(Operator):
    """Built in the driver; `start` makes it live on a TaskManager."""

    accepts = Accepts.ANY

    def __init__(self, source: Source, watermark_strategy: WatermarkStrategy) -> None:
        self.source = source
        self.watermark_strategy = watermark_strategy
        self.records_out = 0
        self.is_finished = False
        self.next_periodic_ms: int | None = None
        self._reader: SourceReader | None = None

    def start(
        self, reader: SourceReader, monotonic_ms: Callable[[], int], interval_ms: int
    ) -> None:
        """`interval_ms` 0: no periodic watermarks, only the last one."""
        self._reader = reader
        self._clock_ms = monotonic_ms
        self._interval_ms = interval_ms
        self._watermarks = SplitWatermarks(self.watermark_strategy)
        if interval_ms > 0:
            self.next_periodic_ms = monotonic_ms() + interval_ms

    def poll(self) -> Sequence[Element]:
        """What the reader has, and the watermark when it is due; empty: nothing for now."""
        if self._reader is None:
            raise EngineBug("a source was polled before it was started")
        if self.is_finished:
            return ()
        elements: list[Element] = []
        polled = self._reader.poll_next()
        if isinstance(polled, SplitBatch):
            self.records_out += len(polled.batch)
            batch = self._as_wanted(polled.batch)
            elements.extend(self._watermarks.on_batch(polled.split_id, batch))
        elif isinstance(polled, SplitFinished):
            self._watermarks.unregister(polled.split_id)
        elif polled is ReaderStatus.END_OF_INPUT:
            self.is_finished = True
            self.next_periodic_ms = None
            return [*self._watermarks.on_end(MAX_WATERMARK), EndOfData(drain=True)]
        elements.extend(self._periodic())
        return elements

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def snapshot(self) -> dict[str, Any]:
        """The splits still to read, with their positions."""
        return {} if self._reader is None else {"splits": list(self._reader.snapshot_state())}

    def _as_wanted(self, batch: Batch) -> Batch:
        """An assigner that looks at records needs Python objects."""
        if isinstance(batch, ColumnBatch) and not self.watermark_strategy.takes_any_batch:
            return to_rows(batch, self.source.produced_type)
        return batch

    def _periodic(self) -> Sequence[Element]:
        if self.next_periodic_ms is None:
            return ()
        now_ms = self._clock_ms()
        if now_ms < self.next_periodic_ms:
            return ()
        self.next_periodic_ms = now_ms + self._interval_ms
        return self._watermarks.on_periodic(now_ms)
