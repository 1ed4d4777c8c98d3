"""The changes of one generation of a job: how it begins, and how it gives way to the next one.

`succession` tells how far it is. Who decides: `machines/generations`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias, assert_never

from penstock.machines.books.job_status import JobStatusEvent
from penstock.machines.job.books import JobBooks
from penstock.machines.job.failure_handler import FailureHandler
from penstock.machines.job.kept_seats import seat_beside
from penstock.machines.job.moves import JobMoves
from penstock.machines.job.state_locality import slots_by_state
from penstock.machines.job.succession import Succession
from penstock.machines.job.succession_events import (
    GiveUpKept,
    HandOver,
    HandoverFailureNoted,
    HoldSlots,
    LeaveFreeSlots,
    LeaveRestarts,
    TakeOver,
    WaitForSlots,
)
from penstock.machines.scheduling.scheduling import SchedulingStrategy
from penstock.model.ids import ResourceId
from penstock.model.messages import GraphReplaced
from penstock.model.states import JobStatus

SuccessionEvent: TypeAlias = (
    TakeOver
    | LeaveRestarts
    | LeaveFreeSlots
    | HoldSlots
    | WaitForSlots
    | HandOver
    | HandoverFailureNoted
    | GiveUpKept
)


class SuccessionChanges(Succession):
    """Of one generation. Part of JobMaster, whose `step` is the only caller."""

    def __init__(
        self,
        books: JobBooks,
        moves: JobMoves,
        failures: FailureHandler,
        scheduling: SchedulingStrategy,
    ) -> None:
        super().__init__(books, failures)
        self._moves = moves
        self._scheduling = scheduling

    def start(self) -> None:
        """Begin as the first generation of the job."""
        self._books.life.move(JobStatusEvent.START)
        self._books.checkpoints.restore_coordinators()
        self._moves.allocate(self._scheduling.start())

    def take(self, event: SuccessionEvent) -> None:
        """Make the change."""
        books = self._books
        match event:
            case TakeOver():
                self._take_over(event)
            case LeaveRestarts():
                self._failures.is_replaced_at_restart = True
            case LeaveFreeSlots(leaving):
                books.slots.leave(leaving)
            case HoldSlots(count, leaving):
                self._hold(count, leaving)
            case WaitForSlots(count, leaving):
                self._hold(count, leaving)
                self._wait()
            case HandOver(kept):
                books.checkpoints.hand_over(books.journal.now_ms, kept)
            case HandoverFailureNoted():
                books.checkpoints.handover.note_failure()
            case GiveUpKept():
                self._give_up_kept()
            case _:
                assert_never(event)

    def _take_over(self, event: TakeOver) -> None:
        left, leaving = event.left, event.leaving
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

    def _hold(self, count: int, leaving: Collection[ResourceId]) -> None:
        self._books.slots.leave(leaving)
        self._books.slots.pool.floor = count

    def _wait(self) -> None:
        life = self._books.life
        if life.status is JobStatus.RUNNING:
            life.move(JobStatusEvent.RESTARTABLE_FAILURE)
            life.awaits_next = True

    def _give_up_kept(self) -> None:
        self._books.life.move(JobStatusEvent.RESTARTABLE_FAILURE)
        self._books.life.awaits_next = True
        for vertex in self._books.graph.vertices:
            self._books.attempts.cancel(vertex)
