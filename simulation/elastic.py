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

from penstock.engine.hosting.jobmanager.ha.guard import requirements_of
from penstock.engine.hosting.jobmanager.handle import requirements_as_text
from penstock.engine.machines.checkpoints.job_checkpoints import can_be_snapshotted
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.machines.rescaling.transition_manager import TransitionTimings
from penstock.engine.model.elastic import ParallelismBounds
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import parallelism_of, untouched
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.key_groups import key_group_range
from penstock.engine.model.messages import GraphReplaced, RescaleJob, TaskManagersLeaving
from penstock.engine.model.states import ExecutionState, JobStatus
from simulation.graphs import random_graph
from simulation.invariants import Violation
from simulation.scenario import JobPlan, job_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
    from penstock.engine.machines.job.job_master import JobMaster
    from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId
    from simulation.checkpoints import SimCheckpoints
    from simulation.clock import SimClock
    from simulation.master import Master
    from simulation.scenario import Fault
    from simulation.takeover import Left
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
    ONE_GENERATION = "of each vertex one generation processes at a time"
    WITHIN_BOUNDS = "the parallelism is within its bounds and has its slots"
    RECORDS_END = "at most one rescale is under way, and every one ends"
    COOLDOWN = "nothing is rescaled within the cooldown"
    GETS_WHAT_IT_WANTS = "after a quiet time with enough slots the job has what it wants"
    HANDS_OVER_ALL = "the next generation begins with the checkpoint of the handover"
    HOLDS_END = "a task holds only while its checkpoint is under way"
    GOES_ON = "after a handover that was given up the same attempts go on"
    LEAVES = "what begins anew is on no TaskManager that leaves"
    KEEPS_WISHES = "the next driver of a job wants what the former was asked for"
    RUNS_ON = "what is not joined with a change runs on with its attempts and slots"


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
    return can_be_snapshotted(graph) and not graph.slot_sizes


def wishes_of(draw: Random, graph: JobGraph, end_ms: int) -> list[Wish]:
    """Draw what is asked for, and when."""
    times = sorted(draw.randrange(3_000, end_ms) for _ in range(draw.randint(1, _RESCALES_MAX)))
    return [Wish(at_ms, tuple(_bounds(draw, graph))) for at_ms in times]


