"""Ends of a dataflow: user sinks, print and collect. Know no driver: they emit, the task ships.

Source: Flink SinkWriterOperator, PrintSinkOutputWriter, CollectSinkFunction; differs: printed lines and
collected values leave the task as batches on a driver stream.
"""

from __future__ import annotations

from penstock.runtime.elements import MIN_WATERMARK, Batch, LatencyMarker, RowBatch, Watermark
from penstock.runtime.operator import Emitted, Operator, OperatorContext
from penstock.runtime.operators.stateless import rows_of
from penstock.runtime.sink import Sink, SinkWriter, WriterContext
from penstock.runtime.text import format_batch


class SinkOperator(Operator):
    """One writer per subtask; what it prepared at the end goes to the committer on the driver."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.accepts = sink.accepts  # type: ignore[misc] # the sink decides, per instance
        self._writer: SinkWriter | None = None
        self._watermark_ms = MIN_WATERMARK

    def open(self, context: OperatorContext) -> None:
        self._context = context
        writer_context = WriterContext(
            subtask=context.subtask,
            parallelism=context.parallelism,
            attempt=context.attempt,
            job_prefix=context.job_id,
            attempt_prefix=context.file_prefix,
            input_type=context.input_types[0] if context.input_types else None,
        )
        self._writer = self.sink.create_writer(writer_context)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        assert self._writer is not None, "a sink was fed before it was opened"
        self._writer.write(batch, self._watermark_ms)
        return ()

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        self._watermark_ms = watermark.timestamp_ms
        return (watermark,)

    def process_latency_marker(self, marker: LatencyMarker) -> Emitted:
        return ()

    def finish(self) -> Emitted:
        assert self._writer is not None, "a sink was finished before it was opened"
        for committable in self._writer.prepare_commit():
            if self._context.report_committable is not None:
                self._context.report_committable(committable)
        return ()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class PrintOperator(Operator):
    """Records to finished lines `id:N> text`: N from 1, left out at parallelism 1; id if given."""

    keeps_records = True

    def __init__(self, identifier: str | None = None) -> None:
        self.identifier = identifier

    def open(self, context: OperatorContext) -> None:
        parts = [self.identifier] if self.identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask + 1))
        self._prefix = f"{':'.join(parts)}> " if parts else ""
        self._type = context.input_types[0] if context.input_types else None

    def process(self, batch: Batch, input_index: int) -> Emitted:
        texts = format_batch(rows_of(batch).values, self._type)
        if self._prefix:
            prefix = self._prefix
            texts = [prefix + text for text in texts]
        return (RowBatch(texts),)


class CollectOperator(Operator):
    """Hands records on as they are."""

    keeps_records = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return (batch,)
