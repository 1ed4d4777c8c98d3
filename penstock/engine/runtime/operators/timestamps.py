"""Timestamps and watermarks in the middle of a dataflow. Source: Flink TimestampsAndWatermarksOperator.

Differs: timestamps of a batch at once; the generator sees the batch's largest one. Upstream watermarks
are dropped, except the last one (2^63-1); upstream status is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.runtime.elements import (
    IDLE,
    MAX_WATERMARK,
    MIN_WATERMARK,
    Batch,
    Element,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.operator import Accepts, Emitted, Operator, OperatorContext
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.watermarks.by_split import StatusOutput
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy, timestamp_max


class TimestampsAndWatermarksOperator(Operator):
    """Takes any kind of batch if the strategy needs no Python objects, else rows."""

    keeps_records = True
    calls_function = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy
        # Set per instance by the strategy, so that columns stay columns where possible.
        self.accepts = Accepts.ANY if strategy.takes_any_batch else Accepts.ROWS

    @property
    def handles_poison(self) -> bool:
        return True

    def in_batch(self) -> TimestampsAndWatermarksOperator:
        return TimestampsAndWatermarksOperator(self.strategy.in_batch())

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._context = context
        self._generator = self.strategy.create_generator()
        self._output = StatusOutput()
        self._schedule()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        if self.poison is not None:
            return self._stamped_parts(batch)
        return self._stamped(self.strategy.assign(batch))

    def _stamped(self, stamped: Batch) -> list[Element]:
        outputs = self._output.emit((stamped,))
        self._generator.on_events(timestamp_max(stamped))
        return outputs

    def _stamped_parts(self, batch: Batch) -> Iterator[Element]:
        for part in in_parts(self.strategy.assign, batch, self.put_aside):
            yield from self._stamped(part)

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        if watermark.timestamp_ms != MAX_WATERMARK:
            return ()
        return self._output.emit((watermark,))

    def process_status(self, status: WatermarkStatus, input_index: int) -> Emitted:
        return ()

    def on_processing_time(self, now_ms: int) -> Emitted:
        self._schedule()
        return self._periodic(self._active_ms())

    def finish(self) -> Emitted:
        self._context.timers.cancel()
        return self._periodic(self._active_ms())

    def _active_ms(self) -> int:
        """The clock for idleness. It stands still while this operator cannot emit."""
        return (self._context.services.active_ms or self._context.timers.now_ms)()

    def _periodic(self, now_ms: int) -> list[Element]:
        watermark = self._generator.on_periodic(now_ms)
        if watermark is None:
            return self._output.emit((IDLE,))
        return self._output.emit((Watermark(watermark),) if watermark > MIN_WATERMARK else ())

    def _schedule(self) -> None:
        interval_ms = self._context.watermark_interval_ms
        if interval_ms > 0:
            self._context.timers.schedule(self._context.timers.now_ms() + interval_ms)
