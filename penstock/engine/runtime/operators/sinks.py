"""The ends of a dataflow: user sinks, print and collect. They do not know the driver: they emit, and the task sends.

Source: Flink SinkWriterOperator, PrintSinkOutputWriter, CollectSinkFunction; differs: printed lines and
collected values leave the task as batches on a driver stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.errors import EngineBug, ExternalError, FinalError
from penstock.engine.model.metrics import MetricType, OwnMetric, counter, gauge
from penstock.engine.model.texts.bounded_text import MOST_OF_LINE, bounded_repr, cut
from penstock.engine.runtime.checkpoint.two_phase_commit import CommitFigures, CommitterState
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import (
    MIN_WATERMARK,
    Batch,
    ColumnBatch,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.operator import Accepts, Emitted, Operator, OperatorContext
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.records.text import format_batch
from penstock.engine.runtime.sink import (
    CheckpointedWriter,
    Committer,
    ConvertingWriter,
    MeasuredWriter,
    SendFigures,
    Sink,
    SinkWriter,
    StatefulWriter,
    WriterContext,
)
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot

# ---------------------------------------------------------------------- sink figures
# What is measured of a sink and of its committer. Written by the task, read on any thread.
#
# Source: Flink InternalSinkWriterMetricGroup, InternalSinkCommitterMetricGroup; differs: one
# operator writes and commits, so it has both.


@dataclass(slots=True)
class SinkFigures:
    """Counts of one subtask. `send_ms`: how long the last batch took."""

    records: int = 0
    send_ms: int = 0

    def wrote(self, records: int, took_ms: int) -> None:
        """A batch was written."""
        self.records += records
        self.send_ms = took_ms

    def metrics(
        self, sent: SendFigures, committer: Callable[[], CommitterState | None]
    ) -> Sequence[OwnMetric]:
        """Flink's metrics. `sent`: what the writer counts itself. `committer` returns None: nothing was to be committed yet."""
        return (
            counter("numRecordsSend", lambda: self.records),
            counter("numRecordsOut", lambda: self.records, has_rate=True),
            counter("numBytesSend", lambda: sent.bytes),
            counter("numBytesOut", lambda: sent.bytes, has_rate=True),
            counter("numRecordsSendErrors", lambda: sent.errors),
            counter("numRecordsOutErrors", lambda: sent.errors),
            gauge("currentSendTime", lambda: self.send_ms),
            *_committer_metrics(committer),
        )


def _committer_metrics(committer: Callable[[], CommitterState | None]) -> Sequence[OwnMetric]:
    def figure(read: Callable[[CommitFigures], int]) -> Callable[[], int | None]:
        def of_now() -> int | None:
            found = committer()
            return None if found is None else read(found.figures)

        return of_now

    def pending() -> int | None:
        found = committer()
        return None if found is None else found.pending_count

    return (
        OwnMetric("totalCommittables", MetricType.COUNTER, figure(lambda one: one.total)),
        OwnMetric("successfulCommittables", MetricType.COUNTER, figure(lambda one: one.successful)),
        OwnMetric("retriedCommittables", MetricType.COUNTER, figure(lambda one: one.retried)),
        OwnMetric("failedCommittables", MetricType.COUNTER, figure(lambda one: one.failed)),
        OwnMetric("alreadyCommittedCommittables", MetricType.COUNTER, figure(lambda _one: 0)),
        gauge("pendingCommittables", pending),
    )


# ---------------------------------------------------------------------- sinks


COMMITTABLES: Final = "committables"
WRITER_STATE: Final = "writer"


