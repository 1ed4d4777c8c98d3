"""Views of a JobMaster for others: where tasks ran, and their progress.

Knows only the execution graph, which it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.machines.execution.execution_graph import (
    Execution,
    ExecutionGraph,
    ExecutionVertex,
)
from penstock.engine.machines.execution.regions import Region
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.model import ids
from penstock.engine.model.messages import TaskIo, VertexProgress
from penstock.engine.model.states import ExecutionState

_NO_WATERMARK_MS: Final = -(2**63)
_LAST_WATERMARK_MS: Final = 2**63 - 1


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


def task_metrics_of(graph: ExecutionGraph) -> list[tuple[str, int, TaskIo]]:
    """Return (vertex name, subtask, its last report) of the current attempts."""
    return [
        (vertex.job_vertex.name, vertex.subtask, vertex.execution.io or TaskIo())
        for vertex in graph.vertices
    ]


def progress_of(graph: ExecutionGraph) -> list[VertexProgress]:
    """Return one entry per job vertex, from sources to sinks, with counters of the current attempts."""
    found: list[VertexProgress] = []
    for job_vertex in graph.job_vertices:
        ios = [vertex.execution.io or TaskIo() for vertex in job_vertex.vertices]
        found.append(
            VertexProgress(
                vertex_id=job_vertex.job_vertex.vertex_id,
                name=job_vertex.name,
                parallelism=len(job_vertex.vertices),
                states=dict(Counter(vertex.state for vertex in job_vertex.vertices)),
                records_in=sum(io.records_in for io in ios),
                records_out=sum(io.records_out for io in ios),
                busy_ms_per_s=max((io.busy_ms_per_s for io in ios), default=0.0),
                backpressured_ms_per_s=max((io.backpressured_ms_per_s for io in ios), default=0.0),
                watermark_ms=_watermark_of(ios),
            )
        )
    return found


def _watermark_of(ios: Sequence[TaskIo]) -> int | None:
    """Return the lowest watermark; None where it says nothing: before the first one, and after the last."""
    lowest = min((io.watermark_ms for io in ios), default=_NO_WATERMARK_MS)
    return lowest if _NO_WATERMARK_MS < lowest < _LAST_WATERMARK_MS else None


def _place(vertex: ExecutionVertex, execution: Execution) -> TaskPlace:
    return TaskPlace(
        execution.attempt_id,
        vertex.job_vertex.name,
        vertex.subtask,
        execution.state,
        execution.location,
        execution.allocation_id,
    )
