"""How a generation of a job begins, and how it gives way to the next one.

Two ways lead to the next generation. Either this one hands over: a checkpoint behind which all tasks stop holds all that
they did, and when it is complete they end, but for vertices that run on into the next generation. Or it fails, and the
next one begins with the last completed checkpoint, as any restart does. Who decides: `machines/adaptive`.
Source: Flink AdaptiveScheduler, which knows the second way only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from penstock.machines.books.job_status import JobStatusEvent
from penstock.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.machines.checkpoints.handover import Handover
from penstock.machines.job.books import JobBooks
from penstock.machines.job.failure_handler import FailureHandler
from penstock.machines.job.inheritance import Inheritance
from penstock.machines.job.kept_seats import seat_beside
from penstock.machines.job.moves import JobMoves
from penstock.machines.job.state_locality import slots_by_state
from penstock.machines.scheduling.scheduling import SchedulingStrategy
from penstock.machines.slots.shared_slots import SharedSlot
from penstock.model.ids import ResourceId, VertexId
from penstock.model.messages import GraphReplaced
from penstock.model.states import ExecutionState, JobStatus

_MAY_BE_IN_A_CHECKPOINT = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class Succession:
    """Of one generation. Its changes are made within `JobMaster.change`."""

    def __init__(
        self,
        books: JobBooks,
        moves: JobMoves,
        failures: FailureHandler,
        scheduling: SchedulingStrategy,
    ) -> None:
        self._books = books
        self._moves = moves
        self._failures = failures
        self._scheduling = scheduling

    # ------------------------------------------------------------------ the beginning

    def start(self) -> None:
        """Begin as the first generation of the job."""
        self._books.life.move(JobStatusEvent.START)
        self._books.checkpoints.restore_coordinators()
        self._moves.allocate(self._scheduling.start())

    def take_over(self, left: Inheritance, leaving: Collection[ResourceId] = frozenset()) -> None:
        """Begin where the generation before has stopped, but on none of the TaskManagers that are `leaving`."""
        books, latest = self._books, self._books.checkpoints.store.latest
        former = left.graph
        status = books.life.status
        replaced = GraphReplaced(
            books.graph.job_graph,
            tuple(vertex.vertex_id for vertex in former.vertices),
            left.first_attempt,
            None if latest is None else latest.checkpoint_id,
            is_planned=status is JobStatus.RUNNING,
            kept=left.kept,
        )
        books.journal.emit(replaced)
        books.checkpoints.restore_coordinators(left.kept)
        if status is JobStatus.CREATED:
            books.life.move(JobStatusEvent.START)
        elif status is JobStatus.RESTARTING:
            books.life.move(JobStatusEvent.RESTARTED)
        books.slots.leave(leaving)
        shared, needed = books.slots.shared_slots, 0
        if left.kept:
            seat_beside(books.graph, shared, left, leaving)
            needed = len(shared.groups)  # What runs on may have more than is asked for by now.
        books.slots.keep(max(needed, books.slots.pool.floor))
        if left.kept:
            new = [one for one in books.graph.vertices if one.vertex_id.vertex_id not in left.kept]
            self._moves.allocate(self._scheduling.restart(new))
            return
        if books.deployer.keeps_state_near:
            free = books.slots.pool.free
            shared.planned = slots_by_state(shared.groups, free, former, latest)
        self._moves.allocate(self._scheduling.start())

    # ------------------------------------------------------------------ the end

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

    def hand_over(self, kept: frozenset[VertexId] = frozenset()) -> None:
        """Take a checkpoint behind which all tasks end, but those of vertices that are `kept`: no edge may join them with others."""
        self._books.checkpoints.hand_over(self._books.journal.now_ms, kept)

    @property
    def kept(self) -> frozenset[VertexId]:
        """The vertices whose tasks run on into the next generation."""
        life = self._books.life
        is_planned = life.has_handed_over and life.status is JobStatus.RUNNING
        return self.handover.kept if is_planned else frozenset()

    def give_up_kept(self) -> None:
        """The next generation cannot begin beside the tasks that run on. They end too, and it begins as after a failure."""
        self._books.life.move(JobStatusEvent.RESTARTABLE_FAILURE)
        self._books.life.awaits_next = True
        for vertex in self._books.graph.vertices:
            self._books.attempts.cancel(vertex)

    def leave_restarts(self) -> None:
        """Leave the next restart of the whole job to another generation."""
        self._failures.is_replaced_at_restart = True

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

    def wait(self) -> None:
        """The next generation cannot begin yet."""
        life = self._books.life
        if life.status is JobStatus.RUNNING:
            life.move(JobStatusEvent.RESTARTABLE_FAILURE)
            life.awaits_next = True

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

    def want_slots(self, count: int) -> None:
        """Hold at least so many slots, whatever the tasks ask for now."""
        self._books.slots.pool.floor = count

    def slots_outside(self, leaving: Collection[ResourceId]) -> int:
        """Return how many slots the job holds, except those on these TaskManagers."""
        slots = self._books.slots.pool.slots.values()
        return sum(slot.resource_id not in leaving for slot in slots)

    @property
    def slots_wanted(self) -> int:
        """What `want_slots` was told last."""
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

    def leave_free_slots(self, leaving: Collection[ResourceId]) -> None:
        """Give back what is free on these TaskManagers."""
        self._books.slots.leave(leaving)


def _has_savepoint(coordinator: CheckpointCoordinator) -> bool:
    """Whether a user waits for a savepoint. It comes before a handover."""
    return any(one.checkpoint_type.is_savepoint for one in coordinator.asked_for)
