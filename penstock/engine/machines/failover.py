"""Failover: which subtasks start again after a failure, whether the job may restart and when, and the restarts that are
decided.

Knows no slots and no clock. Source: Flink RestartPipelinedRegionFailoverStrategy, RestartAllFailoverStrategy,
RestartBackoffTimeStrategy, DefaultScheduler.restartTasks (docs/spec/failover.md#tasks-to-restart, #back-off,
#from-failure-to-restart).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.engine.machines.checkpoints.settings import interval_ms_of
from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
    in_topological_order,
)
from penstock.engine.machines.execution.regions import Region, Regions
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import PartitionId
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.options.option import INT_MAX, Option
from penstock.engine.model.options.scheduling import RestartOptions
from penstock.engine.model.states import ExecutionState


class FailoverStrategy(Protocol):
    """Chooses the subtasks to restart."""

    def to_restart(
        self, failed: Iterable[ExecutionVertex], unreadable: PartitionId | None = None
    ) -> list[ExecutionVertex]: ...


class RestartRegions:
    """The failed regions, the producers of what they cannot read again, and all their consumers."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def to_restart(
        self, failed: Iterable[ExecutionVertex], unreadable: PartitionId | None = None
    ) -> list[ExecutionVertex]:
        """Return the subtasks in topological order, without those that were never scheduled.

        Args: unreadable: a partition that the failed task could not read; this one decision treats
        it as lost.
        """
        queue = deque({self._regions.of(vertex): None for vertex in failed})
        visited: set[Region] = set(queue)
        seen_inputs: set[int] = set()
        seen_outputs: set[int] = set()
        while queue:
            region = queue.popleft()
            for other in (
                *self._producers(region, unreadable, seen_inputs),
                *self._consumers(region, seen_outputs),
            ):
                if other not in visited:
                    visited.add(other)
                    queue.append(other)
        return in_topological_order(
            vertex
            for region in visited
            for vertex in region.vertices
            if vertex.execution.state is not ExecutionState.CREATED
        )

    def _producers(
        self, region: Region, unreadable: PartitionId | None, seen: set[int]
    ) -> Iterable[Region]:
        """Return the regions whose results this region cannot read again."""
        for vertex in region.vertices:
            for group in vertex.consumed_groups:
                if id(group) in seen:
                    continue
                seen.add(id(group))
                lost = (
                    [p for p in group.partitions if not is_available(p, unreadable)]
                    if is_rereadable(group.result_type)
                    else group.partitions
                )
                yield from self._regions.of_all(partition.producer for partition in lost)

    def _consumers(self, region: Region, seen: set[int]) -> Iterable[Region]:
        for vertex in region.vertices:
            for partition in vertex.partitions:
                for group in partition.consumer_groups:
                    if id(group) not in seen:
                        seen.add(id(group))
                        yield from self._regions.of_all(group.vertices)


class RestartAll:
    """Restarts the whole job, whatever failed."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph

    def to_restart(
        self, failed: Iterable[ExecutionVertex], unreadable: PartitionId | None = None
    ) -> list[ExecutionVertex]:
        return list(self._graph.vertices)


def is_rereadable(kind: ResultPartitionType) -> bool:
    """Whether a second attempt can read results of this type, once they are made."""
    return kind.is_reconsumable or kind is ResultPartitionType.PIPELINED_APPROXIMATE


def is_available(partition: ResultPartition, unreadable: PartitionId | None) -> bool:
    """Whether a restarted consumer could read it again without its producer."""
    is_there = partition.is_available and partition.partition_id != unreadable
    return is_there and is_rereadable(partition.result_type)


OUT_OF_MEMORY: Final = "OutOfMemory"
"""Kind of the failure of a TaskManager that was killed for its memory: the next attempt may fill it again."""
INFRASTRUCTURE_KINDS: Final = frozenset({
    OUT_OF_MEMORY,
    "TaskManagerLost",
    "SlotLost",
    "PartitionConnectionError",
    "PartitionNotFound",
    "ProducerFailed",
    "ResultDataLost",
})
"""Failures outside of the program: the next attempt runs elsewhere and may succeed."""


def is_infrastructure(failure: FailureInfo | None) -> bool:
    """Whether a TaskManager was lost, or a peer's partition could not be reached because of that."""
    if failure is None or failure.is_user_code:
        return False
    return failure.kind in INFRASTRUCTURE_KINDS


