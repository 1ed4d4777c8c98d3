"""Figures of a task's gates and partitions, added up once for each report. They are read outside the task's thread, without a lock.

Source: Flink NettyShuffleMetricFactory, InputBufferPoolUsageGauge, OutputBufferPoolUsageGauge. Differs: what stays in the process is never
encoded, so its bytes are estimated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.engine.metrics.registry import Registry
from penstock.engine.model.metrics import Groups, counter, gauge
from penstock.engine.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.partition.pipelined import PipelinedSubpartition
from penstock.engine.runtime.network.partition.result_partition import ResultPartition

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
    registry: Registry,
    gates: Sequence[SingleInputGate],
    partitions: Sequence[ResultPartition],
) -> None:
    """The queues of single gates and partitions (`taskmanager.network.detailed-metrics`)."""
    for place, gate in enumerate(gates):
        _add_queue(registry, (*INPUT, (str(place), None)), partial(_lengths, gate))
    for place, partition in enumerate(partitions):
        _add_queue(
            registry,
            (*OUTPUT, (str(place), None)),
            partial(_waiting, partition),
        )


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