class SinkOperator(Operator):
    """Runs one writer per subtask. What the writer prepared for a checkpoint is committed here when that checkpoint completes.
    What it prepared at the end goes to the committer on the driver, unless there is a final checkpoint.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._committer: CommitterState | None = None
        self._close_committer: Callable[[], None] = _nothing
        self._restored: list[tuple[int, object]] = []
        self._restored_state: list[object] = []
        self.accepts = sink.accepts
        self._writer: SinkWriter | None = None
        self._watermark_ms = MIN_WATERMARK

    def own_metrics(self) -> Sequence[OwnMetric]:
        writer = self._writer
        sent = writer.sent if isinstance(writer, MeasuredWriter) else SendFigures()
        return self._figures.metrics(sent, lambda: self._committer)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._context = context
        self._figures = SinkFigures()
        self._kind = context.input_types[0] if context.input_types else None
        writer_context = WriterContext(
            subtask=context.subtask,
            parallelism=context.parallelism,
            attempt=context.attempt,
            job_prefix=context.file_prefix,
            attempt_prefix=f"{context.file_prefix}.{context.subtask}.{context.attempt}",
            input_type=self._kind,
            restored_checkpoint_id=context.restored_checkpoint_id,
            is_batch=context.is_batch,
            operator_id=context.operator_id,
        )
        if self._restored:
            self._commit_restored()
        self._writer = self.sink.create_writer(writer_context)
        if self._restored_state:
            self._restore_writer(self._writer)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        writer = self._writer
        assert writer is not None, "a sink was fed before it was opened"
        began_ms = self._context.timers.now_ms()
        if not self.sink.is_converting or not isinstance(writer, ConvertingWriter):
            writer.write(batch, self._watermark_ms)
        elif self.poison is None:
            self._write_or_name(writer, batch)
        else:
            for converted in self._converted(writer, batch):
                writer.write_converted(converted, self._watermark_ms)
        self._figures.wrote(len(batch), self._context.timers.now_ms() - began_ms)
        return ()

    def _write_or_name(self, writer: SinkWriter, batch: Batch) -> None:
        """Raises: what the writer raises, with the record that it cannot convert."""
        try:
            writer.write(batch, self._watermark_ms)
        except (ExternalError, EngineBug):
            raise
        except Exception:  # Converters and clients raise errors of any kind.
            assert isinstance(writer, ConvertingWriter), "asked before"
            for _converted in self._converted(writer, batch):
                """The record that cannot be converted raises; `write` may have failed elsewhere."""
            raise

    def _converted(self, writer: ConvertingWriter, batch: Batch) -> Iterator[Any]:
        """What the writer makes of the batch; the records that it cannot convert are put aside."""
        for rows in in_parts(self._as_rows, batch, self.put_aside):
            yield from in_parts(writer.convert, rows, self.put_aside)

    def _as_rows(self, batch: Batch) -> Batch:
        """What is put aside is a record, also where the writer takes columns. Raises: as `to_rows`."""
        return to_rows(batch, self._kind) if isinstance(batch, ColumnBatch) else batch

    @property
    def handles_poison(self) -> bool:
        return self.sink.is_converting

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        self._watermark_ms = watermark.timestamp_ms
        return (watermark,)

    def process_latency_marker(self, marker: LatencyMarker) -> Emitted:
        return ()

    def on_processing_time(self, now_ms: int) -> Emitted:
        """Try again the commits that were put off."""
        if self._committer is not None:
            self._committer.retry()
            self._schedule(self._committer)
        return ()

    @property
    def has_put_off(self) -> bool:  # type: ignore[override] # what the base sets, this one asks for
        """Whether commits have to be tried again before the task ends."""
        return self._committer is not None and self._committer.retry_after_ms is not None

    def finish(self) -> Emitted:
        assert self._writer is not None, "a sink was finished before it was opened"
        if isinstance(self._writer, StatefulWriter):
            self._writer.end_input()
        if self._context.has_final_checkpoint:
            return ()
        earlier = [] if self._committer is None else self._committer.take()
        for committable in (*earlier, *self._writer.prepare_commit()):
            if self._context.services.report_committable is not None:
                self._context.services.report_committable(committable)
        return ()

    # ------------------------------------------------------------------ checkpoints

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Emitted:
        writer = self._writer
        assert writer is not None, "a sink was asked for a snapshot before it was opened"
        if isinstance(writer, CheckpointedWriter):
            prepared = writer.prepare_checkpoint(checkpoint_id)
        else:
            prepared = writer.prepare_commit()
        committer = self._make_committer()
        if committer is not None:
            committer.add(checkpoint_id, prepared)
            committer.expect(checkpoint_id, len(prepared))
        return ()

    def snapshot(self) -> OperatorSnapshot:
        """(checkpoint, committable) of everything that is prepared and not committed, and the writer's state."""
        lists: dict[str, ListPart] = {}
        if self._committer is not None:
            pending = list(self._committer.pending())
            lists[COMMITTABLES] = ListPart(RedistributionMode.SPLIT, pending)
        writer = self._writer
        if writer is not None and isinstance(writer, StatefulWriter):
            kept = list(writer.snapshot_state())
            lists[WRITER_STATE] = ListPart(RedistributionMode.SPLIT, kept)
        return OperatorSnapshot(lists=lists)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = list(snapshot.elements(COMMITTABLES))
        self._restored_state = list(snapshot.elements(WRITER_STATE))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._committer is not None:
            self._committer.complete(checkpoint_id)
            self._schedule(self._committer)

    def _restore_writer(self, writer: SinkWriter) -> None:
        state, self._restored_state = self._restored_state, []
        if not isinstance(writer, StatefulWriter):
            raise FinalError(
                f"{self._context.operator_name}: the checkpoint has state of another sink's writer: "
                f"{bounded_repr(state[0], 200)}. This sink cannot restore it. Give the new "
                "sink another uid, "
                "and drop the old one's state (-n)."
            )
        writer.restore_state(state)

    def _commit_restored(self) -> None:
        """Commit what the restored checkpoint has prepared: the checkpoint was completed, but whether these were
        committed is not known.
        """
        restored, self._restored = self._restored, []
        committer = self._make_committer()
        if committer is None:
            raise EngineBug(
                f"{self._context.operator_name} has no committer for restored committables"
            )
        for checkpoint_id, committable in restored:
            committer.add(checkpoint_id, (committable,))
        committer.complete(max(checkpoint_id for checkpoint_id, _ in restored))
        self._schedule(committer)

    def _make_committer(self) -> CommitterState | None:
        """Make the committer with the first checkpoint. Without checkpoints the driver commits."""
        if self._committer is None:
            committer = self.sink.create_committer()
            if committer is not None:
                self._committer = CommitterState(committer.commit)
                self._close_committer = committer.close
        return self._committer

    def _schedule(self, committer: CommitterState) -> None:
        if committer.retry_after_ms is not None:
            timers = self._context.timers
            timers.schedule(timers.now_ms() + committer.retry_after_ms)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        finally:
            self._close_committer()


