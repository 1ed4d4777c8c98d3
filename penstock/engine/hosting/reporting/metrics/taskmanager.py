"""The metrics of a TaskManager's process: those of any process, and its network memory. Source: Flink NettyShuffleMetricFactory.

Reports the metrics of a process and of its tasks to the driver: moves rates on every 5 s, and reports when it is due. A new task is reported at
once, so that nobody waits for an interval until the subtasks of a rescaled job have metrics.

`tick` is called by the loop of the TaskManager, `ended` by the thread of a task that ends. Does not know what is measured.
Source: Flink MetricQueryService, MetricRegistryImpl; differs: reports by itself, without being asked.

What the configuration says of metrics, as far as a TaskManager needs it. Knows no metric.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from penstock.engine.hosting.reporting.metrics.process import add_process_metrics
from penstock.engine.metrics.registry import UPDATE_S, Registry
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.metrics import Groups, Measured, MetricType, gauge
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.task.latency import LatencySettings

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)


class Measuring(Protocol):
    """A task with metrics."""

    def update(self) -> None:
        """Move rates on. Every 5 s."""

    def sections(self) -> Iterable[Section]: ...


class MetricReporter:
    """`send`: takes the payload of a report. Any thread may call it."""

    def __init__(
        self,
        process: Registry,
        variables: Mapping[str, str],
        interval_ms: int,
        send: Callable[[bytes], None],
    ) -> None:
        """`process`: the metrics of the process. `variables`: of the process. `interval_ms` 0: nothing is reported."""
        self._process = process
        self._encoder = ReportEncoder(variables)
        self._interval_s = interval_ms / 1000
        self._send = send
        self._update_at: float | None = None
        self._report_at: float | None = None
        self._reported: dict[Measuring, None] = {}
        self._has_complained = False
        # The driver must get reports in the order in which they were encoded.
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self._interval_s > 0

    def tick(self, now_s: float, tasks: Callable[[], Iterable[Measuring]]) -> None:
        """Do what is due. `now_s`: of a monotonic clock."""
        if not self.is_on:
            return
        if self._update_at is None or self._report_at is None:
            self._update_at, self._report_at = now_s + UPDATE_S, now_s + self._interval_s
        known, self._reported = self._reported, dict.fromkeys(tasks())
        if now_s >= self._update_at:
            self._update_at = now_s + UPDATE_S
            self._process.update()
            for task in self._reported:
                self._guarded(task.update)
        if now_s >= self._report_at:
            self._report_at = now_s + self._interval_s
            own = Section(Component.TASKMANAGER, {}, self._process.measured())
            self._report_tasks(self._reported, own)
        else:
            self._report_tasks(one for one in self._reported if one not in known)

    def ended(self, task: Measuring) -> None:
        """A task ends: report it for the last time."""
        if self.is_on:
            self._report_tasks((task,))

    def _report_tasks(self, tasks: Iterable[Measuring], *others: Section) -> None:
        sections = list(others)
        for task in tasks:
            sections += self._guarded(partial(_sections, task)) or ()
        if sections:
            with self._lock:
                self._send(self._encoder.encode(sections))

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """Call. Metrics must never end a task or its TaskManager, so an error is only logged, and only the first time."""
        try:
            return call()
        except Exception as error:
            if not self._has_complained:
                self._has_complained = True
                _LOG.warning("metrics of a task cannot be read: %r", error, exc_info=error)
            return None


def _sections(task: Measuring) -> list[Section]:
    return list(task.sections())


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """`report_interval_ms` 0: nothing is reported. `probing_interval_ms` 0: the machine is not measured."""

    report_interval_ms: int = 10_000
    probing_interval_ms: int = 0
    is_python_enabled: bool = True
    has_channel_details: bool = False
    latency: LatencySettings = field(default_factory=LatencySettings)


SYSTEM: Final[Groups] = (("System", None),)
_CPU: Final[Groups] = (*SYSTEM, ("CPU", None))
_TIMES: Final = ("User", "Nice", "Sys", "Idle", "IOWait", "Irq", "SoftIrq", "Steal")
"""The order of /proc/stat."""
_SENT, _RECEIVED = 8, 0
"""The columns of /proc/net/dev."""
Ticks: TypeAlias = "tuple[int, ...]"


class Machine:
    """The last two readings. `update` reads, at most once in `interval_ms`."""

    def __init__(
        self,
        interval_ms: int,
        proc: str = "/proc",
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_ms / 1000
        self._proc = Path(proc)
        self._clock_s = clock_s
        self._read_at = clock_s()
        self._ticks: Mapping[str, Ticks] = self._cpu_ticks()
        self._bytes: Mapping[str, tuple[int, int]] = self._network_bytes()
        self._shares: dict[str, tuple[float, ...]] = {}
        self._rates: dict[str, tuple[int, int]] = {}

    def update(self) -> None:
        """Read again, if it is time."""
        now = self._clock_s()
        elapsed = now - self._read_at
        if elapsed < self._interval_s or elapsed <= 0:
            return
        ticks, sent = self._cpu_ticks(), self._network_bytes()
        self._shares = {
            name: _shares(self._ticks[name], after)
            for name, after in ticks.items()
            if name in self._ticks
        }
        self._rates = {
            name: tuple(  # type: ignore[misc] # two numbers
                int((after - before) / elapsed)
                for before, after in zip(self._bytes[name], both, strict=True)
            )
            for name, both in sent.items()
            if name in self._bytes
        }
        self._ticks, self._bytes, self._read_at = ticks, sent, now

    def measured(self) -> Iterator[Measured]:
        """Everything that has names of its own: cores and networks."""
        for name, shares in self._shares.items():
            usage = 100.0 - shares[_TIMES.index("Idle")] - shares[_TIMES.index("IOWait")]
            if name == "cpu":
                yield _gauge("Usage", usage, _CPU)
                yield from (
                    _gauge(kind, share, _CPU) for kind, share in zip(_TIMES, shares, strict=False)
                )
            else:
                yield _gauge(f"UsageCPU{name.removeprefix('cpu')}", usage, _CPU)
        for name, (received, sent) in self._rates.items():
            groups: Groups = (*SYSTEM, ("Network", None), (name, None))
            yield _gauge("ReceiveRate", received, groups)
            yield _gauge("SendRate", sent, groups)

    def memory(self, wanted: str) -> int:
        """A line of /proc/meminfo, in bytes."""
        for line in self._lines("meminfo"):
            name, _, text = line.partition(":")
            if name == wanted:
                return int(text.split()[0]) * 1024
        raise KeyError(wanted)

    def _cpu_ticks(self) -> dict[str, Ticks]:
        """Ticks since the machine's start, by core; `cpu` is all of them."""
        words = (line.split() for line in self._lines("stat") if line.startswith("cpu"))
        return {name: tuple(map(int, rest[: len(_TIMES)])) for name, *rest in words}

    def _network_bytes(self) -> dict[str, tuple[int, int]]:
        """Bytes received and sent, by interface."""
        found = {}
        for line in self._lines("net/dev"):
            name, colon, rest = line.partition(":")
            if colon:
                columns = rest.split()
                found[name.strip()] = int(columns[_RECEIVED]), int(columns[_SENT])
        return found

    def _lines(self, name: str) -> list[str]:
        try:
            return (self._proc / name).read_text(encoding="utf-8").splitlines()
        except OSError:
            return []