def _bounds(draw: Random, graph: JobGraph) -> list[tuple[VertexId, int, int]]:
    """Often only a part of the job is to change, as far as nothing joins it with the rest. Vertices that share their places can always have
    the same parallelism: whoever asks for anything else is refused before the machine hears of it.
    """
    found = []
    whole = tuple(graph.vertices)
    changed = draw.choice((whole, (draw.choice(whole),)))
    same = untouched(graph, changed)
    for vertex in graph.vertices.values():
        if vertex.vertex_id in same:
            found.append((vertex.vertex_id, 1, vertex.parallelism))
            continue
        upper = draw.randint(1, _MOST_SUBTASKS)
        lower = draw.choice((1, 1, draw.randint(1, upper)))
        found.append((vertex.vertex_id, 1 if vertex.co_location_group else lower, upper))
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
        self._parallelism = parallelism_of(cluster.plan.graph)
        self._held_since: dict[AttemptId, int] = {}
        self._handing_over: tuple[JobMaster, list[AttemptId]] | None = None
        self._left: set[ResourceId] = set()
        self._former: ExecutionGraph | None = None
        self._handovers: dict[int, frozenset[VertexId]] = {}
        self.partial = 0

    def wish(self, wish: Wish) -> None:
        """Ask, unless the job has ended."""
        if not self._cluster.status.is_terminal:
            master, now_ms = self._cluster.master, self._cluster.clock.now_ms
            asked = {one: ParallelismBounds(lower, upper) for one, lower, upper in wish.bounds}
            master.guard.record_requirements(requirements_as_text(asked))
            master.feed_soon("Rescale", RescaleJob(wish.bounds, now_ms))

    def taken_over(self, left: Left) -> None:
        """Another driver has the job now."""
        desired = self._cluster.master.shell.master.desired
        asked = requirements_of(left.requirements, self._cluster.plan.graph)
        if asked is not None:
            is_kept = desired is not None and desired.bounds == asked
            self._expect(ElasticName.KEEPS_WISHES, is_kept, (desired, asked))

    def replaced(self, effect: GraphReplaced) -> None:
        """Another generation begins."""
        self.planned += effect.is_planned
        self.unplanned += not effect.is_planned
        self._has_one_owner_of_keys(effect.job_graph)
        self.partial += bool(effect.kept)
        self._runs_on(effect)
        self._is_alone(effect)
        self._is_within_bounds(effect)
        self._waits(effect)
        leaving = self._cluster.master.shell.master.leaving
        vertices = self._cluster.job.state.graph.vertices
        new = [one for one in vertices if one.vertex_id.vertex_id not in effect.kept]
        places = [one.execution.location for one in new]
        is_left = all(one is None or one.resource_id not in leaving for one in places)
        self._expect(ElasticName.LEAVES, is_left, (leaving, places))
        latest = self._cluster.checkpoints.latest
        if effect.is_planned:
            is_it = latest is not None and latest.checkpoint_id == effect.checkpoint_id
            is_it = is_it and effect.checkpoint_id in self._handovers
            self._expect(ElasticName.HANDS_OVER_ALL, is_it, effect)

    def after_step(self) -> None:
        """Look at the records of rescales, and at tasks that hold."""
        master = self._cluster.master.shell.master
        history = master.timeline.history
        ended = [one for one in history if one is not history.current]
        is_good = all(one.end is not None for one in ended)
        if master.generation.status.is_globally_terminal:
            is_good = is_good and history.current is None
        self._expect(ElasticName.RECORDS_END, is_good, ended[-1:] or history.current)
        self._holds_end()
        self._goes_on(master.generation)

    def lacks_room(self) -> bool:
        """Whether more is asked for at least than the cluster can ever give; then the job may wait after a restart."""
        desired, plan = self._cluster.master.shell.master.desired, self._cluster.plan
        most = plan.taskmanagers_max * plan.slots_each
        is_waiting = self._cluster.status is JobStatus.RESTARTING
        return is_waiting and desired is not None and desired.minimum_slots > most

    def at_quiet_end(self) -> None:
        """Check that the job has what it wants, if its slots are there."""
        master = self._cluster.master.shell.master
        desired, job = master.desired, master.generation
        if desired is None or job.status is not JobStatus.RUNNING:
            return
        states = {vertex.state for vertex in job.state.graph.vertices}
        held = job.handover_view.slots_outside(master.leaving)
        wanted = desired.parallelism(desired.desired_slots)
        if states != {ExecutionState.RUNNING} or held < desired.desired_slots or wanted is None:
            return
        found = parallelism_of(job.job_graph)
        is_declared = job.state.slots.declared[0] == desired.desired_slots
        self._expect(
            ElasticName.GETS_WHAT_IT_WANTS, found == wanted and is_declared, (found, wanted)
        )

    # ------------------------------------------------------------------ private

    def _expect(self, name: ElasticName, holds: bool, what: object) -> None:
        if not holds:
            raise Violation(name, str(what))
        self.evaluated[name] += 1

    def _has_one_owner_of_keys(self, graph: JobGraph) -> None:
        execution = self._cluster.job.state.graph
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

    def _runs_on(self, effect: GraphReplaced) -> None:
        """What runs on is whole parts of the graph, with the attempts and slots of before. After a failure nothing does."""
        graph, kept, former = self._cluster.job.state.graph, effect.kept, self._former
        name = ElasticName.RUNS_ON
        self._expect(name, effect.is_planned or not kept, kept)
        edges = [
            (edge.source in kept, vertex_id in kept)
            for vertex_id, vertex in effect.job_graph.vertices.items()
            for edge in vertex.inputs
        ]
        self._expect(name, all(one == other for one, other in edges), (kept, edges))
        if not kept:
            return
        before = {} if former is None else {one.vertex_id: one for one in former.vertices}
        running = [one for one in graph.vertices if one.vertex_id.vertex_id in kept]
        for one in running:
            old = before.get(one.vertex_id)
            is_same = old is not None and old.execution is one.execution
            may_be = {ExecutionState.RUNNING, ExecutionState.FINISHED}
            self._expect(name, is_same and one.state in may_be, (str(one), one.state))
        counts = {one: _count(before, one) for one in kept}
        wanted = {one: effect.job_graph.vertices[one].parallelism for one in kept}
        self._expect(name, counts == wanted, (counts, wanted))

    def _is_alone(self, effect: GraphReplaced) -> None:
        first_attempt, kept = effect.first_attempt, effect.kept
        links = self._cluster.master.shell.links
        processing = [
            task.attempt_id
            for taskmanager in self._cluster.taskmanagers.values()
            if taskmanager.is_alive and taskmanager.resource_id in links
            for task in taskmanager.tasks.values()
            if task.state is ExecutionState.RUNNING and not task.is_cancelled
            if task.attempt_id.vertex_id not in kept
        ]
        numbers = [one.attempt for one in self._cluster.watcher.newest_attempts()]
        is_new = all(number < first_attempt for number in numbers) or not numbers
        is_good = not processing and is_new
        self._expect(ElasticName.ONE_GENERATION, is_good, (processing, first_attempt, numbers))

    def _is_within_bounds(self, effect: GraphReplaced) -> None:
        """Only where more was asked for during a handover than there is, the job may go on as it was."""
        master, graph = self._cluster.master.shell.master, effect.job_graph
        desired = master.desired
        found = parallelism_of(graph)
        held = len(master.generation.state.slots.pool.slots)
        former, self._parallelism = self._parallelism, found
        if (
            desired is None
        ):  # Its size is fixed. It has left a TaskManager, or has failed meanwhile.
            is_move = found == former and bool(self._left)
            self._expect(ElasticName.WITHIN_BOUNDS, is_move, (found, former))
            return
        usable = master.generation.handover_view.slots_outside(master.leaving)
        has_too_few = bool(effect.kept) or desired.parallelism(usable) is None
        if effect.is_planned and found == former and has_too_few:
            return
        self._expect(
            ElasticName.WITHIN_BOUNDS,
            all(found[one] == former[one] for one in effect.kept),
            (found, former, effect.kept),
        )
        # What runs on gets what was asked for meanwhile with the generation after.
        is_good = all(
            bounds.lower <= found[one] <= bounds.upper <= graph.vertices[one].max_parallelism
            for one, bounds in desired.bounds.items()
            if one not in effect.kept
        )
        widest: Counter[str] = Counter()
        running = Counter(
            one.vertex_id.vertex_id
            for one in self._cluster.job.state.graph.vertices
            if not one.state.is_terminal  # What has finished and stays so needs no slot.
        )
        for vertex_id, vertex in graph.vertices.items():
            group = vertex.slot_sharing_group
            widest[group] = max(widest[group], running[vertex_id])
        is_good = is_good and widest.total() <= held
        self._expect(ElasticName.WITHIN_BOUNDS, is_good, (found, desired.bounds, held))

    def _waits(self, effect: GraphReplaced) -> None:
        now_ms = self._cluster.clock.now_ms
        cooldown_ms = self._cluster.plan.settings.elastic.executing.cooldown_ms
        # Who leaves a TaskManager waits for nothing.
        if effect.is_planned and self._began_ms is not None and not self._left:
            waited_ms = now_ms - self._began_ms
            self._expect(ElasticName.COOLDOWN, waited_ms >= cooldown_ms, (waited_ms, cooldown_ms))
        self._began_ms = now_ms

    def _goes_on(self, generation: JobMaster) -> None:
        """What ran when a handover began runs on when it is given up, unless the job restarts meanwhile."""
        self._former = generation.state.graph
        handover = generation.handover_view.handover
        attempts = [one.execution.attempt_id for one in generation.state.graph.vertices]
        if handover.keeps_others_waiting:
            coordinator = generation.checkpoints.coordinator
            assert coordinator is not None, "it takes checkpoints"
            pending = coordinator.pending.values()
            requests = {one.checkpoint_id: one.request for one in pending}
            self._handovers |= {i: one.kept for i, one in requests.items() if one.is_handover}
            self._handing_over = generation, attempts
            return
        former, self._handing_over = self._handing_over, None
        is_same = former is not None and former[0] is generation
        if former is not None and is_same and generation.status is JobStatus.RUNNING:
            self._expect(ElasticName.GOES_ON, former[1] == attempts, (former[1], attempts))

    def leave(self, which: float) -> None:
        """The host takes a TaskManager away soon. `which`: from 0 to 1, in the order of their names."""
        cluster = self._cluster
        links = cluster.master.shell.links
        there = sorted(
            one for one, tm in cluster.taskmanagers.items() if tm.is_alive and one in links
        )
        if not there or cluster.status.is_terminal:
            return
        event = TaskManagersLeaving(
            (there[int(which * len(there))],), "decommissioned", cluster.clock.now_ms
        )
        self._left.update(event.resource_ids)
        cluster.master.leaving_soon(event)

    def _holds_end(self) -> None:
        if self._cluster.status is JobStatus.SUSPENDED:
            return  # Its driver is gone, and tells nobody anything.
        now_ms, links = self._cluster.clock.now_ms, self._cluster.master.shell.links
        holding = {
            task.attempt_id: task.held_at
            for taskmanager in self._cluster.taskmanagers.values()
            if taskmanager.is_alive and taskmanager.resource_id in links
            for task in taskmanager.tasks.values()
            if task.held_at is not None and task.state is ExecutionState.RUNNING
        }
        known = self._handovers
        stopped = {one for one, at in holding.items() if one.vertex_id in known.get(at, ())}
        self._expect(ElasticName.RUNS_ON, not stopped, stopped)
        self._held_since = {one: self._held_since.get(one, now_ms) for one in holding}
        for one, since_ms in self._held_since.items():
            is_good = now_ms - since_ms < _HELD_TOO_LONG_MS
            self._expect(ElasticName.HOLDS_END, is_good, (one, now_ms - since_ms))


def _count(vertices: Mapping[ExecutionVertexId, ExecutionVertex], vertex_id: VertexId) -> int:
    return sum(one.vertex_id == vertex_id for one in vertices)


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
