"""Further attempts of slow subtasks, each in a slot of its own, and attempts that have lost and still end.

None of them is the `execution` of its vertex, which all other books mean. An attempt that takes the place of one that has
failed keeps its own slot. Knows no time limit. Source: Flink SpeculativeExecutionVertex (docs/spec/elasticity.md#second-attempts).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from penstock.machines.books.journal import Journal
from penstock.machines.execution.execution import Consequence, ExecutionEvent
from penstock.machines.execution.execution_graph import Execution, ExecutionVertex
from penstock.machines.resources.blocklist import Blocklist
from penstock.machines.scheduling.task_deployments import TaskDeployments
from penstock.machines.slots.shared_slots import SharedSlots
from penstock.machines.slots.slot_matching import SlotRequest
from penstock.machines.slots.slot_pool import PooledSlot
from penstock.model.ids import AllocationId, AttemptId, ResourceId, SlotRequestId
from penstock.model.messages import CancelTask, DeployTask, ExecutionStateChanged, FailureInfo
from penstock.model.states import ExecutionState

_DEPLOYED: Final = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
})


@dataclass(slots=True, eq=False)
class Rival:
    """One further attempt. `slot` None: it waits for one."""

    vertex: ExecutionVertex
    execution: Execution
    request: SlotRequest
    slot: PooledSlot | None = None

    def __str__(self) -> str:
        return str(self.vertex)


class Rivals:
    """`blocklist`: nodes whose slots the job does not take."""

    def __init__(
        self,
        journal: Journal,
        shared_slots: SharedSlots,
        deployments: TaskDeployments,
        gone: Container[ResourceId],
    ) -> None:
        """`gone`: TaskManagers that cannot be reached."""
        self.blocklist = Blocklist()
        self._journal = journal
        self._shared_slots = shared_slots
        self._deployments = deployments
        self._gone = gone
        self._alive: dict[AttemptId, Rival] = {}
        self._ending: dict[AttemptId, Execution] = {}
        self._seats: dict[int, Rival] = {}

    # ------------------------------------------------------------------ views

    def find(self, attempt_id: AttemptId) -> Rival | None:
        return self._alive.get(attempt_id)

    def of(self, vertex: ExecutionVertex) -> list[Rival]:
        """Return the further attempts of a subtask, oldest first."""
        return [one for one in self._alive.values() if one.vertex is vertex]

    def successor_of(self, vertex: ExecutionVertex) -> Rival | None:
        """Return the one that goes on if the attempt of the vertex fails: the oldest that is deployed."""
        found = self.of(vertex)
        return next((one for one in found if one.execution.state in _DEPLOYED), None)

    def at(self, resource_id: ResourceId) -> list[Rival]:
        found = self._alive.values()
        return [one for one in found if one.slot and one.slot.resource_id == resource_id]

    def in_slot(self, allocation_id: AllocationId) -> list[Rival]:
        found = self._alive.values()
        return [one for one in found if one.slot and one.slot.allocation_id == allocation_id]

    def waiting(self) -> list[Rival]:
        return [one for one in self._alive.values() if one.slot is None]

    def seat_of(self, vertex: ExecutionVertex) -> PooledSlot | None:
        """Return the slot of a vertex whose attempt was a further one; None: it sits in a shared slot, or in none."""
        rival = self._seats.get(vertex.index)
        return None if rival is None else rival.slot

    def seated_in(self, allocation_id: AllocationId) -> list[ExecutionVertex]:
        found = self._seats.values()
        return [one.vertex for one in found if one.slot and one.slot.allocation_id == allocation_id]

    # ------------------------------------------------------------------ lives

    def start(self, vertex: ExecutionVertex) -> None:
        """Begin a further attempt, which waits for a slot."""
        execution = Execution(AttemptId(vertex.vertex_id, vertex.take_attempt()))
        profile = self._shared_slots.profile_of(vertex)
        request = SlotRequest(SlotRequestId(f"rival-{execution.attempt_id}"), profile)
        self._alive[execution.attempt_id] = Rival(vertex, execution, request)
        self.move(execution, ExecutionEvent.SCHEDULE)
        self._shared_slots.pool.request_new(request)

    def serve(self, request_id: SlotRequestId, slot: PooledSlot) -> bool:
        """Deploy the attempt that has waited for this slot. Returns: whether there is one."""
        rival = next((r for r in self._alive.values() if r.request.request_id == request_id), None)
        if rival is None:
            return False
        rival.slot, execution = slot, rival.execution
        execution.location, execution.allocation_id = slot.location, slot.allocation_id
        self.move(execution, ExecutionEvent.DEPLOY)
        deployment = self._deployments.of(rival.vertex, execution)
        self._journal.emit(DeployTask(slot.resource_id, deployment))
        return True

    def move(
        self, execution: Execution, event: ExecutionEvent, failure: FailureInfo | None = None
    ) -> Consequence:
        """Move an attempt of this book by its table."""
        old, now_ms = execution.state, self._journal.now_ms
        consequence = execution.apply(event, now_ms)
        if execution.state is ExecutionState.FAILED:
            execution.failure = failure
        if execution.state is not old:
            cause = "" if failure is None else failure.kind
            changed = ExecutionStateChanged(
                execution.attempt_id, old, execution.state, now_ms, cause, is_concurrent=True
            )
            self._journal.tell(changed)
        return consequence

    def cancel(self, vertex: ExecutionVertex) -> None:
        """End all further attempts of a subtask."""
        for rival in self.of(vertex):
            self.end(rival)

    def end(self, rival: Rival) -> None:
        self.drop(rival)
        self.retire(rival.vertex, rival.execution)

    def retire(self, vertex: ExecutionVertex, execution: Execution) -> None:
        """End an attempt that is not needed any more. Nothing but its end is heard of it."""
        if self.move(execution, ExecutionEvent.CANCEL) is Consequence.SEND_CANCEL:
            location = execution.location
            if location is not None and location.resource_id not in self._gone:
                self._ending[execution.attempt_id] = execution
                self._journal.emit(CancelTask(location.resource_id, execution.attempt_id))
            else:
                self.move(execution, ExecutionEvent.REPORT_CANCELED)
        vertex.history.append(execution)

    def fail(self, rival: Rival, failure: FailureInfo) -> None:
        self.drop(rival)
        self.move(rival.execution, ExecutionEvent.FAIL, failure)
        rival.vertex.history.append(rival.execution)

    def drop(self, rival: Rival) -> None:
        """It is in this book no more, and its slot is given back to the pool."""
        del self._alive[rival.execution.attempt_id]
        self._shared_slots.pool.release(rival.request.request_id, self._journal.now_ms)

    def ended(self, attempt_id: AttemptId) -> None:
        """The attempt has ended. Ignored unless that was waited for."""
        execution = self._ending.pop(attempt_id, None)
        if execution is not None:
            self.move(execution, ExecutionEvent.REPORT_CANCELED)

    def lose(self, resource_id: ResourceId) -> None:
        """Nothing more is heard of the attempts that end on a TaskManager."""
        for attempt_id, execution in list(self._ending.items()):
            if execution.location is not None and execution.location.resource_id == resource_id:
                self.ended(attempt_id)

    # ------------------------------------------------------------------ places

    def succeed(self, rival: Rival) -> None:
        """It becomes the attempt of its vertex, whose former attempt has failed, and stays in its slot."""
        vertex = rival.vertex
        del self._alive[rival.execution.attempt_id]
        vertex.history.append(vertex.execution)
        vertex.execution = execution = rival.execution
        self._seats[vertex.index] = rival
        state, now_ms = execution.state, self._journal.now_ms
        self._journal.tell(ExecutionStateChanged(execution.attempt_id, state, state, now_ms))

    def leave(self, vertex: ExecutionVertex) -> None:
        """The vertex gives its own slot back, if it has one."""
        rival = self._seats.pop(vertex.index, None)
        if rival is not None:
            self._shared_slots.pool.release(rival.request.request_id, self._journal.now_ms)
