"""Jobs that are rescaled while they run: what is asked for, and what must hold over all their generations.

Reads the machines and TaskManagers, and changes nothing. Source: docs/spec/elasticity.md#handover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from penstock.machines.adaptive.settings import AdaptiveSettings
from penstock.machines.adaptive.transition_manager import TransitionTimings
from penstock.machines.checkpoints.job_checkpoints import can_be_snapshotted
from penstock.machines.checkpoints.settings import CheckpointSettings
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import parallelism_of
from penstock.model.ids import JobId, VertexId
from penstock.model.key_groups import key_group_range
from penstock.model.messages import GraphReplaced, RescaleJob
from penstock.model.states import ExecutionState, JobStatus
from simulation.graphs import random_graph
from simulation.invariants import Violation
from simulation.scenario import JobPlan, job_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.machines.job.job_master import JobMaster
    from penstock.model.ids import ResourceId
    from simulation.checkpoints import SimCheckpoints
    from simulation.clock import SimClock
    from simulation.master import Master
    from simulation.scenario import Fault
    from simulation.taskmanager import SimTaskManager
    from simulation.tasks import DataPlane
    from simulation.watcher import Watcher

_MOST_SUBTASKS: Final = 6
_RESCALES_MAX: Final = 10
_HELD_TOO_LONG_MS: Final = 120_000
_COOLDOWNS_MS: Final = (0, 2_000, 10_000)


class ElasticName(StrEnum):
    """Invariants of jobs with several generations."""

    ONE_OWNER_OF_KEYS = "every key group has one owner"
    ONE_GENERATION = "one generation processes at a time"
    WITHIN_BOUNDS = "the parallelism is within its bounds and has its slots"
    RECORDS_END = "at most one rescale is under way, and every one ends"
    COOLDOWN = "nothing is rescaled within the cooldown"
    GETS_WHAT_IT_WANTS = "after a quiet time with enough slots the job has what it wants"
    HANDS_OVER_ALL = "the next generation begins with the checkpoint of the handover"
    HOLDS_END = "a task holds only while its checkpoint is under way"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for at a time."""

    at_ms: int
    bounds: tuple[tuple[VertexId, int, int], ...]


