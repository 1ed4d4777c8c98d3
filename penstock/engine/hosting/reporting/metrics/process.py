"""Metrics of TaskManager and driver processes by the names of Flink's JVM metrics, with their
meaning in Python.

Metrics that the operating system does not provide are left out. The driver's process has the names
of Flink's JobManager. The owner of the store records them from time to time: `store.put(place,
registry.measured(), now_ms)`. Source: Flink MetricUtils.instantiateStatusMetrics
(docs/guides/metrics.md says what each name means here).
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.engine.metrics.registry import Registry
from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.metrics import Groups, OwnMetric, gauge

JVM: Final[Groups] = (("Status", None), ("JVM", None))
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PROC: Final = "/proc/self"
_ALL: Final = "All"
_GENERATIONS: Final = 3


class CpuLoad:
    """The share of all cores that the process has used since the last update. Source: Flink's CPU.Load."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._seen = clock_ns(), time.process_time_ns()
        self.share = 0.0

    def update(self) -> None:
        """Measure since the last call. Every 5 s."""
        now = self._clock_ns(), time.process_time_ns()
        wall, used = now[0] - self._seen[0], now[1] - self._seen[1]
        self._seen = now
        if wall > 0:
            self.share = max(0.0, min(1.0, used / (wall * (os.cpu_count() or 1))))


class GarbageTimes:
    """How long Python's collector has run, by generation, since `start`. One for each process, because the hook is the process's."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._began_ns = 0
        self.spent_ns = [0] * _GENERATIONS

    def hook(self, phase: str, info: dict[str, Any]) -> None:
        """For `gc.callbacks`."""
        if phase == "start":
            self._began_ns = self._clock_ns()
        elif self._began_ns:
            self.spent_ns[info["generation"]] += self._clock_ns() - self._began_ns
            self._began_ns = 0

    def ms(self, generation: int) -> int:
        return self.spent_ns[generation] // 1_000_000


_GARBAGE: Final = GarbageTimes()


def garbage_times() -> GarbageTimes:
    """The times of this process. The first call begins to measure."""
    if _GARBAGE.hook not in gc.callbacks:
        gc.callbacks.append(_GARBAGE.hook)
    return _GARBAGE


def add_process_metrics(registry: Registry, most_memory: int = 0) -> None:
    """Register the metrics of this process. `most_memory`: bytes that it is meant to take; 0: those of the machine."""
    _add_cpu(registry)
    _add_memory(registry, most_memory or machine_memory())
    _add_garbage(registry)
    registry.add(
        gauge("Count", thread_count, (*JVM, ("Threads", None))),
        gauge("ClassesLoaded", lambda: len(sys.modules), (*JVM, ("ClassLoader", None))),
        gauge("ClassesUnloaded", lambda: 0, (*JVM, ("ClassLoader", None))),
        gauge("Open", open_files, (*JVM, ("FileDescriptor", None))),
        gauge("Max", most_files, (*JVM, ("FileDescriptor", None))),
    )


def _add_cpu(registry: Registry) -> None:
    load, groups = CpuLoad(), (*JVM, ("CPU", None))
    registry.updated(load)
    registry.add(
        gauge("Load", lambda: load.share, groups), gauge("Time", time.process_time_ns, groups)
    )


def _add_memory(registry: Registry, most: int) -> None:
    memory: Groups = (*JVM, ("Memory", None))
    heap: Groups = (*memory, ("Heap", None))
    registry.add(
        gauge("Used", resident_bytes, heap),
        gauge("Committed", resident_bytes, heap),
        gauge("Max", lambda: most, heap),
    )
    registry.add(gauge("Used", arrow_bytes, (("Status", None), ("Arrow", None), ("Memory", None))))
    for kind in ("NonHeap", "Metaspace"):
        registry.add(*_constants((*memory, (kind, None)), Used=0, Committed=0, Max=-1))
    for kind in ("Direct", "Mapped"):
        registry.add(*_constants((*memory, (kind, None)), Count=0, MemoryUsed=0, TotalCapacity=0))


def _constants(groups: Groups, **values: int) -> list[OwnMetric]:
    return [gauge(name, partial(int, value), groups) for name, value in values.items()]


def _add_garbage(registry: Registry) -> None:
    """One collector for each of Python's generations: gen0 is the young one."""
    times = garbage_times()
    groups: Groups = (*JVM, ("GarbageCollector", None))
    for generation in range(_GENERATIONS):
        _add_collector(
            registry,
            (*groups, (f"gen{generation}", None)),
            partial(_collections, generation),
            partial(times.ms, generation),
        )
    _add_collector(
        registry,
        (*groups, (_ALL, None)),
        lambda: sum(map(_collections, range(_GENERATIONS))),
        lambda: sum(map(times.ms, range(_GENERATIONS))),
    )


def _collections(generation: int) -> int:
    return int(gc.get_stats()[generation]["collections"])


def _add_collector(
    registry: Registry, groups: Groups, count: Callable[[], int], spent_ms: Callable[[], int]
) -> None:
    registry.add(gauge("Count", count, groups), gauge("Time", spent_ms, groups))
    registry.meter("TimeMsPerSecond", spent_ms, groups)


def resident_bytes() -> int:
    """The memory that the process has in the machine's memory."""
    with open(f"{_PROC}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE


def arrow_bytes() -> int:
    """The memory that Arrow has lent to this process: columns and buffers; a part of the resident memory."""
    import pyarrow as pa

    return int(pa.total_allocated_bytes())


def machine_memory() -> int:
    """The memory of the machine in bytes; -1: unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * _PAGE
    except (ValueError, OSError, AttributeError):
        return -1


def thread_count() -> int:
    """Threads of the process, including those of libraries where the system reports them."""
    return _entries(f"{_PROC}/task") or threading.active_count()


def open_files() -> int | None:
    """Open file descriptors; None: unknown."""
    return _entries(f"{_PROC}/fd") or None


def most_files() -> int:
    """How many file descriptors the process may have."""
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _entries(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def driver_registry() -> Registry:
    """The metrics of this process. Call its `update` every 5 s."""
    registry = Registry()
    add_process_metrics(registry)
    return registry


def driver_place(host: str = "") -> Place:
    """Where they belong. `host`: the name under which others know this machine; empty: its own."""
    return Place(Component.JOBMANAGER, {"host": host or socket.gethostname()})
