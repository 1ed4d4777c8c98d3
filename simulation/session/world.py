"""One seed of a session from start to end: clients, drivers one after the other, workers, and an end that leaves nothing.

`run_session_seed` is the only entry point. It returns plain data, which can cross processes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from simulation.clock import Call, SimClock, SimLoop, installed
from simulation.elastic import schedule, wishes_of
from simulation.faults import Faults
from simulation.invariants import Invariants, Name, Violation, violation_of
from simulation.scenario import RECOVERY_MS
from simulation.session.client import SimClient
from simulation.session.driver import SessionDriver, SessionParts
from simulation.session.expectations import Expectations, SessionName
from simulation.session.places import Places
from simulation.session.plan import SessionJob, session_plan
from simulation.session.shared_cluster import SharedCluster
from simulation.session.store import Store

_NEXT_MS: Final = (1_000, 5_000, 20_000)
_LOOK_MS: Final = 5_000
_IDLE_MS: Final = 80_000
_PATIENCE_MS: Final = 60_000
_DRAIN_MS: Final = 900_000
_AGAIN_MS: Final = 3_000
_LAST_DEATH_MS: Final = 30_000


@dataclass(slots=True)
class SessionResult:
    """`violation`: name and text of the broken invariant; None: all held. `drivers`: one after the other. `runs`: of jobs, with those that
    another driver has gone on with.
    """

    seed: int
    violation: tuple[str, str] | None = None
    simulated_ms: int = 0
    jobs: int = 0
    runs: int = 0
    drivers: int = 0
    restarts: int = 0
    rescales: int = 0
    most_at_once: int = 0
    workers_shared: int = 0
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    trace: list[str] | None = None


def run_session_seed(seed: int, *, is_traced: bool = False) -> SessionResult:
    """Run one seed. A broken invariant or an error of the driver is in the result and not raised."""
    world = SessionWorld(seed, is_traced=is_traced)
    result = world.result
    result.violation = violation_of(world.run)
    result.simulated_ms = world.clock.now_ms
    names = world.expectations.evaluated.items()
    result.evaluated = Counter({str(name): count for name, count in names})
    return result


class SessionWorld:
    """Runs events until nothing is left."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.clock = SimClock(seed)
        self.plan = session_plan(seed)
        self.expectations = Expectations()
        self.result = SessionResult(seed, trace=[] if is_traced else None)
        self._draw = Random(seed + 1)
        self.clusters: list[SharedCluster] = []
        self._drivers: list[SessionDriver] = []
        self._settled: set[str] = set()
        self._given_up: set[JobId] = set()
        self._idle_since: int | None = None
        jobs = self.plan.jobs
        self._parts = SessionParts(
            self.clock,
            self.plan,
            Store(self.expectations),
            Places(self.plan.places),
            self.expectations,
            Invariants(),
            {job.job_id: self._faults_of(job) for job in jobs},
            self.trace,
            self._begun,
        )
        self._clients = [
            SimClient(job, self.clock, lambda: self._leader, self._has_result) for job in jobs
        ]

    def run(self) -> None:
        """Run the seed. Raises Violation, or what a machine raises."""
        with installed(self.clock, SimLoop(self.clock, lambda _, call: call)):
            self._next_driver()
            self._break_things()
            recovered_ms = self.plan.base.faults_end_ms + RECOVERY_MS
            self.clock.at(recovered_ms, "Recovered", self._recovered)
            while (event := self.clock.next()) is not None:
                self.result.events[event.kind] += 1
                call, event.call = event.call, None
                if call is not None:
                    call()
                self._look()
                if self.clock.now_ms > self.plan.base.ends_ms + _DRAIN_MS and not self._is_over:
                    left = self.clock.waiting(), self._parts.store.entries
                    raise Violation(Name.NOTHING_LEFT, f"the world does not end: {left}")
        self._end()

    def trace(self, line: str) -> None:
        if self.result.trace is not None:
            self.result.trace.append(f"{self.clock.now_ms:>8} {line}")

    # ------------------------------------------------------------------ drivers

    @property
    def _leader(self) -> SessionDriver | None:
        driver = self._drivers[-1] if self._drivers else None
        return None if driver is None or driver.is_over else driver

    def _next_driver(self) -> None:
        driver = SessionDriver(len(self._drivers) + 1, self._parts)
        self.trace(f"driver {driver.number} leads")
        self._drivers.append(driver)
        driver.recover()
        self.clock.later(_LOOK_MS, "Look", self._look_at_driver)

    def _look_at_driver(self) -> None:
        """Another driver follows one that has ended, until all is done. The last one is stopped then."""
        driver = self._drivers[-1]
        if driver.is_over:
            if not self._is_done():
                delay_ms = self._draw.choice(_NEXT_MS)
                self.clock.later(delay_ms, "NextDriver", self._next_driver)
            return
        self._give_up(driver)
        is_done = self._is_done() and not driver.is_stopping
        self._idle_since = (self._idle_since or self.clock.now_ms) if is_done else None
        if self._idle_since is not None and self.clock.now_ms - self._idle_since > _IDLE_MS:
            workers = driver.workers
            what = (workers.workers, workers.pool.starts)
            self.expectations.expect(SessionName.CLEANED, workers.is_empty, what)
            driver.stop()
        self.clock.later(_LOOK_MS, "Look", self._look_at_driver)

    def _give_up(self, driver: SessionDriver) -> None:
        """Where Spark has room for one job only, two can hold half of it each. Somebody cancels one of them then."""
        is_late = self.clock.now_ms > self.plan.base.ends_ms + _PATIENCE_MS
        if not self.plan.is_roomy and is_late and not driver.is_stopping and driver.clusters:
            self._given_up.add(job_id := next(iter(driver.clusters)))
            driver.cancel(job_id)

    def _is_done(self) -> bool:
        """Whether every client has its answer, and nothing of a job is left."""
        are_answered = all(client.is_taken is not None for client in self._clients)
        is_over = self.clock.now_ms >= self.plan.base.ends_ms
        return (are_answered or is_over) and not self._parts.store.entries

    @property
    def _is_over(self) -> bool:
        """Whether the last driver and all that it has started have ended. Timers of dead drivers may be left."""
        driver = self._drivers[-1]
        if not (driver.is_over and self._is_done()):
            return False
        return not any(
            one.is_alive for cluster in self.clusters for one in cluster.taskmanagers.values()
        )

    # ------------------------------------------------------------------ what breaks

    def _break_things(self) -> None:
        for at_ms in self.plan.dies_ms:
            self.clock.at(at_ms, "DriverDies", self._driver_dies)
        if self.plan.stops_ms is not None:
            self.clock.at(self.plan.stops_ms, "DriverStops", self._driver_stops)
        for at_ms in self.plan.workers_lost_ms:
            self.clock.at(at_ms, "WorkerLost", self._worker_lost)

    def _driver_dies(self) -> None:
        driver = self._leader
        if driver is None:
            if self.clock.now_ms < self.plan.base.faults_end_ms - _LAST_DEATH_MS:
                self.clock.later(_AGAIN_MS, "DriverDies", self._driver_dies)
            return
        self.result.faults["driver dies"] += 1
        driver.die()

    def _driver_stops(self) -> None:
        driver = self._leader
        if driver is not None and not driver.is_stopping:
            self.result.faults["driver is stopped"] += 1
            driver.stop()

    def _worker_lost(self) -> None:
        driver = self._leader
        if driver is not None and driver.workers.lose_one():
            self.result.faults["worker lost"] += 1

    # ------------------------------------------------------------------ jobs

    def _faults_of(self, job: SessionJob) -> Faults:
        return Faults(self.clock, job.scenario, self.trace, partial(self._latest, job.job_id))

    def _latest(self, job_id: JobId) -> SharedCluster | None:
        """The cluster of the newest run of a job; None: it has not run yet."""
        runs = (one for one in reversed(self.clusters) if one.shared_job.job_id == job_id)
        return next(runs, None)

    def _begun(self, cluster: SharedCluster) -> None:
        self.clusters.append(cluster)
        job, now_ms = cluster.shared_job, self.clock.now_ms
        left_ms = job.scenario.faults_end_ms - now_ms
        if job.is_elastic and left_ms > 0:
            wishes = wishes_of(self._draw, job.plan.graph, max(10_000, left_ms))
            later = [replace(wish, at_ms=now_ms + wish.at_ms) for wish in wishes]
            schedule(later, cluster.generations, partial(self._wish, cluster))

    def _wish(self, cluster: SharedCluster, at_ms: int, call: Call) -> None:
        self.clock.at(at_ms, "Wish", lambda: None if cluster.master.is_closed else call())

    def _look(self) -> None:
        driver = self._leader
        if driver is None:
            return
        running = list(driver.clusters.values())
        self.result.most_at_once = max(self.result.most_at_once, len(running))
        has_healed = self.clock.now_ms >= self.plan.base.faults_end_ms
        for cluster in running:
            cluster.watcher.after_event()
            if cluster.shared_job.is_elastic:
                cluster.generations.after_step()
            if has_healed and (cluster.has_settled() or cluster.generations.lacks_room()):
                self._settled.add(cluster.shared_job.job_id)

    def _recovered(self) -> None:
        if not self.plan.is_roomy:
            return
        for job_id, entry in self._parts.store.entries.items():
            is_good = job_id in self._settled or entry.result is not None
            self.expectations.expect(SessionName.RECOVERS, is_good, job_id)

    def _has_result(self, job_id: JobId) -> bool:
        return job_id in self._parts.store.results

    # ------------------------------------------------------------------ the end

    def _end(self) -> None:
        store, result = self._parts.store, self.result
        for client in self._clients:
            job_id = client.job.job_id
            found = store.results.get(job_id, [])
            name = SessionName.ENDS_ONCE
            if client.is_taken:
                self.expectations.expect(name, len(found) == 1, (job_id, found))
            job = client.job
            may_go_on = job_id not in self._given_up and self.plan.is_kept
            if may_go_on and job.cancel_ms is None and job.silent_ms is None:
                is_wanted = JobStatus.CANCELED not in found
                self.expectations.expect(SessionName.CLIENTS, is_wanted, (job_id, found))
            result.endings.update(str(one) for one in found)
        for cluster in self.clusters:
            self._is_clean(cluster)
            result.restarts += cluster.watcher.resets
            result.rescales += cluster.generations.planned
        for faults in self._parts.faults.values():
            result.faults += Counter({str(kind): count for kind, count in faults.fired.items()})
        result.jobs, result.runs = len(store.results), len(self.clusters)
        result.drivers = len(self._drivers)
        result.workers_shared = sum(one.workers.shared for one in self._drivers)

    def _is_clean(self, cluster: SharedCluster) -> None:
        if not cluster.has_died:
            cluster.end_is_clean(self._parts.invariants)
        alive = [one.resource_id for one in cluster.taskmanagers.values() if one.is_alive]
        self.expectations.expect(SessionName.CLEANED, not alive, alive)
