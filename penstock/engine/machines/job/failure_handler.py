"""Decides after a failure what starts again and when, or ends the job.

A failure of tasks restarts their regions; a failure of the job as a whole first ends all tasks. Knows no reports and no
offers. Source: Flink ExecutionFailureHandler, DefaultScheduler (docs/spec/failover.md#from-failure-to-restart).
Differs: a global failure is visible as FAILING. A consumer's report that its producer failed waits for the producer's
own. With the default back-off, a user's error that is found while its peers restart ends the job.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.failover import (
    FailoverStrategy,
    InfrastructureOnlyRestart,
    RestartBackoff,
    is_infrastructure,
)
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.machines.job.job_state import JobState, JobTransitions
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.machines.scheduling.scheduling import SchedulingStrategy
from penstock.engine.machines.story import EventLog
from penstock.engine.model.ids import PartitionId, VertexId
from penstock.engine.model.messages import FailureInfo, SetTimer
from penstock.engine.model.states import ExecutionState, JobStatus

# ---------------------------------------------------------------------- deferred failures
# Failures that only follow from the failure of a producer, kept until the producer says why it
# failed.
#
# A consumer's report that it lost its producer may come before the producer's own: they arrive by
# different connections. Whoever decides on the consumer's report alone decides and reports
# without the cause. Knows no strategy. Source: none; in Flink the first report decides.


CAUSE_TIMER: Final = "cause-of-failure"
CAUSE_WAIT_MS: Final = 3000
"""A producer whose consumers know of its failure reports next. If its TaskManager is lost just then, nothing comes."""
_PRODUCER_FAILED: Final = "ProducerFailed"
_HAS_TO_REPORT: Final = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
})


class DeferredFailures:
    """The failures that wait for their cause."""

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._held: dict[int, tuple[ExecutionVertex, FailureInfo]] = {}
        self._until_ms = 0

    def holds(self, vertex: ExecutionVertex, failure: FailureInfo) -> bool:
        """Keep the failure if a producer still has to say why it failed. Returns whether it was kept."""
        if failure.kind != _PRODUCER_FAILED or not self._awaits_producer(vertex):
            return False
        if not self._held:
            self._until_ms = self._event_log.now_ms + CAUSE_WAIT_MS
            self._event_log.emit(SetTimer(CAUSE_TIMER, self._until_ms))
        self._held[vertex.index] = vertex, failure
        return True

    def __contains__(self, vertex: ExecutionVertex) -> bool:
        """Whether the failure of this task is kept."""
        return vertex.index in self._held

    def take(self) -> list[tuple[ExecutionVertex, FailureInfo]]:
        """What was kept: the cause is known now, or does not matter any more."""
        held, self._held = self._held, {}
        return list(held.values())

    def is_over(self, timer: str) -> bool:
        """Whether this timer says that no cause comes for what is kept."""
        is_due = timer == CAUSE_TIMER and self._event_log.now_ms >= self._until_ms
        return is_due and bool(self._held)

    def _awaits_producer(self, vertex: ExecutionVertex) -> bool:
        """Also one whose own failure is kept: it waits for the report of its producer in turn."""
        return any(
            partition.producer.state in _HAS_TO_REPORT or partition.producer in self
            for group in vertex.consumed_groups
            for partition in group.partitions
        )


# ---------------------------------------------------------------------- failure handler


CHECKPOINT_DAMAGED: Final = "CheckpointDamaged"
"""Kind of the failure of an attempt that cannot read the checkpoint that it begins with."""
_ENDING = frozenset({JobStatus.FAILING, JobStatus.CANCELLING})


class FailureHandler:
    """Decides on failures, and carries out restarts when their time has come. `is_replaced_at_restart`: the next restart
    of the whole job is left to another generation of it.
    """

    def __init__(
        self,
        state: JobState,
        transitions: JobTransitions,
        scheduling: SchedulingStrategy,
        failover: FailoverStrategy,
        backoff: RestartBackoff,
        history: ExceptionHistory | None = None,
        *,
        is_replaced_at_restart: bool = False,
    ) -> None:
        self._graph = state.graph
        self._event_log = state.event_log
        self._lifecycle = state.lifecycle
        self._restarts = state.restarts
        self._attempts = state.attempts
        self._checkpoints = state.checkpoints
        self._transitions = transitions
        self._scheduling = scheduling
        self._failover = failover
        self.backoff = backoff
        self.deferred_failures = DeferredFailures(state.event_log)
        self.history = ExceptionHistory() if history is None else history
        self.is_replaced_at_restart = is_replaced_at_restart

    @property
    def is_ending(self) -> bool:
        """Whether no restart follows: the job ends as soon as its tasks have ended."""
        return self._lifecycle.status in _ENDING and not self._lifecycle.is_restarting

    def on_task_failure(
        self,
        failed: list[ExecutionVertex],
        failure: FailureInfo,
        unreadable: PartitionId | None = None,
    ) -> None:
        self._lifecycle.root.note(failure)
        if self._lifecycle.status in _ENDING or self._lifecycle.status.is_terminal:
            self.history.add(failure, self._event_log.now_ms, failed)
            return  # All tasks are ending anyway, also before a restart of the whole job.
        if self._ends_after_handover(failure, failed):
            return
        may_restart = self._may_restart(failure, failed)
        failed = [*failed, *self._take_consequences()]
        if may_restart:
            self.begin_restart(self._failover.to_restart(failed, unreadable), is_global=False)
        else:
            self._fail_job()

    def _ends_after_handover(
        self, failure: FailureInfo, failed: Collection[ExecutionVertex]
    ) -> bool:
        """Return whether the next generation begins where this one stopped, whatever becomes of its
        tasks. Then all tasks end except those that run on.

        If one of these fails, or the failed task is unknown, the job restarts.
        """
        kept = self._checkpoints.handover.kept
        if not self._lifecycle.has_handed_over or not failure.is_recoverable:
            return False
        if kept and (not failed or any(_is_of(vertex, kept) for vertex in failed)):
            return False
        if not self._lifecycle.is_restarting:
            self._lifecycle.root.clear()
        self.history.begin(failure, self._event_log.now_ms, failed)
        for vertex in self._graph.vertices:
            if not _is_of(vertex, kept):
                self._attempts.cancel(vertex)
        return True

    def on_failed(self, vertex: ExecutionVertex, failure: FailureInfo) -> None:
        """A task has failed.

        If it could not read its checkpoint, the whole job goes back to the checkpoint before. If
        there is none, the job ends, because another try would fail too.
        """
        if self._lifecycle.status not in _ENDING and self.deferred_failures.holds(vertex, failure):
            return
        restore = vertex.execution.restore
        if failure.kind != CHECKPOINT_DAMAGED or restore is None:
            self.on_task_failure([vertex], failure, failure.lost_partition)
        elif self._checkpoints.drop_damaged(restore.checkpoint_id):
            self.on_global_failure(failure)
        else:
            text = (
                f"{failure.text}\nThere is no earlier checkpoint to go back to. Raise "
                "'execution.checkpointing.num-retained' to keep more."
            )
            self.on_task_failure([vertex], replace(failure, text=text, is_recoverable=False))

    def on_global_failure(self, failure: FailureInfo) -> None:
        self._lifecycle.root.note(failure)
        if self.is_ending:
            self.history.add(failure, self._event_log.now_ms)
            return
        if self._ends_after_handover(failure, ()):
            return
        may_restart = self._may_restart(failure, ())
        self._take_consequences()
        if not may_restart:
            self._fail_job()
            return
        vertices = self._graph.vertices
        started = [v for v in vertices if v.state is not ExecutionState.CREATED]
        self.begin_restart(started, is_global=True)

    def on_failure_while_canceling(
        self, vertex: ExecutionVertex, failure: FailureInfo | None
    ) -> None:
        """A task fails while it is cancelled. A peer's broken connection may arrive before the
        user's error that broke it.
        """
        if failure is None:
            return
        self.history.add(failure, self._event_log.now_ms, [vertex])
        if is_infrastructure(failure):
            return
        is_known_secondary = self._lifecycle.root.is_infrastructure
        self._lifecycle.root.note(failure)
        is_default = isinstance(self.backoff, InfrastructureOnlyRestart)
        if self._lifecycle.is_restarting and is_known_secondary and is_default:
            self._fail_job()

    def on_timer(self, timer: str) -> None:
        """If the cause of a failure has not been reported for long, decide without it."""
        if self.deferred_failures.is_over(timer):
            held = self.deferred_failures.take()
            self.on_task_failure([vertex for vertex, _ in held], held[0][1])

    def _take_consequences(self) -> list[ExecutionVertex]:
        """The tasks whose failures have waited for this one. The history shows them with it."""
        held = self.deferred_failures.take()
        for vertex, failure in held:
            self.history.add(failure, self._event_log.now_ms, [vertex])
        return [vertex for vertex, _ in held]

    def settle(self) -> None:
        """Do what has become possible; called after each event."""
        plan = self._restarts.global_one
        if self._lifecycle.status is JobStatus.FAILING and plan is not None and not plan.alive:
            self._lifecycle.move(JobStatusEvent.READY_TO_RESTART)
        if self._lifecycle.status is JobStatus.RESTARTING and not self._checkpoints.is_storing:
            self._carry_out_restarts()

    def _may_restart(self, failure: FailureInfo, failed: Collection[ExecutionVertex]) -> bool:
        """Ask the back-off, and add the failure to the history: as a new entry, or to the entry before."""
        now_ms = self._event_log.now_ms
        is_possible = failure.is_recoverable and self._lifecycle.status is not JobStatus.CREATED
        is_new = self.backoff.notify(now_ms, failure) if is_possible else True
        (self.history.begin if is_new else self.history.add)(failure, now_ms, failed)
        return is_possible and self.backoff.can_restart()

    def begin_restart(self, vertices: list[ExecutionVertex], *, is_global: bool) -> None:
        self._lifecycle.awaits_next = False
        restart = self._restarts.add(vertices, is_global=is_global)
        failure = JobStatusEvent.GLOBAL_FAILURE if is_global else JobStatusEvent.RESTARTABLE_FAILURE
        self._lifecycle.move(failure)
        for vertex in restart.vertices.values():
            self._attempts.cancel(vertex)
        delay_ms = self.backoff.delay_ms(self._event_log.now_ms)
        self.history.restarts(delay_ms)
        self._event_log.emit(SetTimer(restart.timer, self._event_log.now_ms + delay_ms))

    def _carry_out_restarts(self) -> None:
        for restart in self._restarts.take_ready():
            vertices = restart.valid
            if not vertices:
                continue
            is_whole_job = len(vertices) == len(self._graph.vertices)
            if (self.is_replaced_at_restart and is_whole_job) or self._lifecycle.has_handed_over:
                self._leave_to_next()
                return
            self._transitions.reset(vertices, is_global=restart.is_global)
            if restart.is_global:
                self._lifecycle.root.clear()
                self._lifecycle.move(JobStatusEvent.REBUILT)
                self._lifecycle.move(JobStatusEvent.START)
            elif (
                self._lifecycle.status is JobStatus.RESTARTING and not self._restarts.is_any_waiting
            ):  # If two restarts become ready at once, only the first one reports it.
                self._lifecycle.root.clear()
                self._lifecycle.move(JobStatusEvent.RESTARTED)
            self._transitions.allocate(self._scheduling.restart(vertices))

    def _leave_to_next(self) -> None:
        """Another generation begins instead, as soon as nothing runs."""
        self._lifecycle.awaits_next = True
        for vertex in self._graph.vertices:
            self._attempts.cancel(vertex)

    def _fail_job(self) -> None:
        self._transitions.stop_all(JobStatusEvent.FAIL)


def _is_of(vertex: ExecutionVertex, vertices: Collection[VertexId]) -> bool:
    return vertex.vertex_id.vertex_id in vertices
