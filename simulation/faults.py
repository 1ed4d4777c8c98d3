"""Carries out the faults of a scenario, at their time or at their moment, and counts those that
really happened.

Knows the cluster that it damages, but no machine. No fault lasts longer than the scenario's time of
faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final, Protocol

from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import FailureInfo
from penstock.engine.model.states import ExecutionState
from simulation.clock import SimClock
from simulation.deposed import late_words
from simulation.master import Master
from simulation.network import Connection, Pipe
from simulation.scenario import Fault, FaultKind, Moment, Scenario
from simulation.taskmanager import SimTaskManager
from simulation.tasks import DataPlane

_RETRY_MS: Final = 3_000
_DRIVER_PAUSE_MAX_MS: Final = 20_000
_NOISE: Final = frozenset({
    FaultKind.DELAY,
    FaultKind.LOSS,
    FaultKind.DUPLICATION,
    FaultKind.REORDERING,
})
_WAITING: Final = frozenset({
    FaultKind.START_FAILS,
    FaultKind.START_NEVER,
    FaultKind.START_LATE,
    FaultKind.FEWER_SLOTS,
    FaultKind.DEAF_TO_CANCEL,
    FaultKind.COMMIT_FAILS,
})


class HurtCluster(Protocol):
    """The cluster as faults see it."""

    master: Master
    data: DataPlane

    @property
    def taskmanagers(self) -> Mapping[ResourceId, SimTaskManager]: ...
    def alive(self, resource_id: ResourceId) -> SimTaskManager | None: ...


class Faults:
    """`fired`: faults by kind. `moments`: faults by the named moment at which they were carried out."""

    def __init__(
        self,
        clock: SimClock,
        scenario: Scenario,
        trace: Callable[[str], None],
        running: Callable[[], HurtCluster | None],
    ) -> None:
        """`running`: returns the cluster that runs now; None: there is none."""
        self.fired: Counter[FaultKind] = Counter()
        self.moments: Counter[Moment] = Counter()
        self.messages_touched: Counter[str] = Counter()
        self.no_capacity_until_ms = 0
        self._clock = clock
        self._aside = Random(scenario.seed)
        self._end_ms = scenario.faults_end_ms
        self._trace = trace
        self._running = running
        self._at_moment: list[Fault] = []
        self._waiting: Counter[FaultKind] = Counter()
        self._episodes: Counter[FaultKind] = Counter()
        for fault in scenario.faults:
            if fault.moment is not None:
                self._at_moment.append(fault)
            else:
                self._schedule(fault, fault.at_ms)
        clock.at(self._end_ms, "Heal", self._heal)

    def take(self, kind: FaultKind) -> bool:
        """Whether a fault of this kind has waited for this occasion."""
        if self._waiting[kind] <= 0:
            return False
        self._waiting[kind] -= 1
        self._happened(kind)
        return True

    def at_moment(self, moment: Moment, resource_id: ResourceId | None) -> None:
        now_ms = self._clock.now_ms
        for fault in self._at_moment:
            if fault.moment is moment and fault.at_ms <= now_ms < self._end_ms:
                self._at_moment.remove(fault)
                self.moments[moment] += 1
                if not self._strike(fault, resource_id):
                    self._schedule(fault, now_ms + _RETRY_MS)
                return

    def touched(self, what: str) -> None:
        """Noise has affected a message."""
        self.messages_touched[what] += 1
        kind = FaultKind(what)
        if self._episodes[kind]:
            self._episodes[kind] -= 1
            self._happened(kind)

    # ------------------------------------------------------------------ private

    def _schedule(self, fault: Fault, at_ms: int) -> None:
        self._clock.at(at_ms, "Fault", lambda: self._due(fault))

    def _due(self, fault: Fault) -> None:
        if self._clock.now_ms < self._end_ms and not self._strike(fault, None):
            self._schedule(fault, self._clock.now_ms + _RETRY_MS)

    def _heal(self) -> None:
        """End the faults. A failing commit may still happen later, because it ends the job."""
        self._at_moment.clear()
        commits = self._waiting[FaultKind.COMMIT_FAILS]
        self._waiting.clear()
        self._waiting[FaultKind.COMMIT_FAILS] = commits
        self._episodes.clear()

    def _happened(self, kind: FaultKind) -> None:
        self.fired[kind] += 1
        self._trace(f"fault {kind}")

    def _strike(self, fault: Fault, resource_id: ResourceId | None) -> bool:
        """Carry out a fault. False: there is no target now."""
        if fault.kind in _WAITING:
            self._waiting[fault.kind] += 1
            return True
        cluster = self._running()
        if cluster is None or cluster.master.is_closed:
            return False
        until_ms = min(self._end_ms, self._clock.now_ms + fault.duration_ms)
        if fault.kind is FaultKind.DEPOSED:
            return self._speak_as_deposed(cluster)
        if fault.kind in _NOISE:
            return self._make_noise(fault.kind, cluster, resource_id, until_ms)
        has_struck = self._strike_driver(fault.kind, cluster, until_ms)
        if not has_struck:
            victim = self._victim(cluster, resource_id)
            has_struck = victim is not None and self._strike_one(
                fault.kind, cluster, victim, until_ms
            )
        if has_struck:
            self._happened(fault.kind)
        return has_struck

    def _speak_as_deposed(self, cluster: HurtCluster) -> bool:
        """Uses other random numbers, so that the rest of the seed is the same when this message has no effect."""
        registered = [
            tm for tm in cluster.taskmanagers.values() if tm.is_alive and tm.executor.leader
        ]
        if not registered:
            return False
        victim = self._aside.choice(registered)
        victim.receive(late_words(victim, self._aside))
        self._happened(FaultKind.DEPOSED)
        return True

    def _victim(
        self, cluster: HurtCluster, resource_id: ResourceId | None
    ) -> SimTaskManager | None:
        if resource_id is not None:
            return cluster.alive(resource_id)
        candidates = [tm for tm in cluster.taskmanagers.values() if tm.is_alive and tm.connection]
        return self._clock.random.choice(candidates) if candidates else None

    def _strike_driver(self, kind: FaultKind, cluster: HurtCluster, until_ms: int) -> bool:
        if kind is FaultKind.DRIVER_PAUSE:
            most_ms = self._clock.now_ms + _DRIVER_PAUSE_MAX_MS
            cluster.master.pause(min(until_ms, most_ms))
            return True
        if kind is FaultKind.NO_CAPACITY:
            self.no_capacity_until_ms = until_ms
            return True
        if kind is FaultKind.LOST_LEAD:
            return cluster.master.lose_lead()
        if kind is FaultKind.DATA_CONNECTION:
            return cluster.data.break_one()
        return False

    def _strike_one(
        self, kind: FaultKind, cluster: HurtCluster, victim: SimTaskManager, until_ms: int
    ) -> bool:
        connection = victim.connection
        match kind:
            case FaultKind.CRASH:
                victim.end("killed")
            case FaultKind.SILENT_CRASH:
                victim.end("its host is gone", is_told=False)
            case FaultKind.CRASH_OF_ALL:
                for taskmanager in list(cluster.taskmanagers.values()):
                    taskmanager.end("killed with all others")
            case FaultKind.PAUSE:
                victim.paused_until_ms = until_ms
                if connection is not None:
                    connection.has_kernel = self._clock.chance(0.5)
                victim.are_timers_first = self._clock.chance(0.5)
            case FaultKind.SILENT if connection is not None:
                connection.up.block(until_ms)
            case FaultKind.DEAF if connection is not None:
                connection.down.block(until_ms)
            case FaultKind.USER_ERROR:
                return self._raise_in_user_code(cluster)
            case _:
                return False
        return True

    def _raise_in_user_code(self, cluster: HurtCluster) -> bool:
        running = [
            task
            for taskmanager in cluster.taskmanagers.values()
            for task in taskmanager.tasks.values()
            if task.state is ExecutionState.RUNNING and not task.is_cancelled
        ]
        if not running:
            return False
        task = self._clock.random.choice(running)
        failure = FailureInfo("ValueError", "user code raised", is_user_code=True)
        fail = partial(task.host.end_task, task, ExecutionState.FAILED, failure)
        task.host.after(0, "UserError", fail)
        return True

    def _make_noise(
        self, kind: FaultKind, cluster: HurtCluster, resource_id: ResourceId | None, until_ms: int
    ) -> bool:
        one = self._victim(cluster, resource_id)
        if one is None or one.connection is None:
            return False
        connections = [one.connection]
        if kind is not FaultKind.LOSS and self._clock.chance(0.4):
            connections = [tm.connection for tm in cluster.taskmanagers.values() if tm.connection]
        for connection in connections:
            for pipe in self._some(connection):
                _disturb(pipe, kind, until_ms)
        self._episodes[kind] += 1
        return True

    def _some(self, connection: Connection) -> tuple[Pipe, ...]:
        both = (connection.down, connection.up)
        return self._clock.random.choice((both, both[:1], both[1:]))


def _disturb(pipe: Pipe, kind: FaultKind, until_ms: int) -> None:
    match kind:
        case FaultKind.DELAY:
            pipe.noise.delayed_until = until_ms
        case FaultKind.DUPLICATION:
            pipe.noise.doubled_until = until_ms
        case FaultKind.REORDERING:
            pipe.noise.reordered_until = until_ms
        case _:
            pipe.noise.lost_until = until_ms
