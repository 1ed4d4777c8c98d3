"""What a job asks for, and what it gets of so many slots. Knows no slot and no task.

Source: Flink SlotSharingSlotAllocator (docs/spec/elasticity.md#from-slots-to-parallelism). Differs: two vertices between
which a keyed stream goes on always have the same parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.machines.adaptive.parallelism import (
    VertexParallelism,
    desired_slots,
    minimum_slots,
    parallelism_for,
    sharing_groups,
)
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import are_ends_equal
from penstock.model.ids import VertexId
from penstock.model.parallelism_bounds import ParallelismBounds


class Demand:
    """`bounds`: of each vertex. `groups`: the vertices by slot sharing group. `desired`, `minimum`: slots for all upper bounds, and for all
    lower ones.
    """

    def __init__(self, submitted: JobGraph, bounds: Mapping[VertexId, ParallelismBounds]) -> None:
        self.bounds = dict(bounds)
        self.groups = sharing_groups(submitted.vertices.values(), bounds)
        self._equal = are_ends_equal(submitted)
        self.desired = desired_slots(self.groups)
        self.minimum = minimum_slots(self.groups)

    def shape(self, parallelism: Mapping[VertexId, int]) -> VertexParallelism:
        """Return the parallelism with the slots that each group needs for it."""
        slots = {one.name: max(parallelism[vertex] for vertex in one.bounds) for one in self.groups}
        return VertexParallelism(dict(parallelism), slots)

    def parallelism(self, slots: int) -> dict[VertexId, int] | None:
        """Return the parallelism of each vertex with so many slots; None: they are too few."""
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
