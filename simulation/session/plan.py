"""What the seed of a session means: its jobs and their clients, the room that Spark has, and what breaks at which time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from penstock.engine.machines.dispatcher import DispatcherSettings
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages.workers import WorkerKind
from simulation.elastic import elastic_plan
from simulation.scenario import (
    FaultKind,
    JobPlan,
    Scenario,
    job_plan,
    scenario_of,
    slots_wanted,
)

JOBS_MIN: Final = 3
_JOBS: Final = (JOBS_MIN, JOBS_MIN, 4)
_FAULTS_EACH: Final = 4
_IS_ELASTIC: Final = 0.5
_HAS_CLIENT: Final = 0.35
_GOES_SILENT: Final = 0.4
_IS_CANCELLED: Final = 0.15
_IS_TIGHT: Final = 0.4
_KEPT: Final = 0.85
_QUIET_BEFORE_MS: Final = 40_000
_DIGESTS: Final = ("shared", "shared", "shared", "other")
_SILENT_MS: Final = range(5_000, 100_000)
_CANCEL_MS: Final = (500, 1_000, 2_000, 10_000, 100_000)
_ASKS_TWICE: Final = 0.3
_UNFIT: Final = frozenset({FaultKind.LOST_LEAD, FaultKind.NO_CAPACITY, FaultKind.FEWER_SLOTS})
"""Faults that a session has in its own way: its driver, its places, its workers."""


@dataclass(frozen=True, slots=True)
class SessionJob:
    """One job. `needed`: slots without which it cannot run. `client_timeout_ms`: None: it outlives its client. `silent_ms`: when its client
    says nothing any more. `cancel_ms`: when somebody cancels it. None: never. `asks_twice`: its client has lost the answer, and asks again.
    """

    job_id: JobId
    submit_ms: int
    plan: JobPlan
    scenario: Scenario
    kind: WorkerKind
    needed: int
    idle_ms: int
    is_elastic: bool
    client_timeout_ms: int | None
    silent_ms: int | None
    cancel_ms: int | None
    asks_twice: bool


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """`places`: for workers, on Spark. `is_roomy`: they are enough for all jobs at once. `dies_ms`: when the driver's process ends without
    a word. `stops_ms`: when it is stopped. `is_kept`: with high availability, another driver goes on. `workers_lost_ms`: when a worker's
    process is killed.
    """

    jobs: tuple[SessionJob, ...]
    base: Scenario
    settings: DispatcherSettings
    places: int
    is_roomy: bool
    is_kept: bool
    dies_ms: tuple[int, ...]
    stops_ms: int | None
    workers_lost_ms: tuple[int, ...]


def session_plan(seed: int) -> SessionPlan:
    """Draw the plan of a seed."""
    draw = Random(seed)
    base = replace(scenario_of(seed, draw), faults=(), cancel_ms=None)
    slots = draw.choice((1, 2, 3, 4, 4))
    last_ms = base.faults_end_ms - _QUIET_BEFORE_MS
    jobs = tuple(_job(draw, seed, number, base, slots) for number in range(draw.choice(_JOBS)))
    most = [job.plan.taskmanagers_max for job in jobs]
    least = [
        most[place] if job.plan.graph.slot_sizes else -(-job.needed // slots)
        for place, job in enumerate(jobs)
    ]
    is_roomy = draw.random() >= _IS_TIGHT
    is_kept = draw.random() < _KEPT
    deaths = draw.choice((0, 1, 1, 2)) if is_kept else 0
    stops = draw.random() < 0.3
    return SessionPlan(
        jobs,
        base,
        DispatcherSettings(
            expiration_ms=draw.choice((60_000, 3_600_000)),
            capacity=draw.choice((None, 1, 5)),
            first_retry_ms=1_000,
            last_retry_ms=8_000,
            most_initialising=draw.choice((1, 2, 4)),
        ),
        places=sum(most) + len(jobs) if is_roomy else max(least) + draw.choice((0, 1)),
        is_roomy=is_roomy,
        is_kept=is_kept,
        dies_ms=tuple(
            sorted(
                draw.choice((draw.randrange(2_000, 60_000), draw.randrange(2_000, last_ms)))
                for _ in range(deaths)
            )
        ),
        stops_ms=draw.randrange(60_000, last_ms) if stops else None,
        workers_lost_ms=tuple(draw.randrange(20_000, last_ms) for _ in range(draw.randrange(4))),
    )


def _job(draw: Random, seed: int, number: int, base: Scenario, slots: int) -> SessionJob:
    job_id = JobId(f"job-{number}")
    own = scenario_of(seed, Random(draw.random()))
    faults = [fault for fault in own.faults if fault.kind not in _UNFIT][:_FAULTS_EACH]
    within = tuple(fault for fault in faults if fault.at_ms < base.faults_end_ms - 30_000)
    is_elastic = draw.random() < _IS_ELASTIC
    plan = (elastic_plan if is_elastic else job_plan)(draw, job_id, within)
    most = -(-plan.taskmanagers_max * plan.slots_each // slots)
    if plan.graph.slot_sizes:  # A sized TaskManager has one slot, however many the others have.
        most = plan.taskmanagers_max
    plan = replace(
        plan,
        slots_each=slots,
        taskmanagers_max=most,
        resources=replace(plan.resources, redundant_taskmanagers=0),
    )
    has_client = draw.random() < _HAS_CLIENT
    submit_ms = draw.choice((1_000, 1_000, draw.randrange(1_000, base.faults_end_ms - 60_000)))
    is_silent = has_client and draw.random() < _GOES_SILENT
    is_cancelled = draw.random() < _IS_CANCELLED
    return SessionJob(
        job_id,
        submit_ms,
        plan,
        replace(base, seed=seed + number, faults=within),
        WorkerKind(draw.choice(_DIGESTS), slots),
        slots_wanted(plan.graph)[0],
        idle_ms=draw.choice((0, 5_000, 60_000)),
        is_elastic=is_elastic,
        client_timeout_ms=draw.choice((10_000, 30_000)) if has_client else None,
        silent_ms=submit_ms + draw.choice(_SILENT_MS) if is_silent else None,
        cancel_ms=submit_ms + draw.choice(_CANCEL_MS) if is_cancelled else None,
        asks_twice=draw.random() < _ASKS_TWICE,
    )
