"""Which slot each slot sharing group of a new generation gets, so that much of its keyed state is on its TaskManager already.

Source: Flink StateLocalitySlotAssigner, AdaptiveScheduler (docs/spec/elasticity.md#slot-assignment). Differs: the groups are those of the
job's slot sharing, which need not have subtasks of one index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.machines.adaptive.slot_assignment import (
    ExecutionGroup,
    FormerAssignment,
    FormerPlace,
    SlotPlace,
    by_state,
)
from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.machines.slots.slot_sharing import SharingGroup
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.graph.job_graph import JobVertex
from penstock.model.graph.rescaling import parallelism_of
from penstock.model.ids import AllocationId


def slots_by_state(
    groups: Sequence[SharingGroup],
    free: Sequence[SlotPlace],
    former: ExecutionGraph,
    latest: CompletedCheckpoint | None,
) -> dict[SharingGroup, AllocationId]:
    """Return a slot for each group; none if the slots are too few. `latest`: the checkpoint with which the generation begins."""
    if len(free) < len(groups):
        return {}
    wanted = [
        ExecutionGroup(
            group.slot_sharing_group,
            group.index,
            tuple(vertex.vertex_id for vertex in group.vertices),
        )
        for group in groups
    ]
    by_index = {group.index: group for group in groups}
    found = by_state(wanted, free, former_assignment(former, latest))
    return {by_index[group.index]: slot for slot, group in found.items()}


def former_assignment(
    former: ExecutionGraph, latest: CompletedCheckpoint | None
) -> FormerAssignment:
    """Return where the former generation had its state. `latest` None: nothing is known of its bytes."""
    places = {}
    for vertex in former.vertices:
        location = vertex.execution.location or vertex.last_location
        allocation_id = vertex.execution.allocation_id or vertex.last_allocation_id
        if location is not None and allocation_id is not None:
            places[vertex.vertex_id] = FormerPlace(allocation_id, location.host)
    vertices = former.job_graph.vertices
    bytes_of = {} if latest is None else _keyed_bytes(latest)
    return FormerAssignment(
        places,
        parallelism_of(former.job_graph),
        {name: vertex.max_parallelism for name, vertex in vertices.items()},
        {name: _held(vertex, bytes_of) for name, vertex in vertices.items()},
    )


def _held(vertex: JobVertex, bytes_of: Mapping[str, int]) -> int:
    return sum(bytes_of.get(operator.uid, 0) for operator in vertex.operators)


def _keyed_bytes(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """The bytes of keyed state by the uid of the operator."""
    found: dict[str, int] = {}
    for operator in checkpoint.operators:
        states = [state for state in operator.subtasks if state is not None]
        handles = [one.handle for state in states for one in state.keyed]
        files = [file for state in states for one in state.databases for _, file in one.files]
        found[operator.uid] = sum(handle.size for handle in (*handles, *files))
    return found
