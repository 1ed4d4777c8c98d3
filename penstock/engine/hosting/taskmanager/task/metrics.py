"""The metrics of a task: a few counters for each heartbeat (`io`), and all of them for each report (`sections`).

Reads counters that the mailbox thread writes, without a lock. The task does no work for it per record. Source: Flink
TaskIOMetricGroup, TaskMetricGroup.

The metrics of a task as such: counts, time, mailbox, checkpoints, network. Read outside the task's thread, without a lock.

Source: Flink TaskIOMetricGroup, StreamTask's own metrics.

Figures of a task's gates and partitions, added up once for each report. They are read outside the task's thread, without a lock.

Source: Flink NettyShuffleMetricFactory, InputBufferPoolUsageGauge, OutputBufferPoolUsageGauge. Differs: what stays in the process is never
encoded, so its bytes are estimated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.engine.hosting.reporting.metrics.operators import ChainMetrics
from penstock.engine.hosting.taskmanager.task.builder import BuiltTask
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.metrics.registry import Histogram, LongestTime, Registry
from penstock.engine.metrics.report_format import Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.messages import FrequentKey, RecentFigures, TaskIo
from penstock.engine.model.metrics import Groups, counter, gauge
from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import MIN_WATERMARK
from penstock.engine.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.partition.pipelined import PipelinedSubpartition
from penstock.engine.runtime.network.partition.result_partition import ResultPartition
from penstock.engine.runtime.network.partitioner import Hash
from penstock.engine.runtime.task.mailbox import MIN_PRIORITY, MailboxClosed, MailboxProcessor
from penstock.engine.runtime.task.outputs import OutputWriter, PartitionWriter
from penstock.engine.runtime.task.time_gauge import (
    RECENT_NS,
    RECENT_UPDATE_NS,
    SlidingWindow,
    TimeGauge,
    TimeShares,
)

NETTY: Final[Groups] = (("Shuffle", None), ("Netty", None))
INPUT: Final[Groups] = (*NETTY, ("Input", None))
OUTPUT: Final[Groups] = (*NETTY, ("Output", None))
_BUFFERS: Final = ("Buffers", None)


@dataclass(slots=True)
class InputFigures:
    """Sums over the channels of all gates. `*_used` and `*_size`: buffers of remote channels."""

    bytes_local: int = 0
    bytes_remote: int = 0
    buffers_local: int = 0
    buffers_remote: int = 0
    queued: int = 0
    queued_bytes: int = 0
    exclusive_used: int = 0
    exclusive_size: int = 0
    floating_used: int = 0
    floating_size: int = 0

    def add(self, gate: SingleInputGate) -> None:
        has_remote = False
        for channel in gate.made:
            self.queued += channel.queued_buffers
            if not isinstance(channel, RemoteInputChannel):
                self.bytes_local += channel.bytes_in
                self.buffers_local += channel.buffers_in
                continue
            has_remote = True
            credit = channel.credit
            self.bytes_remote += channel.bytes_in
            self.buffers_remote += channel.buffers_in
            self.queued_bytes += channel.queued_bytes
            self.exclusive_size += credit.exclusive
            self.exclusive_used += credit.exclusive - credit.available_exclusive
            self.floating_used -= credit.available_floating
        if has_remote and not gate.is_closed:
            self.floating_used += gate.pool.in_use
            self.floating_size += gate.pool.size

    @property
    def exclusive_usage(self) -> float:
        return _share(self.exclusive_used, self.exclusive_size)

    @property
    def floating_usage(self) -> float:
        return _share(self.floating_used, self.floating_size)

    @property
    def usage(self) -> float:
        used = self.exclusive_used + self.floating_used
        return _share(used, self.exclusive_size + self.floating_size)


@dataclass(slots=True)
class OutputFigures:
    """Sums over the subpartitions of all partitions. `bytes`: what went over a socket, and an estimate of the rest."""

    bytes: int = 0
    buffers: int = 0
    queued: int = 0
    queued_bytes: int = 0
    used: int = 0
    size: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    local_bytes: int = 0

    def measure(self, partitions: Sequence[ResultPartition]) -> None:
        """Add up anew. What was estimated before stays as it was, so that `bytes` never falls."""
        self.buffers = self.queued = self.queued_bytes = self.used = self.size = remote = 0
        for partition in partitions:
            remote += partition.remote_bytes_out
            self.queued += partition.queued
            pool = partition.pool
            if pool is not None:
                self.used += pool.in_use
                self.size += pool.size
            for subpartition in partition.subpartitions:
                if isinstance(subpartition, PipelinedSubpartition):
                    self._add(subpartition)
        self.bytes = remote + self.local_bytes

    def _add(self, one: PipelinedSubpartition) -> None:
        self.buffers += one.taken
        self.queued_bytes += int(one.queue.rows * one.sizes.bytes_per_row)
        news = one.records - self.seen.get(id(one), 0)
        self.seen[id(one)] = one.records
        if not one.sizes.is_measured:
            self.local_bytes += int(news * one.sizes.bytes_per_row)

    @property
    def usage(self) -> float:
        return _share(self.used, self.size)


class NetworkFigures:
    """Both, as of the last `measure`."""

    def __init__(
        self, gates: Sequence[SingleInputGate], partitions: Sequence[ResultPartition]
    ) -> None:
        self._gates = gates
        self._partitions = partitions
        self._lock = threading.Lock()
        self.input = InputFigures()
        self.output = OutputFigures()

    def measure(self) -> None:
        """Add everything up. Before metrics are read."""
        found = InputFigures()
        for gate in self._gates:
            found.add(gate)
        self.input = found
        self.bytes_out()

    def bytes_out(self) -> int:
        """Add up what has left the task, and return its bytes. Heartbeats, reports and the end of a task come on different threads."""
        with self._lock:
            self.output.measure(self._partitions)
            return self.output.bytes


def add_network_metrics(registry: Registry, figures: NetworkFigures) -> None:
    """The metrics of gates and partitions. Names with `Netty` are Flink's; there is no Netty here."""
    for groups in (INPUT, ()):  # Those without groups are Flink's former ones, which it still has.
        registry.add(
            counter("numBytesInLocal", lambda: figures.input.bytes_local, groups, has_rate=True),
            counter("numBytesInRemote", lambda: figures.input.bytes_remote, groups, has_rate=True),
            counter(
                "numBuffersInLocal", lambda: figures.input.buffers_local, groups, has_rate=True
            ),
            counter(
                "numBuffersInRemote", lambda: figures.input.buffers_remote, groups, has_rate=True
            ),
        )
    incoming: Groups = (*INPUT, _BUFFERS)
    outgoing: Groups = (*OUTPUT, _BUFFERS)
    registry.add(
        counter("numBytesOut", lambda: figures.output.bytes, has_rate=True),
        counter("numBuffersOut", lambda: figures.output.buffers, has_rate=True),
        gauge("inputQueueLength", lambda: figures.input.queued, incoming),
        gauge("inputQueueSize", lambda: figures.input.queued_bytes, incoming),
        gauge("inPoolUsage", lambda: figures.input.usage, incoming),
        gauge("inputFloatingBuffersUsage", lambda: figures.input.floating_usage, incoming),
        gauge("inputExclusiveBuffersUsage", lambda: figures.input.exclusive_usage, incoming),
        gauge("outputQueueLength", lambda: figures.output.queued, outgoing),
        gauge("outputQueueSize", lambda: figures.output.queued_bytes, outgoing),
        gauge("outPoolUsage", lambda: figures.output.usage, outgoing),
    )


