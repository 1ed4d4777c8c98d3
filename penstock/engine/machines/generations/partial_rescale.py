"""Which vertices run on while a job gets another parallelism, and what parallelism the others get next to them.

A vertex runs on if it keeps its parallelism, leaves no TaskManager, and is joined with no vertex that does not: its pipelined regions
stay as they are. Source: none; Flink makes the whole graph anew (docs/spec/elasticity.md#what-runs-on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.engine.machines.generations.desired_resources import DesiredResources
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.model.elastic.parallelism_bounds import ParallelismBounds
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import parallelism_of, untouched
from penstock.engine.model.ids import ResourceId, VertexId


def running_on(
    generation: JobMaster, desired: DesiredResources, leaving: Collection[ResourceId]
) -> frozenset[VertexId]:
    """Return the vertices that need not stop for what the job can have now; none if that has too few slots next to them."""
    graph, usable = generation.job_graph, generation.handover_view.slots_outside(leaving)
    target = desired.parallelism(usable)
    if target is None:
        return frozenset()
    changed = {one for one, count in parallelism_of(graph).items() if target[one] != count}
    changed |= generation.handover_view.vertices_on(leaving)
    kept = untouched(graph, changed)
    return kept if _slots_beside(generation, kept, target, leaving) <= usable else frozenset()


def beside(
    generation: JobMaster,
    submitted: JobGraph,
    desired: DesiredResources,
    leaving: Collection[ResourceId],
) -> dict[VertexId, int] | None:
    """Return the parallelism with which the next generation begins next to the vertices that run on; None: there are too few slots for it.

    If more is asked for meanwhile than there is, it is the former one.
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
        one for one in [*found, former] if _slots_beside(generation, kept, one, leaving) <= usable
    )
    return next(fitting, None)


def _slots_beside(
    generation: JobMaster,
    kept: Collection[VertexId],
    parallelism: Mapping[VertexId, int],
    leaving: Collection[ResourceId],
) -> int:
    """Return how many slots of TaskManagers that stay are needed, if each group of new subtasks shares one with subtasks that run on."""
    widest: Counter[str] = Counter()
    for one, vertex in generation.job_graph.vertices.items():
        if one not in kept:
            group = vertex.slot_sharing_group
            widest[group] = max(widest[group], parallelism[one])
    return (widest | generation.handover_view.slots_shared_by(kept, leaving)).total()
