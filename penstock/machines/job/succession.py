"""How a generation of a job begins, and how it gives way to the next one.

Two ways lead to the next generation. Either this one hands over: a checkpoint behind which all tasks stop holds all that
they did, and when it is complete they end. Or it fails, and the next one begins with the last completed checkpoint, as
any restart does. Who decides: `machines/adaptive`. Source: Flink AdaptiveScheduler, which knows the second way only.
"""

from __future__ import annotations

from penstock.machines.books.job_status import JobStatusEvent
from penstock.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.machines.checkpoints.handover import Handover
from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.machines.job.books import JobBooks
from penstock.machines.job.failure_handler import FailureHandler
from penstock.machines.job.inheritance import Inheritance
from penstock.machines.job.moves import JobMoves
from penstock.machines.scheduling.scheduling import SchedulingStrategy
from penstock.model.ids import AllocationId
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

    def take_over(self, former: ExecutionGraph) -> None:
        """Begin where the generation before has stopped."""
        books, latest = self._books, self._books.checkpoints.store.latest
        status = books.life.status
        replaced = GraphReplaced(
            books.graph.job_graph,
            tuple(vertex.vertex_id for vertex in former.vertices),
            books.graph.vertices[0].execution.attempt_id.attempt,
            None if latest is None else latest.checkpoint_id,
            is_planned=status is JobStatus.RUNNING,
        )
        books.journal.emit(replaced)
        books.checkpoints.restore_coordinators()
        if status is JobStatus.CREATED:
            books.life.move(JobStatusEvent.START)
        elif status is JobStatus.RESTARTING:
            books.life.move(JobStatusEvent.RESTARTED)
        books.slots.keep(books.slots.pool.floor)
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

    def hand_over(self) -> None:
        """Take a checkpoint behind which all tasks end."""
        self._books.checkpoints.hand_over(self._books.journal.now_ms)

    def leave_restarts(self) -> None:
        """Leave the next restart of the whole job to another generation."""
        self._failures.is_replaced_at_restart = True

    @property
    def is_over(self) -> bool:
        """Whether the next generation may begin now."""
        life = self._books.life
        has_left = life.has_handed_over and life.status is JobStatus.RUNNING
        is_to_restart = life.awaits_next and life.status is JobStatus.RESTARTING
        return (has_left and self._books.attempts.alive == 0) or is_to_restart

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
        )

    # ------------------------------------------------------------------ slots

    def want_slots(self, count: int) -> None:
        """Hold at least so many slots, whatever the tasks ask for now."""
        self._books.slots.pool.floor = count

    @property
    def slots(self) -> frozenset[AllocationId]:
        """The slots that the job holds."""
        return frozenset(self._books.slots.pool.slots)


def _has_savepoint(coordinator: CheckpointCoordinator) -> bool:
    """Whether a user waits for a savepoint. It comes before a handover."""
    return any(one.checkpoint_type.is_savepoint for one in coordinator.asked_for)