def add_queue_details(
    registry: Registry, gates: Sequence[SingleInputGate], partitions: Sequence[ResultPartition]
) -> None:
    """The queues of single gates and partitions (`taskmanager.network.detailed-metrics`)."""
    for place, gate in enumerate(gates):
        _add_queue(registry, (*INPUT, (str(place), None)), partial(_lengths, gate))
    for place, partition in enumerate(partitions):
        _add_queue(registry, (*OUTPUT, (str(place), None)), partial(_waiting, partition))


def _lengths(gate: SingleInputGate) -> list[int]:
    """Of all channels; those that nobody has made yet hold nothing."""
    found = [channel.queued_buffers for channel in gate.made]
    return found + [0] * (gate.channels - len(found))


def _waiting(partition: ResultPartition) -> list[int]:
    return [one.queued for one in partition.subpartitions]


def _add_queue(registry: Registry, groups: Groups, read: Callable[[], list[int]]) -> None:
    registry.add(
        gauge("totalQueueLen", lambda: sum(read()), groups),
        gauge("minQueueLen", lambda: min(read(), default=0), groups),
        gauge("maxQueueLen", lambda: max(read(), default=0), groups),
        gauge("avgQueueLen", lambda: sum(read()) / max(1, len(read())), groups),
    )


def _share(used: int, size: int) -> float:
    return max(0.0, used / size) if size else 0.0


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

    def __init__(
        self, processor: MailboxProcessor, times: TaskTimes, gauge: TimeGauge | None = None
    ) -> None:
        """`gauge`: of shares; None: over a minute, as Flink's metrics."""
        self._processor = processor
        self._times = times
        self._gauge = gauge or TimeGauge(times.began_ns)
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


