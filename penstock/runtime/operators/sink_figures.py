"""What is measured of a sink and of its committer. Written by the task, read on any thread.

Source: Flink InternalSinkWriterMetricGroup, InternalSinkCommitterMetricGroup; differs: one operator writes and commits, so it has both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.model.metrics import MetricType, OwnMetric, counter, gauge
from penstock.runtime.checkpoint.two_phase_commit import CommitFigures, CommitterState
from penstock.runtime.sink import SendFigures


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
