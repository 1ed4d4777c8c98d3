"""The metrics of a task: a few counters for each heartbeat (`io`), and all of them for each report (`sections`).

Reads counters that the mailbox thread writes, without a lock. The task does no work for it per record. Source: Flink
TaskIOMetricGroup, TaskMetricGroup.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from penstock.engine.hosting.reporting.metrics.operators import ChainMetrics
from penstock.engine.hosting.taskmanager.task.builder import BuiltTask
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.task.network_metrics import NetworkFigures
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.hosting.taskmanager.task.task_registry import (
    MailboxProbe,
    TaskTimes,
    TimeFigures,
    add_checkpoint_metrics,
    add_details,
    add_mailbox_metrics,
    add_task_metrics,
    add_time_metrics,
)
from penstock.engine.metrics.registry import Registry
from penstock.engine.metrics.report_format import Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.metrics import gauge
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.task.mailbox import MIN_PRIORITY, MailboxClosed
from penstock.engine.runtime.task.time_gauge import TimeGauge

_LOGGER: Final = logging.getLogger(__name__)
_ALIVE: Final = frozenset({ExecutionState.INITIALIZING, ExecutionState.RUNNING})


class TaskMetrics:
    """The metrics of one attempt. `finish` stops its times."""

    def __init__(
        self, built: BuiltTask, attempt: TaskAttempt, checkpoints: TaskCheckpoints
    ) -> None:
        self._built = built
        self._attempt = attempt
        self._checkpoints = checkpoints
        self._times = TaskTimes()
        self._gauge = TimeGauge(self._times.began_ns)
        self._is_asking_gauges = False
        deployment = attempt.deployment
        self._variables = {
            "job_id": deployment.job_id,
            "job_name": deployment.job_name,
            "task_id": attempt.attempt_id.vertex_id,
            "task_name": deployment.vertex_name,
        }
        self._network = NetworkFigures(built.gates, built.partitions)
        self._spent = TimeFigures(attempt.processor, self._times)
        self._probe = MailboxProbe(self._put)
        self._chain = ChainMetrics(built.chain, self._variables)
        self._registry = self._registered()

    def _registered(self) -> Registry:
        registry, built, attempt = Registry(), self._built, self._attempt
        add_task_metrics(registry, built, self._chain, self._network)
        add_time_metrics(registry, self._times, self._spent)
        add_mailbox_metrics(registry, attempt.processor, self._probe)
        add_checkpoint_metrics(registry, self._checkpoints)
        registry.add(
            gauge(
                "isBackPressured",
                lambda: attempt.state in _ALIVE and not built.task.is_output_available,
            )
        )
        registry.more(lambda: self._chain.latencies(attempt.attempt_id.subtask))
        if attempt.host.task_settings.metrics.has_channel_details:
            add_details(registry, built)
        return registry

    def measure_start(self, start: Callable[[], None]) -> None:
        """Run the start of the task, which opens its operators. From then on these have metrics too."""
        self._times.initializing_ns = time.perf_counter_ns()
        start()
        self._times.running_ns = time.perf_counter_ns()

        def state_size(uid: str) -> int | None:
            return self._checkpoints.state_sizes.get(uid)

        self._chain.opened(state_size)

    def finish(self) -> None:
        self._times.ended_ns = time.perf_counter_ns()

    # ------------------------------------------------------------------ reports: any thread

    def update(self) -> None:
        """Move rates on. Every 5 s."""
        self._network.measure()
        self._registry.update()
        self._chain.update()

    def sections(self) -> Iterator[Section]:
        """All metrics, of the task and of its operators."""
        self._network.measure()
        self._spent.measure()
        attempt_id = self._attempt.attempt_id
        place = attempt_id.subtask, attempt_id.attempt
        operators = list(self._chain.sections(*place))
        yield Section(Component.TASK, self._variables, self._registry.measured(), *place)
        yield from operators

    def _put(self, action: Callable[[], None]) -> None:
        """Run an action as a mail that does not wake the default action."""
        with suppress(MailboxClosed):
            self._attempt.processor.executor(MIN_PRIORITY).execute(action, "a probe")

    # ------------------------------------------------------------------ heartbeats

    def update_gauges(self) -> None:
        """Read the user's gauges, by calling the user's functions. On the task's thread."""
        self._is_asking_gauges = False
        for complaint in self._built.chain.user_metrics.update_gauges():
            _LOGGER.warning("%s", complaint)

    def _ask_gauges(self) -> None:
        """Ask the task to read its gauges for the next report. A busy task is asked once."""
        if self._built.chain.user_metrics.has_gauges and not self._is_asking_gauges:
            self._is_asking_gauges = True
            self._attempt.mail(self.update_gauges, "reading the user's gauges")

    def io(self) -> TaskIo:
        """Return the counters so far; they may lag by a batch."""
        self._ask_gauges()
        if self._attempt.state is ExecutionState.RUNNING:
            self._probe.tick(time.perf_counter_ns())
        user_metrics, left_out = self._built.chain.user_metrics.numbers()
        built, task = self._built, self._built.task
        now_ns = self._times.now_ns
        idle_ns, blocked_ns = self._attempt.processor.waited_ns(now_ns)
        shares = self._gauge.update(now_ns, idle_ns, blocked_ns)
        remote_in, remote_out = built.remote_bytes()
        return TaskIo(
            records_in=task.input.records_in,
            records_out=sum(output.records_out for output in task.outputs),
            bytes_in=built.bytes_in,
            bytes_out=self._network.bytes_out(),
            remote_bytes_in=remote_in,
            remote_bytes_out=remote_out,
            busy_ms=max(0, now_ns - self._times.began_ns - idle_ns - blocked_ns) // 1_000_000,
            idle_ms=idle_ns // 1_000_000,
            backpressured_ms=blocked_ns // 1_000_000,
            busy_ms_per_s=shares.busy,
            idle_ms_per_s=shares.idle,
            backpressured_ms_per_s=shares.backpressured,
            watermark_ms=task.told_watermark_ms,
            late_records_dropped=task.chain.late_records_dropped,
            buffers_in=built.buffers_in,
            buffers_out=built.buffers_out,
            mails=self._attempt.processor.mailbox.size,
            restored_local_bytes=self._checkpoints.restored_local_bytes,
            restored_remote_bytes=self._checkpoints.restored_remote_bytes,
            latencies=task.chain.latencies,
            user_metrics=user_metrics,
            user_metrics_left_out=left_out,
        )