class RestartBackoff(Protocol):
    """Whether a job may restart after a failure, and how long it waits first.

    Knows no tasks and no clock: the caller passes the times. Source: Flink
    RestartBackoffTimeStrategy (docs/spec/failover.md#back-off); differs:
    `InfrastructureOnlyRestart` and `CheckpointedRestart` are our defaults, and the caller draws the
    number for the jitter.

    The caller calls `notify` for each failure, then asks. `notify` returns whether the failure
    starts a new attempt.
    """

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool: ...
    def can_restart(self) -> bool: ...
    def delay_ms(self, now_ms: int) -> int: ...


class NoRestart:
    """The first failure ends the job."""

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool:
        return True

    def can_restart(self) -> bool:
        return False

    def delay_ms(self, now_ms: int) -> int:
        return 0


@dataclass(slots=True)
class FixedDelayRestart:
    """Allows a fixed number of restarts."""

    attempts: int = 1
    delay: int = 1000
    _failures: int = 0

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool:
        self._failures += 1
        return True

    def can_restart(self) -> bool:
        return self._failures <= self.attempts

    def delay_ms(self, now_ms: int) -> int:
        return self.delay


@dataclass(slots=True)
class FailureRateRestart:
    """Allows a number of failures per interval."""

    max_per_interval: int = 1
    interval_ms: int = 60_000
    delay: int = 1000
    _failures: deque[int] = field(default_factory=deque)

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool:
        if self._is_full:
            self._failures.popleft()
        self._failures.append(now_ms)
        return True

    def can_restart(self) -> bool:
        """Whether the job may restart now. 'Now' is the newest failure, because this is called right after `notify`."""
        return not (self._is_full and self._failures[-1] - self._failures[0] <= self.interval_ms)

    def delay_ms(self, now_ms: int) -> int:
        return self.delay

    @property
    def _is_full(self) -> bool:
        return len(self._failures) > self.max_per_interval


@dataclass(slots=True)
class ExponentialDelayRestart:
    """Waits grow. Failures before the restart count as one attempt; a long time without failures
    resets the wait.

    `draw`: gives a number in [-1, 1] for the jitter; always 0 unless the host has random numbers.
    """

    initial_ms: int = 1000
    max_ms: int = 60_000
    multiplier: float = 1.5
    reset_threshold_ms: int = 3_600_000
    jitter: float = 0.1
    attempts_before_reset: int = INT_MAX
    draw: Callable[[], float] = lambda: 0.0
    _attempt: int = 0
    _next_restart_ms: int | None = None

    def __post_init__(self) -> None:
        first = self.initial_ms
        _check(RestartOptions.EXPONENTIAL_INITIAL_BACKOFF, first, first <= self.max_ms)
        _check(RestartOptions.EXPONENTIAL_MULTIPLIER, self.multiplier, self.multiplier > 1)

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool:
        if self._next_restart_ms is not None:
            if now_ms <= self._next_restart_ms:
                return False
            if now_ms - self._next_restart_ms >= self.reset_threshold_ms:
                self._attempt = 0
        self._next_restart_ms = now_ms + self._backoff_ms()
        self._attempt += 1
        return True

    def can_restart(self) -> bool:
        return self._attempt <= self.attempts_before_reset

    def delay_ms(self, now_ms: int) -> int:
        return max(0, (self._next_restart_ms or 0) - now_ms)

    def _backoff_ms(self) -> int:
        # After enough attempts the power no longer fits a float; the maximum counts then.
        doublings = min(self._attempt * math.log2(self.multiplier), 62.0)
        base = int(self.initial_ms * 2.0**doublings)
        spread = int(base * self.jitter * self.draw())
        return max(self.initial_ms, min(self.max_ms, base + spread))


