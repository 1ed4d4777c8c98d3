"""Sinks whose output one subtask commits for all writers, in one commit for a checkpoint. Does not know any table or broker.

`WriterOperator` runs the writers, and hands what they prepare over an exchange to one `SinkOperator`, whose sink is a
`GatheringSink`. An unaligned barrier may overtake it: then it is a part of the checkpoint's records in flight, and the next
checkpoint commits it.
Source: Flink SinkWriterOperator, GlobalCommitterOperator, StandardSinkTopologies.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.operator import Accepts, Emitted
from penstock.engine.runtime.operators.sinks import SinkOperator
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.sink import (
    CheckpointedWriter,
    Committer,
    Sink,
    SinkWriter,
    StatefulWriter,
    WriterContext,
)


class WriterOperator(SinkOperator):
    """Runs one writer per subtask, and emits what it prepares: before a barrier, and at the end of the input."""

    _has_ended = False

    def finish(self) -> Emitted:
        writer = self._opened
        self._has_ended = True
        if isinstance(writer, StatefulWriter):
            writer.end_input()
        return _rows(writer.prepare_commit())

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Emitted:
        writer = self._opened
        if self._has_ended:  # Nobody reads what comes behind the end of the data.
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
