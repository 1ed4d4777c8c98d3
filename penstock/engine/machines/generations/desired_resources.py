"""What an elastic job asks for, what it gets of some number of slots, and which vertices run on meanwhile. Knows no slot
and no task.

Source: Flink SlotSharingSlotAllocator (docs/spec/elasticity.md#from-slots-to-parallelism),
AdaptiveScheduler.assertPreconditions. Differs: two vertices between which a keyed stream continues always have the same
parallelism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.rescaling.slot_allocator import (
    VertexParallelism,
    desired_slots,
    minimum_slots,
    parallelism_for,
    sharing_groups,
)
from penstock.engine.model.elastic import ParallelismBounds
from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import (
    are_ends_equal,
    parallelism_of,
    rescaled,
    untouched,
)
from penstock.engine.model.ids import ResourceId, VertexId
from penstock.engine.model.messages import FailureInfo


class DesiredResources:
    """`bounds`: of each vertex. `groups`: the vertices by slot sharing group. `desired_slots`, `minimum_slots`: slots for
    all upper bounds, and for all lower ones.
    """

    def __init__(self, submitted: JobGraph, bounds: Mapping[VertexId, ParallelismBounds]) -> None:
        self.bounds = dict(bounds)
        self.groups = sharing_groups(submitted.vertices.values(), bounds)
        self._submitted = submitted
        vertices = submitted.vertices.values()
        self._are_apart = all(one.co_location_group is None for one in vertices)
        self._known: dict[int, dict[VertexId, int] | None] = {}
        self._equal = are_ends_equal(submitted)
        self.desired_slots = desired_slots(self.groups)
        self.minimum_slots = minimum_slots(self.groups)

    def shape(self, parallelism: Mapping[VertexId, int]) -> VertexParallelism:
        """Return the parallelism with the slots that each group needs for it."""
        slots = {one.name: max(parallelism[vertex] for vertex in one.bounds) for one in self.groups}
        return VertexParallelism(dict(parallelism), slots)

    def parallelism(self, slots: int) -> dict[VertexId, int] | None:
        """Return the parallelism of each vertex with this number of slots; None: they are too few.

        Vertices of one slot sharing group may be joined by no pipeline with equal parallelism, so
        they may have fewer subtasks. Then the job uses fewer slots than there are.
        """
        slots = min(slots, self.desired_slots)
        if self._are_apart:
            return self._with_slots(slots)
        if slots not in self._known:
            found = (self._with_slots(count) for count in range(slots, self.minimum_slots - 1, -1))
            able = (one for one in found if one is not None and self._can_run(one))
            self._known[slots] = next(able, None)
        return self._known[slots]

    def _can_run(self, parallelism: Mapping[VertexId, int]) -> bool:
        return refusal_of_graph(rescaled(self._submitted, parallelism)) is None

    def _with_slots(self, slots: int) -> dict[VertexId, int] | None:
        found = parallelism_for(self.groups, slots)
        if found is None:
            return None
        parallelism = dict(found.of_vertex)
        for _ in self._equal:  # A chain of such streams is at most so long.
            for source, target in self._equal:
                parallelism[source] = parallelism[target] = min(
                    parallelism[source], parallelism[target]
                )
        return parallelism


def refusal_of_graph(job_graph: JobGraph) -> str | None:
    """Return why the job cannot run at this parallelism; None: it can. For example vertices that share their places may be
    joined by no pipeline then.
    """
    try:
        Regions(ExecutionGraph(job_graph))
    except GraphError as error:
        return str(error)
    return None


_NEXT_STEP = "Set 'jobmanager.scheduler: Default', or change the program."


def check_elastic(job_graph: JobGraph) -> None:
    """Whether a job can be elastic, and the error if its slots do not come.

    Source: Flink AdaptiveScheduler.assertPreconditions, NoResourceAvailableException.

    Raises: ConfigurationError: the parallelism of the job cannot change while it runs.
    """
    for vertex in job_graph.vertices.values():
        if vertex.parallelism < 1:
            raise ConfigurationError(
                "the Adaptive scheduler needs the parallelism of each vertex, and "
                f"'{vertex.name}' has none. {_NEXT_STEP}"
            )
        blocking = [
            data for data in vertex.outputs if not data.result_type.must_be_pipelined_consumed
        ]
        if blocking:
            raise ConfigurationError(
                "the Adaptive scheduler takes pipelined exchanges only, and one of "
                f"'{vertex.name}' is {blocking[0].result_type}. {_NEXT_STEP}"
            )
    refusal = refusal_of_sizes(job_graph)
    if refusal is not None:
        raise ConfigurationError(f"{refusal}. {_NEXT_STEP}")


def refusal_of_sizes(job_graph: JobGraph) -> str | None:
    """Return why slots of different sizes keep the job from being rescaled; None: it has none."""
    if not job_graph.slot_sizes:
        return None
    groups = ", ".join(repr(group) for group in job_graph.slot_sizes)
    return f"slot sharing groups that ask for resources ({groups}) cannot be rescaled"


def no_slots(name: str, desired: DesiredResources, held: int) -> FailureInfo:
    """The wait for slots is over, and there are fewer than the job needs at least."""
    return FailureInfo(
        "NoResourceAvailable",
        f"Job '{name}' needs at least {desired.minimum_slots} slots and wants "
        f"{desired.desired_slots}, but it has {held} after "
        "'jobmanager.adaptive-scheduler.submission.resource-wait-timeout'. Give "
        "the cluster more cores, or lower the lower bounds of its vertices.",
        is_recoverable=False,
    )


def running_on(
    generation: JobMaster, desired: DesiredResources, leaving: Collection[ResourceId]
) -> frozenset[VertexId]:
    """Which vertices run on while a job gets another parallelism, and what parallelism the others get next to them.

    A vertex runs on if it keeps its parallelism, leaves no TaskManager, and is joined with no vertex that does not: its
    pipelined regions stay as they are. Source: none; Flink makes the whole graph anew
    (docs/spec/elasticity.md#what-runs-on).

    Return the vertices that need not stop for what the job can have now; none if that has too few slots next to them.
    """
    graph, usable = generation.job_graph, generation.handover_view.slots_outside(leaving)
    target = desired.parallelism(usable)
    if target is None:
        return frozenset()
    changed = {one for one, count in parallelism_of(graph).items() if target[one] != count}
    changed |= generation.handover_view.vertices_on(leaving)
    kept = untouched(graph, changed)
    return kept if _slots_needed(generation, kept, target, leaving) <= usable else frozenset()


def parallelism_with_kept(
    generation: JobMaster,
    submitted: JobGraph,
    desired: DesiredResources,
    leaving: Collection[ResourceId],
) -> dict[VertexId, int] | None:
    """Return the parallelism with which the next generation begins while `kept` vertices run on;
    None: there are too few slots.

    If a user or the autoscaler asks for more slots than there are, it is the former parallelism.
    """
    handover_view = generation.handover_view
    kept, usable = handover_view.kept, handover_view.slots_outside(leaving)
    former = parallelism_of(generation.job_graph)
    same = {one: former[one] for one in kept}
    wanted = desired.parallelism(usable)
    found = [] if wanted is None else [{**wanted, **same}]
    if kept:
        pinned = {one: ParallelismBounds(count, count) for one, count in same.items()}
        around = DesiredResources(submitted, {**desired.bounds, **pinned}).parallelism(usable)
        found += [] if around is None else [around]
    fitting = (
        one for one in [*found, former] if _slots_needed(generation, kept, one, leaving) <= usable
    )
    return next(fitting, None)


def _slots_needed(
    generation: JobMaster,
    kept: Collection[VertexId],
    parallelism: Mapping[VertexId, int],
    leaving: Collection[ResourceId],
) -> int:
    """Return how many slots of TaskManagers that stay are needed, if each group of new subtasks
    shares a slot with subtasks that run on.
    """
    widest: Counter[str] = Counter()
    for one, vertex in generation.job_graph.vertices.items():
        if one not in kept:
            group = vertex.slot_sharing_group
            widest[group] = max(widest[group], parallelism[one])
    return (widest | generation.handover_view.slots_shared_by(kept, leaving)).total()