_LOGGER: Final = logging.getLogger(__name__)
_MOST_OF_KEY: Final = 80
_ALIVE: Final = frozenset({ExecutionState.INITIALIZING, ExecutionState.RUNNING})


def frequent_keys(outputs: Iterable[OutputWriter]) -> tuple[FrequentKey, ...]:
    """Return the most frequent keys of the batches that keyed outputs sampled last, and have them sample their next ones."""
    found = []
    for output in outputs:
        if isinstance(output, PartitionWriter) and isinstance(output.partitioner, Hash):
            data_set_id = output.partition.partition_id.partition_id.data_set_id
            for one in output.partitioner.sample:
                key = bounded_repr(one.key, _MOST_OF_KEY)
                found.append(FrequentKey(data_set_id, one.channel, key, one.count, one.records))
            output.partitioner.is_sampled = True
    return tuple(found)


class TaskMetrics:
    """The metrics of one attempt. `finish` stops its times."""

    def __init__(
        self, built: BuiltTask, attempt: TaskAttempt, checkpoints: TaskCheckpoints
    ) -> None:
        self._built = built
        self._attempt = attempt
        self._checkpoints = checkpoints
        self._times = TaskTimes()
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
        began_ns = self._times.began_ns
        recent = TimeGauge(began_ns, RECENT_NS, RECENT_UPDATE_NS)
        self._spent_until_beat = TimeFigures(attempt.processor, self._times, recent)
        self._flows = SlidingWindow(began_ns, RECENT_NS, RECENT_UPDATE_NS)
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
            add_queue_details(registry, built.gates, built.partitions)
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
        spent = self._spent_until_beat
        spent.measure()
        remote_in, remote_out = built.remote_bytes()
        # A record counts when an operator takes it, as in Flink: a batch that waits for a full output was read, but not taken.
        records_in = max(0, task.input.records_in - task.slices.rows_left)
        records_out = sum(output.records_out for output in task.outputs)
        bytes_in, bytes_out = built.bytes_in, self._network.bytes_out()
        rates = self._flows.update(self._times.now_ns, records_in, records_out, bytes_in, bytes_out)
        return TaskIo(
            records_in=records_in,
            records_out=records_out,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            remote_bytes_in=remote_in,
            remote_bytes_out=remote_out,
            busy_ms=spent.busy_ms,
            idle_ms=spent.idle_ms,
            backpressured_ms=spent.blocked_ms,
            recent=RecentFigures(
                spent.shares.busy, spent.shares.idle, spent.shares.backpressured, *rates
            ),
            frequent_keys=frequent_keys(task.outputs),
            watermark_ms=task.reported_watermark_ms,
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
