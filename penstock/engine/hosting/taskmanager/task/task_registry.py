"""The metrics of a task as such: counts, time, mailbox, checkpoints, network. Read outside the task's thread, without a lock.

Source: Flink TaskIOMetricGroup, StreamTask's own metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.engine.hosting.reporting.metrics.operators import ChainMetrics
from penstock.engine.hosting.taskmanager.task.builder import BuiltTask
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.task.network_metrics import (
    NETTY,
    NetworkFigures,
    add_network_metrics,
    add_queue_details,
)
from penstock.engine.metrics.registry import Histogram, LongestTime, Registry
from penstock.engine.model.metrics import Groups, counter, gauge
from penstock.engine.runtime.elements import MIN_WATERMARK
from penstock.engine.runtime.task.mailbox import MailboxProcessor
from penstock.engine.runtime.task.time_gauge import TimeGauge, TimeShares

PROBES: Final = 60
"""How many latencies of the mailbox are kept. There is a probe each second."""
PROBE_NS: Final = 1_000_000_000


class MailboxProbe:
    """Puts a mail now and then, and measures how long it waits. Nothing is put while one waits."""

    def __init__(self, put: Callable[[Callable[[], None]], None]) -> None:
        """`put`: runs the action on the task's thread, unless the task is ending."""
        self._put = put
        self._sent_ns = 0
        self._is_out = False
        self.latencies = Histogram(PROBES)

    def tick(self, now_ns: int) -> None:
        """Probe, if the last probe is a second old and back."""
        if not self._is_out and now_ns - self._sent_ns >= PROBE_NS:
            self._sent_ns, self._is_out = now_ns, True
            self._put(self._arrived)

    def _arrived(self) -> None:
        waited_ns = time.perf_counter_ns() - self._sent_ns
        self.latencies.add(waited_ns // 1_000_000)
        self._is_out = False


@dataclass(slots=True)
class TaskTimes:
    """When the task began, started its operators, ran, and ended: `time.perf_counter_ns`; 0: not yet."""

    began_ns: int = field(default_factory=time.perf_counter_ns)
    initializing_ns: int = 0
    running_ns: int = 0
    ended_ns: int = 0

    @property
    def now_ns(self) -> int:
        """Now, or the end of the task."""
        return self.ended_ns or time.perf_counter_ns()

    @property
    def initialization_ms(self) -> int:
        """From the start of its operators until it runs."""
        if not self.initializing_ns:
            return 0
        return ((self.running_ns or self.now_ns) - self.initializing_ns) // 1_000_000


class TimeFigures:
    """How the task has spent its time, as of the last `measure`."""

    def __init__(self, processor: MailboxProcessor, times: TaskTimes) -> None:
        self._processor = processor
        self._times = times
        self._gauge = TimeGauge(times.began_ns)
        self._longest = LongestTime()
        self._blocked_before_ns = 0
        self.shares = TimeShares()
        self.idle_ms = 0
        self.blocked_ms = 0
        self.busy_ms = 0

    def measure(self) -> None:
        """Before metrics are read."""
        now_ns = self._times.now_ns
        idle_ns, blocked_ns = self._processor.waited_ns(now_ns)
        self.shares = self._gauge.update(now_ns, idle_ns, blocked_ns)
        self.idle_ms, self.blocked_ms = idle_ns // 1_000_000, blocked_ns // 1_000_000
        spent_ns = now_ns - self._times.began_ns - idle_ns - blocked_ns
        self.busy_ms = max(0, spent_ns) // 1_000_000

    def update(self) -> None:
        """End a window of 5 s."""
        processor = self._processor
        longest_ns, processor.longest_blocked_ns = processor.longest_blocked_ns, 0
        _, blocked_ns = processor.waited_ns(self._times.now_ns)
        # A wait that lasts has no end yet, and cannot be longer than what was added since.
        lasting_ns = blocked_ns - processor.backpressured_ns
        self._longest.add(max(longest_ns, lasting_ns) // 1_000_000)
        self._longest.update()

    @property
    def longest_blocked_ms(self) -> int:
        return self._longest.last_ms


def add_task_metrics(
    registry: Registry, built: BuiltTask, chain: ChainMetrics, figures: NetworkFigures
) -> None:
    """Records, bytes, timers, the network, the watermark."""
    task = built.task
    registry.add(
        counter("numRecordsIn", lambda: records_in(built), has_rate=True),
        counter(
            "numRecordsOut", lambda: sum(one.records_out for one in task.outputs), has_rate=True
        ),
        counter("numBytesIn", lambda: built.bytes_in, has_rate=True),
        counter("numFiredTimers", lambda: chain.fired_timers, has_rate=True),
        gauge("userMetricsLeftOut", lambda: chain.allowance.left_out),
    )
    if not task.input.is_source:
        registry.add(gauge("currentInputWatermark", lambda: task.watermark_ms))
    add_network_metrics(registry, figures)
    _add_debloating(registry, built)


def records_in(built: BuiltTask) -> int:
    """What the task has read; of a source what its reader counts."""
    task = built.task
    if not task.input.is_source:
        return task.input.records_in
    return sum(node.operator.records_read for node in built.chain.nodes[:1])


def add_details(registry: Registry, built: BuiltTask) -> None:
    add_queue_details(registry, built.gates, built.partitions)


def _add_debloating(registry: Registry, built: BuiltTask) -> None:
    """The debloaters of the gates are made after this."""

    def worst_ms() -> int:
        return max((one.debloater.estimated_ms for one in built.debloating), default=MIN_WATERMARK)

    registry.add(gauge("estimatedTimeToConsumeBuffersMs", worst_ms))

    def estimated_ms(place: int) -> int:
        return built.debloating[place].debloater.estimated_ms

    def announced_bytes(place: int) -> int:
        return built.debloating[place].debloater.announced_bytes

    for place in range(len(built.gates)):
        groups: Groups = (*NETTY, ("Input", None), (str(place), None))
        registry.add(
            gauge("estimatedTimeToConsumeBuffersMs", partial(estimated_ms, place), groups),
            gauge("debloatedBufferSize", partial(announced_bytes, place), groups),
        )


def add_time_metrics(registry: Registry, times: TaskTimes, figures: TimeFigures) -> None:
    """How the time is spent. A task never blocks inside a record, so there is no hard back pressure."""
    registry.updated(figures)
    registry.add(
        gauge("idleTimeMsPerSecond", lambda: round(figures.shares.idle)),
        gauge("busyTimeMsPerSecond", lambda: figures.shares.busy),
        gauge("backPressuredTimeMsPerSecond", lambda: round(figures.shares.backpressured)),
        gauge("softBackPressuredTimeMsPerSecond", lambda: round(figures.shares.backpressured)),
        gauge("hardBackPressuredTimeMsPerSecond", lambda: 0),
        gauge("maxSoftBackPressureTimeMs", lambda: figures.longest_blocked_ms),
        gauge("maxHardBackPressureTimeMs", lambda: 0),
        gauge("changelogBusyTimeMsPerSecond", lambda: 0),
        gauge("accumulateIdleTimeMs", lambda: figures.idle_ms),
        gauge("accumulateBackPressuredTimeMs", lambda: figures.blocked_ms),
        gauge("accumulateBusyTimeMs", lambda: float(figures.busy_ms)),
        counter("initializationTime", lambda: times.initialization_ms),
    )


def add_mailbox_metrics(
    registry: Registry, processor: MailboxProcessor, probe: MailboxProbe
) -> None:
    registry.meter("mailboxMailsPerSecond", lambda: processor.mails)
    registry.histogram("mailboxLatencyMs", probe.latencies)
    registry.add(gauge("mailboxQueueSize", lambda: processor.mailbox.size))


def add_checkpoint_metrics(registry: Registry, checkpoints: TaskCheckpoints) -> None:
    def alignment_ns() -> int | None:
        found = checkpoints.alignment_ms
        return None if found is None else found * 1_000_000

    registry.add(
        gauge("checkpointAlignmentTime", alignment_ns),
        gauge("checkpointStartDelayNanos", lambda: int(checkpoints.start_delay_ms * 1e6)),
    )
