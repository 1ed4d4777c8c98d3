"""What a task reports of itself with each heartbeat. Reads counters that the mailbox thread writes, without a lock.

Source: Flink TaskIOMetricGroup, TaskMetricGroup. Costs the task nothing: it is asked, and not per record.
"""

from __future__ import annotations

import time

from penstock.hosting.task.builder import BuiltTask
from penstock.hosting.task.checkpoints import TaskCheckpoints
from penstock.model.messages import TaskIo
from penstock.runtime.task.mailbox_processor import MailboxProcessor
from penstock.runtime.task.time_gauge import TimeGauge


class TaskMetrics:
    """Of one attempt, from its start on. `finish` stops the time."""

    def __init__(
        self, built: BuiltTask, processor: MailboxProcessor, checkpoints: TaskCheckpoints
    ) -> None:
        self._built = built
        self._checkpoints = checkpoints
        self._processor = processor
        self._started_ns = time.perf_counter_ns()
        self._ended_ns = 0
        self._gauge = TimeGauge(self._started_ns)

    def finish(self) -> None:
        self._ended_ns = time.perf_counter_ns()

    def io(self) -> TaskIo:
        """Counters so far; they may be a batch apart."""
        built, task = self._built, self._built.task
        now_ns = self._ended_ns or time.perf_counter_ns()
        idle_ns, blocked_ns = self._processor.waited_ns(now_ns)
        shares = self._gauge.update(now_ns, idle_ns, blocked_ns)
        remote_in, remote_out = built.remote_bytes()
        return TaskIo(
            records_in=task.input.records_in,
            records_out=sum(output.records_out for output in task.outputs),
            bytes_in=built.bytes_in,
            bytes_out=remote_out,
            remote_bytes_in=remote_in,
            remote_bytes_out=remote_out,
            busy_ms=max(0, now_ns - self._started_ns - idle_ns - blocked_ns) // 1_000_000,
            idle_ms=idle_ns // 1_000_000,
            backpressured_ms=blocked_ns // 1_000_000,
            busy_ms_per_s=shares.busy,
            idle_ms_per_s=shares.idle,
            backpressured_ms_per_s=shares.backpressured,
            watermark_ms=task.watermark_ms,
            late_records_dropped=task.chain.late_records_dropped,
            buffers_in=built.buffers_in,
            buffers_out=built.buffers_out,
            mails=self._processor.mailbox.size,
            restored_local_bytes=self._checkpoints.restored_local_bytes,
            restored_remote_bytes=self._checkpoints.restored_remote_bytes,
            latencies=task.chain.latencies,
        )
