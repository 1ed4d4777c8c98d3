"""What a seed means: job graphs, settings, and which faults happen when. All is drawn at once, from
the seed alone.

Knows no world. Faults happen at a time or at a named moment of the protocol; there are none after
`faults_end_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.failover import (
    ExponentialDelayRestart,
    FixedDelayRestart,
    InfrastructureOnlyRestart,
    RestartBackoff,
)
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.resources.resource_manager import ResourceSettings
from penstock.engine.machines.scheduling.scheduling import PipelinedRegionScheduling
from penstock.engine.machines.slots.slot_sharing import local_input_preferred
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.cluster import LoadBalanceMode
from penstock.engine.model.options.scheduling import FailoverMode
from simulation.graphs import random_graph

HEARTBEAT_INTERVAL_MS: Final = 10_000
HEARTBEAT_TIMEOUT_MS: Final = 50_000
STUCK_TASK_MS: Final = 5_000
RECOVERY_MS: Final = 60_000
"""After the faults, every job must be RUNNING or at its end within this time."""
QUIET_MS: Final = 90_000
"""Share of a seed's time, at its end, without faults."""
TASKMANAGERS_MIN: Final = 3


FEW_RESTARTS: Final = 3
"""The number of restarts that the least patient restart strategy allows."""


class FaultKind(StrEnum):
    """The kinds of faults."""

    DELAY = "delay"
    LOSS = "loss"
    DUPLICATION = "duplication"
    REORDERING = "reordering"
    CRASH = "crash"
    SILENT_CRASH = "silent crash"
    CRASH_OF_ALL = "crash of all"
    PAUSE = "pause and return"
    SILENT = "silent TaskManager"
    DEAF = "deaf TaskManager"
    DRIVER_PAUSE = "pause of the driver"
    START_FAILS = "start fails"
    START_NEVER = "start without end"
    START_LATE = "late start"
    FEWER_SLOTS = "fewer slots than asked"
    NO_CAPACITY = "fewer TaskManagers than asked"
    USER_ERROR = "user error"
    DATA_CONNECTION = "data connection breaks"
    DEAF_TO_CANCEL = "deaf to its cancel"
    COMMIT_FAILS = "commit fails"
    DEPOSED = "a deposed leader speaks"
    LOST_LEAD = "the driver loses its lead"


_OF_LEADERS: Final = (FaultKind.DEPOSED, FaultKind.LOST_LEAD)
_USUAL: Final = tuple(kind for kind in FaultKind if kind not in _OF_LEADERS)
_LOST_LEADS: Final = 0.2
_LATE_WORDS_MAX: Final = 12


class Moment(StrEnum):
    """Named moments at which a fault can be carried out."""

    OFFER_TO_ACCEPT = "between offer and accept"
    DEPLOY_TO_ACK = "between deploy and ack"
    FAIL_TO_RESTART = "between fail and restart"
    CANCEL_TO_END = "between cancel and end"
    REGISTER_TO_REQUEST = "between registration and slot request"
    TRIGGER_TO_ACK = "between trigger and acknowledgement"
    ACK_TO_COMPLETE = "between acknowledgement and completion"
    COMPLETE_TO_NOTIFY = "between completion and notification"
    END_TO_FINAL = "between the end of data and the final checkpoint"


CHECKPOINT_MOMENTS: Final[tuple[Moment, ...]] = (
    Moment.TRIGGER_TO_ACK,
    Moment.ACK_TO_COMPLETE,
    Moment.COMPLETE_TO_NOTIFY,
    Moment.END_TO_FINAL,
)
_OTHER_MOMENTS: Final[tuple[Moment, ...]] = tuple(
    moment for moment in Moment if moment not in CHECKPOINT_MOMENTS
)


AT_MOMENTS: Final = (
    FaultKind.DELAY,
    FaultKind.LOSS,
    FaultKind.DUPLICATION,
    FaultKind.REORDERING,
    FaultKind.CRASH,
    FaultKind.SILENT_CRASH,
    FaultKind.PAUSE,
    FaultKind.SILENT,
    FaultKind.DEAF,
    FaultKind.DRIVER_PAUSE,
)


@dataclass(slots=True)
class Fault:
    """`moment` None: the fault happens at `at_ms`; else at the first such moment after that."""

    kind: FaultKind
    at_ms: int
    duration_ms: int
    moment: Moment | None = None

    def __str__(self) -> str:
        return f"{self.kind}{f' {self.moment}' if self.moment else ''}, {self.duration_ms} ms"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`ends_ms`: when sources have no more data. `cancel_ms`: when the user cancels; None: never."""

    seed: int
    faults: tuple[Fault, ...]
    faults_end_ms: int
    ends_ms: int
    cancel_ms: int | None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job of a seed. `slots_each`: slots of a TaskManager, so chosen that the job needs at
    least three TaskManagers.
    """

    graph: JobGraph
    settings: JobSettings
    resources: ResourceSettings
    slots_each: int
    taskmanagers_max: int


def scenario_of(seed: int, draw: Random) -> Scenario:
    length_ms = 345_000 + int(1_455_000 * draw.random() ** 3)
    ends_ms = 1000 + length_ms
    faults_end_ms = ends_ms - QUIET_MS
    kinds = [draw.choice(_USUAL) for _ in range(draw.randint(4, 9))]
    faults = [_fault(draw, kind, faults_end_ms) for kind in kinds]
    cancel_ms = draw.randrange(60_000, ends_ms) if draw.random() < 0.1 else None
    faults = sorted([*faults, *_of_leaders(_aside(draw), faults_end_ms)], key=_by_time)
    return Scenario(seed, tuple(faults), faults_end_ms, ends_ms, cancel_ms)