@dataclass(slots=True)
class InfrastructureOnlyRestart:
    """Our default: the loss of TaskManagers restarts at once and without limit, any other failure
    ends the job.

    Without checkpoints a restart begins from nothing, so a program that fails would only fail
    again. A lost machine says nothing about the program, and twenty of them must not end the job.
    `growing`: decides where a TaskManager was killed for its memory, because the program may fill
    it again.
    """

    delay: int = 100
    growing: ExponentialDelayRestart = field(default_factory=ExponentialDelayRestart)
    _last: FailureInfo | None = None

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool:
        self._last = failure
        return self.growing.notify(now_ms, failure) if self._is_for_memory else True

    def can_restart(self) -> bool:
        if self._is_for_memory:
            return self.growing.can_restart()
        return is_infrastructure(self._last)

    def delay_ms(self, now_ms: int) -> int:
        return self.growing.delay_ms(now_ms) if self._is_for_memory else self.delay

    @property
    def _is_for_memory(self) -> bool:
        return self._last is not None and self._last.kind == OUT_OF_MEMORY


def grows_for_memory(backoff: RestartBackoff) -> bool:
    """Whether it counts kills for memory only to wait longer, so that a second word of the same one does no harm."""
    return isinstance(backoff, (InfrastructureOnlyRestart, CheckpointedRestart))


@dataclass(slots=True)
class CheckpointedRestart:
    """Our default with checkpoints: waits grow, but a lost TaskManager is replaced at once, however
    often, unless it was killed for its memory.

    A program that fails continues from its checkpoint and may fail there again, so it waits. A lost
    machine says nothing about the program.
    """

    infrastructure: InfrastructureOnlyRestart = field(default_factory=InfrastructureOnlyRestart)
    _chosen: ExponentialDelayRestart | InfrastructureOnlyRestart | None = None

    def notify(self, now_ms: int, failure: FailureInfo | None = None) -> bool:
        infrastructure = self.infrastructure
        self._chosen = infrastructure if is_infrastructure(failure) else infrastructure.growing
        return self._chosen.notify(now_ms, failure)

    def can_restart(self) -> bool:
        return self._chosen is None or self._chosen.can_restart()

    def delay_ms(self, now_ms: int) -> int:
        return 0 if self._chosen is None else self._chosen.delay_ms(now_ms)


def restart_backoff_of(
    settings: Settings, draw: Callable[[], float] | None = None
) -> RestartBackoff:
    """Return the strategy that the settings ask for.

    If they name none: `CheckpointedRestart` for periodic checkpoints, else
    `InfrastructureOnlyRestart`.

    Raises: ConfigurationError: an unknown name or a value out of its range.
    """
    match settings.get(RestartOptions.TYPE):
        case None:
            delay = settings.get(RestartOptions.INFRASTRUCTURE_DELAY)
            infrastructure = InfrastructureOnlyRestart(delay, _exponential(settings, draw))
            if interval_ms_of(settings) is None:
                return infrastructure
            return CheckpointedRestart(infrastructure)
        case "none":
            return NoRestart()
        case "fixed-delay":
            return FixedDelayRestart(
                settings.get(RestartOptions.FIXED_DELAY_ATTEMPTS),
                settings.get(RestartOptions.FIXED_DELAY),
            )
        case "failure-rate":
            return FailureRateRestart(
                settings.get(RestartOptions.FAILURE_RATE_MAX_FAILURES),
                settings.get(RestartOptions.FAILURE_RATE_INTERVAL),
                settings.get(RestartOptions.FAILURE_RATE_DELAY),
            )
        case _:
            return _exponential(settings, draw)


