"""One seed from start to end: jobs one after the other, faults, recovery, and an end that leaves
nothing.

`run_seed` is the only entry point. It returns plain data, which can cross processes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from simulation.clock import SimClock, SimLoop, installed
from simulation.cluster import Cluster
from simulation.elastic import elastic_plan, schedule, wishes_of
from simulation.faults import Faults
from simulation.invariants import Invariants, Name, Violation, violation_of
from simulation.scenario import RECOVERY_MS, job_plan, scenario_of

_GIVE_BACK_MS: Final = 120_000
_LEAD_LOST_IN_A_RESCALE: Final = 0.3
_RESCALE_MS: Final = 5_000
_LEAVES_MAX: Final = 4
_LOOK_MS: Final = 1_000
_LAST_START_MS: Final = 40_000
_DRAIN_MS: Final = 600_000
_BEFORE_END_MS: Final = 5_000


@dataclass(slots=True)
class SeedResult:
    """`violation`: name and text of the broken invariant; None: all held. `events`: by kind."""

    seed: int
    violation: tuple[str, str] | None = None
    simulated_ms: int = 0
    jobs: int = 0
    regions: int = 0
    tasks: int = 0
    taskmanagers: int = 0
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    messages_touched: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    rescales: int = 0
    partial: int = 0
    takeovers: int = 0
    elastic: Counter[str] = field(default_factory=Counter)
    trace: list[str] | None = None


def run_seed(
    seed: int, *, is_traced: bool = False, is_calm: bool = False, is_elastic: bool = False
) -> SeedResult:
    """Run one seed; a calm one has no faults, in an elastic one the jobs are rescaled. A broken invariant or an error of the driver is in
    the result and not raised.
    """
    world = World(seed, is_traced=is_traced, is_calm=is_calm, is_elastic=is_elastic)
    result = world.result
    result.violation = violation_of(world.run)
    result.simulated_ms = world.clock.now_ms
    result.faults = Counter({kind.value: n for kind, n in world.faults.fired.items()})
    result.moments = Counter({kind.value: n for kind, n in world.faults.moments.items()})
    result.messages_touched = world.faults.messages_touched
    result.evaluated = Counter({name.value: n for name, n in world.invariants.evaluated.items()})
    return result


class World:
    """Runs events until nothing is left."""

    def __init__(
        self,
        seed: int,
        *,
        is_traced: bool = False,
        is_calm: bool = False,
        is_elastic: bool = False,
    ) -> None:
        self._is_elastic = is_elastic
        self.clock = SimClock(seed)
        self.invariants = Invariants()
        self.result = SeedResult(seed, trace=[] if is_traced else None)
        # Other random numbers than those of the run, so that the plan does not depend on what
        # happens.
        plans = Random(seed)
        self.scenario = scenario_of(seed, plans)
        if is_calm:
            self.scenario = replace(self.scenario, faults=(), cancel_ms=None)
        self.faults = Faults(self.clock, self.scenario, self.trace, lambda: self._cluster)
        self._plans = plans
        self._cluster: Cluster | None = None
        self.clusters: list[Cluster] = []
        self._has_recovered = False

    def run(self) -> None:
        """Run the seed. Raises Violation, or what a machine raises."""
        with installed(self.clock, SimLoop(self.clock, lambda _, call: call)):
            self._start_job()
            self.clock.at(self.scenario.faults_end_ms + RECOVERY_MS, "Recovered", self._recovered)
            if self.scenario.cancel_ms is not None:
                self.clock.at(self.scenario.cancel_ms, "Cancel", self._cancel)
            while (event := self.clock.next()) is not None:
                if event.kind != "Look":  # A look is the simulator's own event.
                    self.result.events[event.kind] += 1
                call, event.call = event.call, None
                if call is not None:
                    call()
                self._look()
                if self.clock.now_ms > self.scenario.ends_ms + _DRAIN_MS:
                    self._fail_to_end()
        self._end()

    def trace(self, line: str) -> None:
        if self.result.trace is not None:
            self.result.trace.append(f"{self.clock.now_ms:>8} {line}")

    # ------------------------------------------------------------------ private

    def _start_job(self, former: Cluster | None = None) -> None:
        """`former`: of an elastic job that has lost its driver; another driver goes on with it."""
        left = None if former is None else former.left()
        if former is None or left is None:
            job_id = JobId(f"job-{len(self.clusters)}")
            plan_of = elastic_plan if self._is_elastic else job_plan
            plan = plan_of(self._plans, job_id, self.scenario.faults)
        else:
            job_id, plan = former.plan.graph.job_id, former.plan
        cluster = Cluster(
            self.clock, self.scenario, plan, self.faults, self.invariants, self.trace, left
        )
        self._cluster = cluster
        self.clusters.append(cluster)
        if left is not None:
            self.result.takeovers += 1
            cluster.generations.taken_over(left)
        if self._is_elastic:
            self._rescale(cluster)
        self.trace(f"start {job_id}: {', '.join(map(str, plan.graph.vertices))}")
        cluster.master.start()
        self.clock.later(_LOOK_MS, "Look", self._look_for_end)

    def _rescale(self, cluster: Cluster) -> None:
        """Ask for other parallelisms until the faults are over; after a quiet time the job has what it wants."""
        begin_ms = self.clock.now_ms
        last_ms = self.scenario.faults_end_ms - begin_ms
        wishes = wishes_of(self._plans, cluster.plan.graph, max(10_000, last_ms))
        later = [replace(wish, at_ms=begin_ms + wish.at_ms) for wish in wishes]
        generations = cluster.generations
        schedule(later, generations, lambda at_ms, call: self.clock.at(at_ms, "Wish", call))
        if self._plans.random() < _LEAD_LOST_IN_A_RESCALE:
            at_ms = self._plans.choice(later).at_ms + self._plans.randrange(_RESCALE_MS)
            self.clock.at(at_ms, "LoseLead", partial(_lose_lead, cluster))
        for _ in range(self._plans.randrange(_LEAVES_MAX)):
            at_ms = begin_ms + self._plans.randrange(5_000, max(10_000, last_ms))
            leave = partial(generations.leave, self._plans.random())
            self.clock.at(at_ms, "Leave", leave)
        self.clock.at(self.scenario.ends_ms - _BEFORE_END_MS, "Quiet", generations.at_quiet_end)

    def _look(self) -> None:
        cluster = self._cluster
        if cluster is None:
            return
        cluster.watcher.after_event()
        if self._is_elastic:
            cluster.generations.after_step()
        if not self._has_recovered and self.clock.now_ms >= self.scenario.faults_end_ms:
            self._has_recovered = cluster.has_settled() or (
                self._is_elastic and cluster.generations.lacks_room()
            )

    def _recovered(self) -> None:
        status = self._cluster.status if self._cluster else "no job"
        self.invariants.expect(Name.RECOVERS, self._has_recovered, f"the job is {status}")

    def _cancel(self) -> None:
        if self._cluster is not None:
            self._cluster.master.cancel()

    def _look_for_end(self, ended_ms: int | None = None) -> None:
        """Watch for the job's end. It then gives everything back, its driver ends, and another job may start."""
        cluster = self._cluster
        assert cluster is not None
        if not cluster.status.is_terminal:
            self.clock.later(_LOOK_MS, "Look", self._look_for_end)
            return
        since_ms = self.clock.now_ms if ended_ms is None else ended_ms
        # A deposed driver waits for no task's end, and nobody ends the TaskManager of a task that
        # ignores its cancel.
        is_suspended = cluster.status is JobStatus.SUSPENDED
        if not cluster.is_given_back():
            is_late = self.clock.now_ms - since_ms > _GIVE_BACK_MS
            resources = cluster.master.shell.resource_manager
            what = (
                resources.needs,
                list(resources.taskmanagers),
                list(resources.starting.since_ms),
            )
            if not (is_late and is_suspended):
                self.invariants.expect(Name.GIVEN_BACK, not is_late, what, is_trivial=True)
                self.clock.later(_LOOK_MS, "Look", lambda: self._look_for_end(since_ms))
                return
        self.invariants.expect(Name.GIVEN_BACK, True, is_trivial=is_suspended)
        cluster.close()
        self._cluster = None
        if self.clock.now_ms < self.scenario.ends_ms - _LAST_START_MS:
            former = cluster if self._is_elastic and cluster.left() is not None else None
            self.clock.later(1, "NextJob", partial(self._start_job, former))

    def _fail_to_end(self) -> None:
        status = self._cluster.status if self._cluster else "no job"
        waiting = sorted(set(self.clock.waiting()))
        raise Violation(Name.NOTHING_LEFT, f"the world does not end; job {status}, {waiting}")

    def _end(self) -> None:
        result = self.result
        for cluster in self.clusters:
            cluster.end_is_clean(self.invariants)
            result.endings[cluster.status.value] += 1
            result.restarts += cluster.watcher.resets
            result.rescales += cluster.generations.planned
            result.partial += cluster.generations.partial
            result.elastic += Counter({
                str(name): n for name, n in cluster.generations.evaluated.items()
            })
        result.jobs = len(self.clusters)
        result.taskmanagers = max(c.watcher.registered_most for c in self.clusters)
        graphs = [cluster.job for cluster in self.clusters]
        result.regions = min(len(job.regions) for job in graphs)
        result.tasks = min(len(job.state.graph.vertices) for job in graphs)


def _lose_lead(cluster: Cluster) -> None:
    """Another driver takes the job, if it has not ended."""
    cluster.master.lose_lead()
