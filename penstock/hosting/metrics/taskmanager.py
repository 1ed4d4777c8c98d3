"""The metrics of a TaskManager's process: those of any process, and its network memory. Source: Flink NettyShuffleMetricFactory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.hosting.metrics.machine import Machine, add_machine_metrics
from penstock.hosting.metrics.process import add_process_metrics
from penstock.hosting.metrics.reporter import MetricReporter
from penstock.hosting.metrics.settings import MetricSettings
from penstock.model.metrics import Groups, gauge
from penstock.observation.metrics.registry import Registry
from penstock.runtime.network.network_memory import NetworkMemory

MANAGED: Final[Groups] = tuple((word, None) for word in ("Status", "Flink", "Memory", "Managed"))
SHUFFLE: Final[Groups] = (("Status", None), ("Shuffle", None), ("Netty", None))


class ManagedMemory(Protocol):
    """The memory of state backends."""

    @property
    def memory_used(self) -> int: ...
    @property
    def memory_of_slot(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Memories:
    """The memory of a TaskManager that has limits. `slots`: how many slots share `managed`."""

    network: NetworkMemory
    managed: ManagedMemory
    slots: int


def taskmanager_reporter(
    name: str,
    host: str,
    memories: Memories,
    settings: MetricSettings,
    send: Callable[[bytes], None],
) -> MetricReporter:
    """What reports a TaskManager and its tasks. `name`: among the TaskManagers of all jobs of its driver. `send`: takes the payload of a report."""
    registry = Registry()
    if settings.report_interval_ms:
        add_process_metrics(registry)
        add_shuffle_metrics(registry, memories.network)
        managed, slots = memories.managed, memories.slots
        registry.add(
            gauge("Used", lambda: managed.memory_used, MANAGED),
            gauge("Total", lambda: managed.memory_of_slot * slots, MANAGED),
        )
        if settings.probing_interval_ms:
            add_machine_metrics(registry, Machine(settings.probing_interval_ms))
    variables = {"host": host, "tm_id": name}
    return MetricReporter(registry, variables, settings.report_interval_ms, send)


def add_shuffle_metrics(registry: Registry, memory: NetworkMemory) -> None:
    """The network memory. A segment is a buffer of the present size, which changes with the number of pools."""

    def total() -> int:
        return memory.total_bytes // memory.buffer_bytes

    def used() -> int:
        return memory.buffers_in_use

    registry.add(
        gauge("TotalMemorySegments", total, SHUFFLE),
        gauge("UsedMemorySegments", used, SHUFFLE),
        gauge("AvailableMemorySegments", lambda: max(0, total() - used()), SHUFFLE),
        gauge("TotalMemory", lambda: memory.total_bytes, SHUFFLE),
        gauge("UsedMemory", lambda: used() * memory.buffer_bytes, SHUFFLE),
        gauge("AvailableMemory", lambda: _free(memory), SHUFFLE),
        gauge("RequestedMemoryUsage", lambda: int(memory.requested_percent), SHUFFLE),
    )


def _free(memory: NetworkMemory) -> int:
    return max(0, memory.total_bytes - memory.buffers_in_use * memory.buffer_bytes)
