"""What a source is told and asks in a task of a TaskManager: by messages to the JobManager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.graph.chain import ChainedOperator
from penstock.model.messages import ReportedWatermark, SourceEvent, SplitRequest
from penstock.runtime.sources.operator import SourceSettings

if TYPE_CHECKING:
    from penstock.hosting.task.thread import TaskThread


class SourceOfTask:
    """`source_input.SourceHost`."""

    def __init__(self, thread: TaskThread, spec: ChainedOperator) -> None:
        task_settings = thread.host.task_settings
        checkpointing = thread.checkpoints.settings
        self._thread = thread
        self._node_id = spec.node_id
        self.parallelism = thread.deployment.parallelism
        self.settings = SourceSettings(
            watermark_interval_ms=task_settings.watermark_interval_ms,
            latency_interval_ms=task_settings.latency_interval_ms,
            operator_id=spec.uid,
            subtask=thread.attempt_id.subtask,
            may_leave_splits_unaligned=task_settings.may_leave_splits_unaligned,
            takes_checkpoints=checkpointing is not None and checkpointing.is_periodic,
        )

    def backpressured_ms(self) -> int:
        return self._thread.backpressured_ms

    def request_split(self) -> None:
        host = self._thread.host
        host.send(SplitRequest(self._thread.attempt_id, self._node_id, host.host_name))

    def send_source_event(self, event: object) -> None:
        self._thread.host.send(SourceEvent(self._thread.attempt_id, self._node_id, event))

    def report_watermark(self, watermark_ms: int) -> None:
        message = ReportedWatermark(self._thread.attempt_id, self._node_id, watermark_ms)
        self._thread.host.send(message)

    def wake(self) -> None:
        self._thread.processor.notify_input()
