"""What a job asks for, and what it gets of so many slots. Knows no slot and no task.

Source: Flink SlotSharingSlotAllocator (docs/spec/elasticity.md#from-slots-to-parallelism). Differs: two vertices between
which a keyed stream goes on always have the same parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.rescaling.parallelism import (
    VertexParallelism,
    desired_slots,
    minimum_slots,
    parallelism_for,
    sharing_groups,
)
from penstock.engine.model.elastic.parallelism_bounds import ParallelismBounds
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import are_ends_equal, rescaled
from penstock.engine.model.ids import VertexId


class DesiredResources:
    """`bounds`: of each vertex. `groups`: the vertices by slot sharing group. `desired_slots`, `minimum_slots`: slots for all upper bounds, and for all
    lower ones.
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
        """Return the parallelism of each vertex with so many slots; None: they are too few.

        Vertices that share their places may be joined by no pipeline with one number of subtasks, and with fewer they are. Then the job
        uses fewer slots than there are.
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
    """Return why the job cannot run at this parallelism; None: it can. For example vertices that share their places may be joined by no
    pipeline then.
    """
    try:
        Regions(ExecutionGraph(job_graph))
    except GraphError as error:
        return str(error)
    return None
