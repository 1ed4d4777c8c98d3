"""The metrics of a task, for each heartbeat. Reads counters that the mailbox thread writes, without
a lock.

Source: Flink TaskIOMetricGroup, TaskMetricGroup. The task does no work for it per record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.hosting.task.builder import BuiltTask
from penstock.hosting.task.checkpoints import TaskCheckpoints
from penstock.model.messages import TaskIo
from penstock.runtime.task.mailbox_processor import MailboxProcessor
from penstock.runtime.task.time_gauge import TimeGauge

_LOGGER: Final = logging.getLogger(__name__)


class TaskMetrics:
    """The metrics of one attempt. `finish` stops its times."""

    def __init__(
        self,
        built: BuiltTask,
        processor: MailboxProcessor,
        checkpoints: TaskCheckpoints,
        mail: Callable[[Callable[[], None], str], None],
    ) -> None:
        """`mail(action, description)`: runs the action on the task's thread, unless the task is ending."""
        self._built = built
        self._checkpoints = checkpoints
        self._processor = processor
        self._started_ns = time.perf_counter_ns()
        self._ended_ns = 0
        self._gauge = TimeGauge(self._started_ns)
        self._mail = mail
        self._is_asking_gauges = False

    def finish(self) -> None:
        self._ended_ns = time.perf_counter_ns()

    def update_gauges(self) -> None:
        """Read the user's gauges, by calling the user's functions. On the task's thread."""
        self._is_asking_gauges = False
        for complaint in self._built.chain.user_metrics.update_gauges():
            _LOGGER.warning("%s", complaint)

    def _ask_gauges(self) -> None:
        """Ask the task to read its gauges for the next report. A busy task is asked once."""
        if self._built.chain.user_metrics.has_gauges and not self._is_asking_gauges:
            self._is_asking_gauges = True
            self._mail(self.update_gauges, "reading the user's gauges")

    def io(self) -> TaskIo:
        """Return the counters so far; they may lag by a batch."""
        self._ask_gauges()
        user_metrics, left_out = self._built.chain.user_metrics.numbers()
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
            user_metrics=user_metrics,
            user_metrics_left_out=left_out,
        )