def _exponential(settings: Settings, draw: Callable[[], float] | None) -> ExponentialDelayRestart:
    return ExponentialDelayRestart(
        initial_ms=settings.get(RestartOptions.EXPONENTIAL_INITIAL_BACKOFF),
        max_ms=settings.get(RestartOptions.EXPONENTIAL_MAX_BACKOFF),
        multiplier=settings.get(RestartOptions.EXPONENTIAL_MULTIPLIER),
        reset_threshold_ms=settings.get(RestartOptions.EXPONENTIAL_RESET_THRESHOLD),
        jitter=settings.get(RestartOptions.EXPONENTIAL_JITTER_FACTOR),
        attempts_before_reset=settings.get(RestartOptions.EXPONENTIAL_ATTEMPTS_BEFORE_RESET),
        draw=draw or (lambda: 0.0),
    )


def _check(option: Option[Any], value: float, is_good: bool) -> None:
    if not is_good:
        raise ConfigurationError(
            f"option '{option.key}' is {value}, which is out of its range. Change the setting."
        )


TIMER_PREFIX = "restart-"


@dataclass(slots=True, eq=False)
class Restart:
    """`versions`: of each vertex when the restart was decided. `alive`: vertices that have not ended yet."""

    timer: str
    vertices: dict[int, ExecutionVertex]
    versions: dict[int, int]
    alive: set[int]
    is_global: bool
    is_due: bool = False

    @property
    def valid(self) -> list[ExecutionVertex]:
        """The vertices that no newer failover has taken over, in topological order."""
        return [
            vertex
            for index, vertex in sorted(self.vertices.items())
            if vertex.version == self.versions[index]
        ]


class Restarts:
    """Decided restarts: which subtasks restart, at what time, and which attempts must end first.

    Knows no back-off and no slots. Source: Flink DefaultScheduler.restartTasks,
    ExecutionVertexVersioner (docs/spec/failover.md#from-failure-to-restart): a newer failover of a
    vertex removes it from an older restart.

    All restarts that have been decided and not carried out. `next_number`: of the next one.
    """

    def __init__(self, next_number: int = 0) -> None:
        self._restarts: dict[str, Restart] = {}
        self._waiting: set[int] = set()
        self.next_number = next_number

    @property
    def is_any_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def global_one(self) -> Restart | None:
        """The pending restart of the whole job. There is at most one, because it takes over all others."""
        return next((r for r in self._restarts.values() if r.is_global and r.valid), None)

    def add(self, vertices: Iterable[ExecutionVertex], *, is_global: bool) -> Restart:
        """Decide a restart. It raises the versions of its vertices, so that older restarts lose them."""
        members = {vertex.index: vertex for vertex in vertices}
        for vertex in members.values():
            vertex.version += 1
        for older in self._restarts.values():
            older.alive.difference_update(members)
        restart = Restart(
            timer=f"{TIMER_PREFIX}{self.next_number}",
            vertices=members,
            versions={index: vertex.version for index, vertex in members.items()},
            alive={i for i, vertex in members.items() if not vertex.state.is_terminal},
            is_global=is_global,
        )
        self.next_number += 1
        self._restarts[restart.timer] = restart
        self._waiting.update(members)
        return restart

    def on_terminal(self, vertex: ExecutionVertex) -> None:
        for restart in self._restarts.values():
            restart.alive.discard(vertex.index)

    def on_timer(self, timer: str) -> None:
        restart = self._restarts.get(timer)
        if restart is not None:
            restart.is_due = True

    def take_ready(self) -> list[Restart]:
        """Return the restarts whose time has come and whose vertices have all ended."""
        ready = [r for r in self._restarts.values() if r.is_due and not r.alive]
        for restart in ready:
            del self._restarts[restart.timer]
            self._waiting.difference_update(vertex.index for vertex in restart.valid)
        return ready

    def clear(self) -> None:
        self._restarts.clear()
        self._waiting.clear()
