"""What a generation of a job leaves to the next one.

A generation is a JobMaster with its ExecutionGraph. The next one has other subtasks, and their attempts are new, but
for those that run on; slots, the memory of failures, checkpoints and the story belong to the job. Source: Flink
AdaptiveScheduler, which makes a new ExecutionGraph for each start.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.machines.checkpoints.coordinator_state import CheckpointCourse
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.failover import RestartBackoff
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.machines.job_state.job_slots import Declared
from penstock.engine.machines.slots.shared_slots import SharedSlot
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.machines.story import EventLog
from penstock.engine.model.ids import AllocationId, ResourceId, VertexId
from penstock.engine.model.states import ExecutionState, JobStatus


@dataclass(frozen=True, slots=True)
class HandedOver:
    """`pool`: with all slots that the job holds. `freed`: allocations that are over. `gone`: TaskManagers that are.

    `declared`: what was declared to the ResourceManager last. `numbers`: the next bulk, restart and slot request, so
    that a late timer of the former generation means nothing. `kept`: vertices whose subtasks run on. `seats`: their
    slots, and no others.
    """

    status: JobStatus
    graph: ExecutionGraph
    event_log: EventLog
    pool: SlotPool
    freed: set[AllocationId]
    gone: set[ResourceId]
    declared: Declared
    backoff: RestartBackoff
    history: ExceptionHistory
    checkpoints: CheckpointCourse
    numbers: tuple[int, int, int]
    kept: frozenset[VertexId] = frozenset()
    seats: tuple[SharedSlot, ...] = ()

    @property
    def first_attempt(self) -> int:
        """A number that no subtask of the former generations has had, so that their late messages are recognised."""
        if all(vertex.state is ExecutionState.CREATED for vertex in self.graph.vertices):
            return self.graph.vertices[0].execution.attempt_id.attempt
        return 1 + max(one.execution.attempt_id.attempt for one in self.graph.vertices)


def adopt_attempts(graph: ExecutionGraph, left: HandedOver) -> None:
    """Give each subtask the attempts that the former generation had of it, and the place of the last one.

    Those that run on get their current attempt too.
    """
    known = {vertex.vertex_id: vertex for vertex in left.graph.vertices}
    for vertex in graph.vertices:
        old = known.get(vertex.vertex_id)
        if old is not None and vertex.vertex_id.vertex_id in left.kept:
            run_on(vertex, old)
        elif old is not None and old.state is not ExecutionState.CREATED:
            vertex.history.extend((*old.history, old.execution))
            vertex.last_location = old.execution.location or old.last_location
            vertex.last_allocation_id = old.execution.allocation_id or old.last_allocation_id


def run_on(vertex: ExecutionVertex, old: ExecutionVertex) -> None:
    vertex.execution, vertex.history = old.execution, old.history
    vertex.last_location, vertex.last_allocation_id = old.last_location, old.last_allocation_id
    vertex.version = old.version
    vertex.job_vertex.finished += old.state is ExecutionState.FINISHED
    for partition, same in zip(vertex.partitions, old.partitions, strict=True):
        partition.is_available = same.is_available