def job_plan(draw: Random, job_id: JobId, faults: Sequence[Fault]) -> JobPlan:
    """Draw a graph whose first regions alone need the TaskManagers, and settings to run it with."""
    slots_first = 0
    while slots_first < TASKMANAGERS_MIN:
        graph = random_graph(draw, job_id)
        slots, slots_first = slots_wanted(graph)
    slots_each = min(draw.choice((1, 2, 2, 3)), (slots_first - 1) // (TASKMANAGERS_MIN - 1))
    data_sets = [data_set for vertex in graph.vertices.values() for data_set in vertex.outputs]
    are_all_blocking = all(data_set.result_type.is_blocking for data_set in data_sets)
    # A sized TaskManager has one slot.
    needed = slots if graph.slot_sizes else -(-slots // slots_each)
    settings = JobSettings(
        slot_request_timeout_ms=draw.choice((15_000, 30_000, 60_000)),
        slot_idle_timeout_ms=draw.choice((10_000, 50_000)),
        is_vertexwise=are_all_blocking and draw.random() < 0.5,
        failover=FailoverMode.FULL if draw.random() < 0.15 else FailoverMode.REGION,
        load_balance=draw.choice(tuple(LoadBalanceMode)),
        is_local_recovery=draw.random() < 0.2,
        make_backoff=_backoff(draw),
        checkpoints=_checkpoints(draw),
    )
    resources = ResourceSettings(
        load_balance=settings.load_balance.value,
        start_timeout_ms=20_000,
        redundant_taskmanagers=draw.choice((0, 0, 0, 1)),
    )
    small = sum(fault.kind is FaultKind.FEWER_SLOTS for fault in faults)
    most = needed + small + draw.choice((1, 2, 4))
    return JobPlan(graph, settings, resources, slots_each, most)


def _checkpoints(draw: Random) -> CheckpointSettings | None:
    """Draw checkpoint settings; half of the jobs take none."""
    aside = _aside(draw)
    if aside.random() < 0.5:
        return None
    return CheckpointSettings(
        interval_ms=aside.choice((3_000, 10_000, 30_000)),
        min_pause_ms=aside.choice((0, 0, 5_000)),
        timeout_ms=aside.choice((4_000, 20_000)),
        max_concurrent=aside.choice((1, 1, 3)),
        tolerable_failures=aside.choice((5, 1000)),
        num_retained=aside.choice((1, 2)),
        draw=lambda: 2 * aside.random() - 1,
    )


def _aside(draw: Random) -> Random:
    """Return other random numbers for a part of a seed, so that the rest of the seed does not depend on that part."""
    aside = Random()
    aside.setstate(draw.getstate())
    return aside


def slots_wanted(graph: JobGraph) -> tuple[int, int]:
    """Return how many slots the whole job needs at once, and how many the regions that start first."""
    execution_graph = ExecutionGraph(graph)
    groups = local_input_preferred(execution_graph)
    first = PipelinedRegionScheduling(execution_graph, Regions(execution_graph)).start()
    started = {vertex.index for region in first for vertex in region}
    return len(groups), sum(any(v.index in started for v in group.vertices) for group in groups)


def _backoff(draw: Random) -> Callable[[], RestartBackoff]:
    """Draw a restart strategy. Waits are at most two seconds, so that a recovery has time for several."""
    kind = draw.randrange(4)
    if kind == 0:
        return InfrastructureOnlyRestart
    if kind == 1:
        return lambda: FixedDelayRestart(attempts=1000, delay=500)
    if kind == 2:
        few = draw.choice((0, FEW_RESTARTS, FEW_RESTARTS))
        return lambda: FixedDelayRestart(few, delay=100)
    return lambda: ExponentialDelayRestart(initial_ms=100, max_ms=2000)


def _fault(draw: Random, kind: FaultKind, end_ms: int) -> Fault:
    at_ms = draw.randrange(1000, end_ms - 30_000)
    duration_ms = draw.choice((300, 2_000, 8_000, 15_000, 40_000, 60_000, 90_000))
    is_at_moment = kind in AT_MOMENTS and draw.random() < 0.6
    moment = draw.choice(_OTHER_MOMENTS) if is_at_moment else None
    if is_at_moment:  # Most of the protocol happens while the job starts.
        at_ms = draw.choice((0, 0, at_ms))
        aside = _aside(draw)
        if aside.random() < 0.4:
            moment = aside.choice(CHECKPOINT_MOMENTS)
    return Fault(kind, at_ms, duration_ms, moment)


def _of_leaders(aside: Random, end_ms: int) -> list[Fault]:
    """Draw messages of a deposed leader, in two seeds of three. Many come while the job starts,
    when most of the protocol happens.
    """
    words = aside.choice((0, aside.randint(1, _LATE_WORDS_MAX), _LATE_WORDS_MAX))
    times = [aside.choice((aside.randrange(1000, 20_000), aside.randrange(1000, end_ms - 30_000))) for _ in range(words)]  # fmt: skip
    faults = [Fault(FaultKind.DEPOSED, at_ms, 0) for at_ms in times]
    if aside.random() < _LOST_LEADS:
        faults.append(Fault(FaultKind.LOST_LEAD, aside.randrange(60_000, end_ms), 0))
    return faults


def _by_time(fault: Fault) -> int:
    return fault.at_ms