def add_machine_metrics(registry: Registry, machine: Machine) -> None:
    """Register all metrics of the machine."""
    registry.updated(machine)
    registry.more(machine.measured)
    memory: Groups = (*SYSTEM, ("Memory", None))
    swap: Groups = (*SYSTEM, ("Swap", None))
    registry.add(
        gauge("Total", partial(machine.memory, "MemTotal"), memory),
        gauge("Available", partial(machine.memory, "MemAvailable"), memory),
        gauge("Total", partial(machine.memory, "SwapTotal"), swap),
        gauge("Used", lambda: machine.memory("SwapTotal") - machine.memory("SwapFree"), swap),
        gauge("Load1min", lambda: os.getloadavg()[0], _CPU),
        gauge("Load5min", lambda: os.getloadavg()[1], _CPU),
        gauge("Load15min", lambda: os.getloadavg()[2], _CPU),
    )


def _shares(before: Ticks, after: Ticks) -> tuple[float, ...]:
    """In percent of the time between both."""
    spent = [max(0, late - early) for early, late in zip(before, after, strict=True)]
    total = sum(spent)
    return tuple(100.0 * one / total if total else 0.0 for one in spent)


def _gauge(name: str, value: float, groups: Groups) -> Measured:
    return Measured(name, MetricType.GAUGE, value, groups)


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
