"""What a generation of a job leaves to the next one. A generation is a JobMaster with its ExecutionGraph.

The next one has other subtasks, and all of their attempts are new; but slots, the memory of failures, checkpoints and
the story belong to the job. Source: Flink AdaptiveScheduler, which makes a new ExecutionGraph for each start.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.machines.books.journal import Journal
from penstock.machines.books.slots import Declared
from penstock.machines.checkpoints.course import CheckpointCourse
from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.machines.failover.restart_backoff import RestartBackoff
from penstock.machines.job.exception_history import ExceptionHistory
from penstock.machines.slots.slot_pool import SlotPool
from penstock.model.ids import AllocationId, ResourceId
from penstock.model.states import ExecutionState, JobStatus


@dataclass(frozen=True, slots=True)
class Inheritance:
    """`pool`: with all slots that the job holds. `freed`: allocations that are over. `gone`: TaskManagers that are.

    `declared`: what the ResourceManager was told last. `numbers`: the next bulk, restart and slot request, so that a late
    timer of the former generation means nothing.
    """

    status: JobStatus
    graph: ExecutionGraph
    journal: Journal
    pool: SlotPool
    freed: set[AllocationId]
    gone: set[ResourceId]
    declared: Declared
    backoff: RestartBackoff
    history: ExceptionHistory
    checkpoints: CheckpointCourse
    numbers: tuple[int, int, int]

    @property
    def first_attempt(self) -> int:
        """A number that no subtask of the former generations has had, so that their late messages are recognised."""
        if all(vertex.state is ExecutionState.CREATED for vertex in self.graph.vertices):
            return self.graph.vertices[0].execution.attempt_id.attempt
        return 1 + max(vertex.execution.attempt_id.attempt for vertex in self.graph.vertices)


def adopt_attempts(graph: ExecutionGraph, former: ExecutionGraph) -> None:
    """Give each subtask the attempts that the former generation had of it, and the place of the last one."""
    known = {vertex.vertex_id: vertex for vertex in former.vertices}
    for vertex in graph.vertices:
        old = known.get(vertex.vertex_id)
        if old is None or old.state is ExecutionState.CREATED:
            continue
        vertex.history.extend((*old.history, old.execution))
        vertex.last_location = old.execution.location or old.last_location
        vertex.last_allocation_id = old.execution.allocation_id or old.last_allocation_id
