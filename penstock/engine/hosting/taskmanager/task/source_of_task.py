"""The host of a source in a task of a TaskManager: talks to the enumerator by messages to the JobManager."""

from __future__ import annotations

from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.messages import ReportedWatermark, SourceEvent, SplitRequest
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.sources.operator import SourceSettings


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
