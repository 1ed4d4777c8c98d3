"""Views of a JobMaster for others: where tasks ran, and what they have counted.

Knows only the execution graph, which it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.machines.execution.execution_graph import (
    Execution,
    ExecutionGraph,
    ExecutionVertex,
)
from penstock.engine.machines.execution.regions import Region
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.model import ids
from penstock.engine.model.states import ExecutionState


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """One attempt and where it ran. `location` None: it never had a slot."""

    attempt_id: ids.AttemptId
    vertex_name: str
    subtask: int
    state: ExecutionState
    location: ids.TaskManagerLocation | None
    allocation_id: ids.AllocationId | None


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """One subtask as the program defines it. `index`: its place among all subtasks of the job, sources first."""

    vertex_id: ids.ExecutionVertexId
    index: int
    name: str
    slot_sharing_group: str
    co_location_group: str | None
    region: int


@dataclass(frozen=True, slots=True)
class SeatsView:
    """The tasks in one slot, by vertex index."""

    allocation_id: ids.AllocationId
    location: ids.TaskManagerLocation
    indices: tuple[int, ...]


def subtasks_of(graph: ExecutionGraph, regions: Sequence[Region]) -> list[SubtaskView]:
    """Return all subtasks, by index."""
    region_of = {vertex.index: region.index for region in regions for vertex in region.vertices}
    return [
        SubtaskView(
            vertex.vertex_id,
            vertex.index,
            str(vertex),
            vertex.job_vertex.slot_sharing_group,
            vertex.job_vertex.co_location_group,
            region_of[vertex.index],
        )
        for vertex in graph.vertices
    ]


def seats_of(shared_slots: SharedSlots) -> list[SeatsView]:
    """Return the seats of all slots that are in use."""
    return [
        SeatsView(shared.slot.allocation_id, shared.slot.location, tuple(sorted(shared.members)))
        for shared in shared_slots
        if shared.slot is not None
    ]


def places_of(graph: ExecutionGraph) -> list[TaskPlace]:
    """Return all attempts that are remembered, by subtask in topological order, older ones first."""
    return [
        _place(vertex, execution)
        for vertex in graph.vertices
        for execution in (*vertex.history, vertex.execution)
    ]


def _place(vertex: ExecutionVertex, execution: Execution) -> TaskPlace:
    return TaskPlace(
        execution.attempt_id,
        vertex.job_vertex.name,
        vertex.subtask,
        execution.state,
        execution.location,
        execution.allocation_id,
    )