def _nothing() -> None:
    """For a sink without a committer."""


class PrintOperator(Operator):
    """Formats records to finished lines `id:N> text`: N counts from 1 and is left out at parallelism 1; id if given.

    A text of more than `MOST_OF_LINE` characters is cut, and the line says so.
    """

    keeps_records = True

    def __init__(self, identifier: str | None = None) -> None:
        self.identifier = identifier

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        parts = [self.identifier] if self.identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask + 1))
        self._prefix = f"{':'.join(parts)}> " if parts else ""
        self._type = context.input_types[0] if context.input_types else None

    def process(self, batch: Batch, input_index: int) -> Emitted:
        texts = format_batch(rows_of(batch).values, self._type)
        if max(map(len, texts), default=0) > MOST_OF_LINE:
            texts = [cut(text, MOST_OF_LINE) for text in texts]
        if self._prefix:
            prefix = self._prefix
            texts = [prefix + text for text in texts]
        return (RowBatch(texts),)


class CollectOperator(Operator):
    """Passes records on unchanged."""

    keeps_records = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return (batch,)


class WriterOperator(SinkOperator):
    """Sinks whose output one subtask commits for all writers, in one commit for a checkpoint. Does not know any table or
    broker.

    `WriterOperator` runs the writers, and hands what they prepare over an exchange to one `SinkOperator`, whose sink is
    a `GatheringSink`. An unaligned barrier may overtake it: then it is a part of the checkpoint's records in flight,
    and the next checkpoint commits it. Source: Flink SinkWriterOperator, GlobalCommitterOperator,
    StandardSinkTopologies.

    Runs one writer per subtask, and emits what it prepares: before a barrier, and at the end of the input.
    """

    _has_ended = False

    def finish(self) -> Emitted:
        writer = self._opened
        self._has_ended = True
        if isinstance(writer, StatefulWriter):
            writer.end_input()
        return _rows(writer.prepare_commit())

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Emitted:
        writer = self._opened
        if self._has_ended:  # Nobody reads what comes after the end of the data.
            return ()
        if isinstance(writer, CheckpointedWriter):
            return _rows(writer.prepare_checkpoint(checkpoint_id))
        return _rows(writer.prepare_commit())

    @property
    def _opened(self) -> SinkWriter:
        assert self._writer is not None, "a sink was used before it was opened"
        return self._writer


class GatheringSink(Sink):
    """The sink of the one subtask: its writer gathers what the writers of `sink` have prepared."""

    accepts = Accepts.ROWS

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Gathering(self.sink, context)

    def create_committer(self) -> Committer | None:
        return self.sink.create_committer()


class _Gathering:
    def __init__(self, sink: Sink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._gathered: list[object] = []

    def write(self, batch: Batch, watermark_ms: int) -> None:
        self._gathered += rows_of(batch).values

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        return self._combined(checkpoint_id)

    def prepare_commit(self) -> Sequence[object]:
        return self._combined(None)

    def close(self) -> None:
        """What was gathered is a part of the checkpoint before it, or comes again."""

    def _combined(self, checkpoint_id: int | None) -> Sequence[object]:
        gathered, self._gathered = self._gathered, []
        return self._sink.combined(self._context, checkpoint_id, gathered) if gathered else []


def _rows(prepared: Sequence[object]) -> Emitted:
    return (RowBatch(list(prepared)),) if prepared else ()