def elastic_plan(draw: Random, job_id: JobId, faults: Sequence[Fault]) -> JobPlan:
    """Draw a plan of a job that can be rescaled, with room for it."""
    plan = job_plan(draw, job_id, faults)
    graph = plan.graph
    while not _is_elastic(graph):
        graph = random_graph(draw, job_id)
    cooldown_ms = draw.choice(_COOLDOWNS_MS)
    elastic = AdaptiveSettings(
        is_adaptive=draw.random() < 0.5,
        wait_timeout_ms=None,
        submission=TransitionTimings(stabilization_ms=draw.choice((0, 2_000))),
        executing=TransitionTimings(cooldown_ms, draw.choice((0, 3_000)), 0, draw.random() < 0.5),
        history_size=100,
    )
    checkpoints = plan.settings.checkpoints or CheckpointSettings(
        interval_ms=draw.choice((3_000, 10_000)), timeout_ms=20_000, tolerable_failures=1_000
    )
    groups = {vertex.slot_sharing_group for vertex in graph.vertices.values()}
    slots = _MOST_SUBTASKS * len(groups)
    most = -(-slots // plan.slots_each) + draw.choice((-1, 0, 2))
    return replace(
        plan,
        graph=graph,
        settings=replace(plan.settings, elastic=elastic, checkpoints=checkpoints),
        taskmanagers_max=max(plan.taskmanagers_max, most),
    )


def _is_elastic(graph: JobGraph) -> bool:
    """Vertices that share their places need pipelines between them, which not every parallelism has."""
    are_apart = all(vertex.co_location_group is None for vertex in graph.vertices.values())
    return can_be_snapshotted(graph) and not graph.slot_sizes and are_apart


def wishes_of(draw: Random, graph: JobGraph, end_ms: int) -> list[Wish]:
    """Draw what is asked for, and when."""
    times = sorted(draw.randrange(3_000, end_ms) for _ in range(draw.randint(1, _RESCALES_MAX)))
    return [Wish(at_ms, tuple(_bounds(draw, graph))) for at_ms in times]


def _bounds(draw: Random, graph: JobGraph) -> list[tuple[VertexId, int, int]]:
    found = []
    for vertex in graph.vertices.values():
        upper = draw.randint(1, _MOST_SUBTASKS)
        found.append((vertex.vertex_id, draw.choice((1, 1, draw.randint(1, upper))), upper))
    return found


class WatchedCluster(Protocol):
    """The cluster as one who watches its generations sees it."""

    clock: SimClock
    plan: JobPlan
    master: Master
    data: DataPlane
    checkpoints: SimCheckpoints
    watcher: Watcher

    @property
    def taskmanagers(self) -> Mapping[ResourceId, SimTaskManager]: ...
    @property
    def job(self) -> JobMaster: ...
    @property
    def status(self) -> JobStatus: ...


class Generations:
    """Watches the generations of one cluster's job. `evaluated`: how often each invariant was looked at."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self.evaluated: Counter[ElasticName] = Counter()
        self.planned = 0
        self.unplanned = 0
        self._cluster = cluster
        self._began_ms: int | None = None
        self._held_since: dict[str, int] = {}

    def wish(self, wish: Wish) -> None:
        """Ask, unless the job has ended."""
        if not self._cluster.status.is_terminal:
            now_ms = self._cluster.clock.now_ms
            self._cluster.master.feed_soon("Rescale", RescaleJob(wish.bounds, now_ms))

    def replaced(self, effect: GraphReplaced) -> None:
        """Another generation begins."""
        self.planned += effect.is_planned
        self.unplanned += not effect.is_planned
        self._has_one_owner_of_keys(effect.job_graph)
        self._is_alone(effect.first_attempt)
        self._is_within_bounds(effect.job_graph)
        self._waits(effect)
        latest = self._cluster.checkpoints.latest
        if effect.is_planned:
            is_it = latest is not None and latest.checkpoint_id == effect.checkpoint_id
            held = self._cluster.data.barriers.held
            self._expect(ElasticName.HANDS_OVER_ALL, is_it and effect.checkpoint_id in held, effect)

    def after_step(self) -> None:
        """Look at the records of rescales, and at tasks that hold."""
        master = self._cluster.master.shell.master
        history = master.chronicle.history
        ended = [one for one in history if one is not history.current]
        is_good = all(one.end is not None for one in ended)
        if master.generation.status.is_globally_terminal:
            is_good = is_good and history.current is None
        self._expect(ElasticName.RECORDS_END, is_good, ended[-1:] or history.current)
        self._holds_end()

    def at_quiet_end(self) -> None:
        """Check that the job has what it wants, if its slots are there."""
        master = self._cluster.master.shell.master
        demand, job = master.demand, master.generation
        if demand is None or job.status is not JobStatus.RUNNING:
            return
        states = {vertex.state for vertex in job.execution_graph.vertices}
        pool = job.books.slots.pool
        if states != {ExecutionState.RUNNING} or len(pool.slots) < demand.desired:
            return
        wanted = demand.parallelism(demand.desired)
        found = parallelism_of(job.job_graph)
        is_declared = job.books.slots.declared[0] == demand.desired
        self._expect(
            ElasticName.GETS_WHAT_IT_WANTS, found == wanted and is_declared, (found, wanted)
        )

    # ------------------------------------------------------------------ private

    def _expect(self, name: ElasticName, holds: bool, what: object) -> None:
        if not holds:
            raise Violation(name, str(what))
        self.evaluated[name] += 1

    def _has_one_owner_of_keys(self, graph: JobGraph) -> None:
        execution = self._cluster.job.execution_graph
        for job_vertex in execution.job_vertices:
            model = graph.vertices[job_vertex.job_vertex.vertex_id]
            subtasks = [vertex.subtask for vertex in job_vertex.vertices]
            owned = [
                group
                for subtask in subtasks
                for group in _range(model.max_parallelism, model.parallelism, subtask)
            ]
            is_good = owned == list(range(model.max_parallelism))
            self._expect(ElasticName.ONE_OWNER_OF_KEYS, is_good, (model.name, subtasks))

    def _is_alone(self, first_attempt: int) -> None:
        links = self._cluster.master.shell.links
        processing = [
            task.attempt_id
            for taskmanager in self._cluster.taskmanagers.values()
            if taskmanager.is_alive and taskmanager.resource_id in links
            for task in taskmanager.tasks.values()
            if task.state is ExecutionState.RUNNING and not task.is_cancelled
        ]
        numbers = [one.attempt for one in self._cluster.watcher.newest_attempts()]
        is_new = all(number < first_attempt for number in numbers) or not numbers
        is_good = not processing and is_new
        self._expect(ElasticName.ONE_GENERATION, is_good, (processing, first_attempt, numbers))

    def _is_within_bounds(self, graph: JobGraph) -> None:
        master = self._cluster.master.shell.master
        demand = master.demand
        assert demand is not None, "only an elastic job has another generation"
        found = parallelism_of(graph)
        is_good = all(
            bounds.lower <= found[one] <= bounds.upper <= graph.vertices[one].max_parallelism
            for one, bounds in demand.bounds.items()
        )
        widest: Counter[str] = Counter()
        for vertex in graph.vertices.values():
            group = vertex.slot_sharing_group
            widest[group] = max(widest[group], vertex.parallelism)
        held = len(master.generation.books.slots.pool.slots)
        is_good = is_good and widest.total() <= held
        self._expect(ElasticName.WITHIN_BOUNDS, is_good, (found, demand.bounds, held))

    def _waits(self, effect: GraphReplaced) -> None:
        now_ms = self._cluster.clock.now_ms
        cooldown_ms = self._cluster.plan.settings.elastic.executing.cooldown_ms
        if effect.is_planned and self._began_ms is not None:
            waited_ms = now_ms - self._began_ms
            self._expect(ElasticName.COOLDOWN, waited_ms >= cooldown_ms, (waited_ms, cooldown_ms))
        self._began_ms = now_ms

    def _holds_end(self) -> None:
        now_ms, links = self._cluster.clock.now_ms, self._cluster.master.shell.links
        holding = {
            str(task.attempt_id)
            for taskmanager in self._cluster.taskmanagers.values()
            if taskmanager.is_alive and taskmanager.resource_id in links
            for task in taskmanager.tasks.values()
            if task.held_at is not None and task.state is ExecutionState.RUNNING
        }
        self._held_since = {one: self._held_since.get(one, now_ms) for one in holding}
        for one, since_ms in self._held_since.items():
            is_good = now_ms - since_ms < _HELD_TOO_LONG_MS
            self._expect(ElasticName.HOLDS_END, is_good, (one, now_ms - since_ms))


def _range(groups: int, parallelism: int, subtask: int) -> range:
    first, last = key_group_range(groups, parallelism, subtask)
    return range(first, last + 1)


def schedule(
    wishes: list[Wish], generations: Generations, at: Callable[[int, Callable[[], None]], object]
) -> None:
    """Ask for each at its time."""

    def ask(wish: Wish) -> Callable[[], None]:
        return lambda: generations.wish(wish)

    for wish in wishes:
        at(wish.at_ms, ask(wish))
