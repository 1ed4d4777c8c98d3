"""How far a generation of a job is on its way to the next one, and what that one goes on with.

Two ways lead to the next generation. Either this one hands over: a checkpoint behind which all tasks stop holds all that
they did, and when it is complete they end, but for vertices that run on into the next generation. Or it fails, and the
next one begins with the last completed checkpoint, as any restart does. Who decides:
`machines/generations`.
Source: Flink AdaptiveScheduler, which knows the second way only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from penstock.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.machines.checkpoints.handover import Handover
from penstock.machines.job.books import JobBooks
from penstock.machines.job.failure_handler import FailureHandler
from penstock.machines.job.inheritance import Inheritance
from penstock.machines.slots.shared_slots import SharedSlot
from penstock.model.ids import ResourceId, VertexId
from penstock.model.states import ExecutionState, JobStatus

_MAY_BE_IN_A_CHECKPOINT = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class Succession:
    """Of one generation; read only. `succession_events` change it."""

    def __init__(self, books: JobBooks, failures: FailureHandler) -> None:
        self._books = books
        self._failures = failures

    @property
    def handover(self) -> Handover:
        return self._books.checkpoints.handover

    @property
    def can_hand_over(self) -> bool:
        """Whether all tasks can take part in a checkpoint now, and no savepoint has to be taken first."""
        coordinator = self._books.checkpoints.coordinator
        if coordinator is None or self._books.life.status is not JobStatus.RUNNING:
            return False
        if coordinator.handover.keeps_others_waiting or _has_savepoint(coordinator):
            return False
        states = {vertex.state for vertex in self._books.graph.vertices}
        return ExecutionState.RUNNING in states and states <= _MAY_BE_IN_A_CHECKPOINT

    @property
    def kept(self) -> frozenset[VertexId]:
        """The vertices whose tasks run on into the next generation."""
        life = self._books.life
        is_planned = life.has_handed_over and life.status is JobStatus.RUNNING
        return self.handover.kept if is_planned else frozenset()

    @property
    def is_over(self) -> bool:
        """Whether the next generation may begin now."""
        life, alive = self._books.life, self._books.attempts.alive
        if life.awaits_next and life.status is JobStatus.RESTARTING:
            return alive == 0
        if not life.has_handed_over or life.status is not JobStatus.RUNNING:
            return False
        return alive == 0 or (bool(self.kept) and self._have_all_but_kept_ended())

    def _have_all_but_kept_ended(self) -> bool:
        kept, may_be = self.kept, _MAY_BE_IN_A_CHECKPOINT
        return all(
            vertex.state in may_be
            if vertex.vertex_id.vertex_id in kept
            else vertex.state.is_terminal
            for vertex in self._books.graph.vertices
        )

    @property
    def may_begin(self) -> bool:
        """Whether nothing runs and nothing is waited for but slots."""
        return self.is_over or self._books.life.status is JobStatus.CREATED

    def inheritance(self) -> Inheritance:
        """Return what the next generation goes on with. This one takes no more events."""
        books = self._books
        return Inheritance(
            books.life.status,
            books.graph,
            books.journal,
            books.slots.pool,
            books.slots.freed,
            books.attempts.gone,
            books.slots.declared,
            self._failures.backoff,
            self._failures.history,
            books.checkpoints.course,
            (
                books.deployer.next_bulk,
                books.restarts.next_number,
                books.slots.shared_slots.next_request,
            ),
            self.kept,
            tuple(self._seats_of(self.kept)),
        )

    # ------------------------------------------------------------------ slots

    def slots_outside(self, leaving: Collection[ResourceId]) -> int:
        """Return how many slots the job holds, except those on these TaskManagers."""
        slots = self._books.slots.pool.slots.values()
        return sum(slot.resource_id not in leaving for slot in slots)

    @property
    def slots_wanted(self) -> int:
        """What the last `HoldSlots` has told."""
        return self._books.slots.pool.floor

    def slots_used(self, there: Collection[ResourceId] | None = None) -> int:
        """Return how many slots subtasks have on these TaskManagers; None: on all."""
        slots = self._books.slots.pool.slots.values()
        used = [slot.resource_id for slot in slots if slot.serves is not None]
        return sum(there is None or resource_id in there for resource_id in used)

    def is_seated_on(self, leaving: Collection[ResourceId]) -> bool:
        """Whether a subtask has a slot on one of these TaskManagers."""
        return self.slots_used(leaving) > 0

    def slots_shared_by(
        self, vertices: Collection[VertexId], leaving: Collection[ResourceId]
    ) -> Counter[str]:
        """Return in how many slots subtasks of these vertices sit, except on these TaskManagers, by slot sharing group."""
        return Counter(
            seat.group.slot_sharing_group
            for seat in self._seats_of(vertices)
            if seat.slot is not None and seat.slot.resource_id not in leaving
        )

    def vertices_on(self, resource_ids: Collection[ResourceId]) -> set[VertexId]:
        """Return the vertices with a subtask that has a slot on one of these TaskManagers."""
        return {
            vertex.vertex_id.vertex_id
            for seat in self._books.slots.shared_slots
            if seat.slot is not None and seat.slot.resource_id in resource_ids
            for vertex in seat.members.values()
        }

    def _seats_of(self, vertices: Collection[VertexId]) -> list[SharedSlot]:
        return [
            seat
            for seat in self._books.slots.shared_slots
            if any(one.vertex_id.vertex_id in vertices for one in seat.members.values())
        ]


def _has_savepoint(coordinator: CheckpointCoordinator) -> bool:
    """Whether a user waits for a savepoint. It comes before a handover."""
    return any(one.checkpoint_type.is_savepoint for one in coordinator.asked_for)
