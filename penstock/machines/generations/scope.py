"""Which vertices run on while a job gets another parallelism, and what parallelism the others get beside them.

A vertex runs on if it keeps its parallelism, leaves no TaskManager, and is joined with no vertex that does not: its pipelined regions
stay as they are. Source: none; Flink makes the whole graph anew (docs/spec/elasticity.md#what-runs-on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.machines.generations.demand import Demand
from penstock.machines.job.job_master import JobMaster
from penstock.model.elastic.parallelism_bounds import ParallelismBounds
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import parallelism_of, untouched
from penstock.model.ids import ResourceId, VertexId


def running_on(
    generation: JobMaster, demand: Demand, leaving: Collection[ResourceId]
) -> frozenset[VertexId]:
    """Return the vertices that need not stop for what the job can have now; none if that has too few slots beside them."""
    graph, usable = generation.job_graph, generation.succession.slots_outside(leaving)
    target = demand.parallelism(usable)
    if target is None:
        return frozenset()
    changed = {one for one, count in parallelism_of(graph).items() if target[one] != count}
    changed |= generation.succession.vertices_on(leaving)
    kept = untouched(graph, changed)
    return kept if _slots_beside(generation, kept, target, leaving) <= usable else frozenset()


def beside(
    generation: JobMaster, submitted: JobGraph, demand: Demand, leaving: Collection[ResourceId]
) -> dict[VertexId, int] | None:
    """Return the parallelism with which the next generation begins beside the vertices that run on; None: there are too few slots for it.

    If more is asked for meanwhile than there is, it is the former one.
    """
    succession = generation.succession
    kept, usable = succession.kept, succession.slots_outside(leaving)
    former = parallelism_of(generation.job_graph)
    same = {one: former[one] for one in kept}
    wanted = demand.parallelism(usable)
    found = [] if wanted is None else [{**wanted, **same}]
    if kept:
        pinned = {one: ParallelismBounds(count, count) for one, count in same.items()}
        around = Demand(submitted, {**demand.bounds, **pinned}).parallelism(usable)
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
    return (widest | generation.succession.slots_shared_by(kept, leaving)).total()
