"""Takes the checkpoints of one job: triggers them, collects acknowledgements and failures, and
completes or aborts them.

Knows no clock, wire or file: each event brings the time. Triggering tasks, snapshots of operators'
coordinators and writing a checkpoint are effects, the last two with an answer. Source: Flink
CheckpointCoordinator (docs/spec/checkpoints.md#coordinator, #savepoints-and-stopping,
#finished-tasks). Differs: one checkpoint is written at a time, the oldest first. A checkpoint that
is being written is no longer aborted: its outcome decides, and a restart waits for it. A task that
ends without having acknowledged aborts the checkpoints that wait for it. At most one periodic
request waits, so that requests held up by a slow checkpoint do not come one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.engine.machines.checkpoints.coordinator_state import (
    AwaitedEnds,
    CheckpointCourse,
    CompletedCheckpointStore,
    Handover,
)
from penstock.engine.machines.checkpoints.gateway import CheckpointGateway, Emit, StoringOutcome
from penstock.engine.machines.checkpoints.pending import (
    AckResult,
    PendingCheckpoint,
    Phase,
    plan_of,
)
from penstock.engine.machines.checkpoints.requests import (
    CheckpointRequest,
    Refusal,
    RequestQueue,
    Situation,
    refusal_of,
    request_of,
)
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.story import Story
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.ids import AttemptId, VertexId
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason as Reason
from penstock.engine.model.states import ExecutionState, JobStatus

TRIGGER_TIMER: Final = "checkpoint-trigger"


EXPIRY_TIMER: Final = "checkpoint-expiry"


class ExpiryTimer:
    """One timer for the deadlines of all unfinished checkpoints, set again whenever the first deadline changes."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._at_ms: int | None = None

    def watch(self, deadlines_ms: Iterable[int]) -> None:
        """`deadlines_ms`: of all unfinished checkpoints."""
        first = min(deadlines_ms, default=None)
        if first is not None and first != self._at_ms:
            self._at_ms = first
            self._emit(messages.SetTimer(EXPIRY_TIMER, first))

    def fired(self) -> None:
        """The timer has fired."""
        self._at_ms = None


class CheckpointCoordinator:
    """`is_active`: the job runs, so checkpoints are triggered. `store`: the completed checkpoints. `handover`: to the next
    generation.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        settings: CheckpointSettings,
        store: CompletedCheckpointStore,
        emit: Emit,
        coordinator_state: CheckpointCourse | None = None,
    ) -> None:
        """`coordinator_state`: what the job's former generation left; None: there was none."""
        self.is_active = False
        self.store = store
        self.coordinator_state = coordinator_state or CheckpointCourse(
            store, max(settings.first_id, store.latest_id + 1)
        )
        self.story = Story("checkpoint coordinator")
        self.pending: dict[int, PendingCheckpoint] = {}
        self._graph = graph
        self._settings = settings
        self._emit = emit
        self._gateway = CheckpointGateway(graph, settings, emit)
        self._intake = Intake(settings, self._gateway, self.coordinator_state)
        self.handover = self._intake.handover
        self._counter = FailureCounter(settings.tolerable_failures)
        self.coordinator_state.ends = self.ends = AwaitedEnds(graph, self.coordinator_state.ends)
        self._is_periodic = False
        self._expiry = ExpiryTimer(emit)
        self._failure: messages.FailureInfo | None = None

    @property
    def is_storing(self) -> bool:
        """Whether a checkpoint is being written. Until then it is unknown which checkpoint a restart begins with."""
        return any(pending.phase is Phase.STORING for pending in self.pending.values())

    def settle(self, now_ms: int) -> messages.FailureInfo | None:
        """Write and trigger what is possible now; called after each event. Returns: a failure of the job, once."""
        self.store_next()
        if self.is_active:
            self._intake.catch_up(self._graph, self._settings)
        if self.handover.has_failed and self.is_active and not self._is_periodic:
            self._start_periodic(now_ms)
        self._serve(now_ms)
        failure, self._failure = self._failure, None
        return failure if self.is_active else None  # else the job is restarting or ending

    # ------------------------------------------------------------------ the job's life

    def start(self, now_ms: int) -> None:
        """The job is RUNNING, for the first time or again."""
        if not self.is_active:
            self.is_active = True
            self._counter.reset()
            self._start_periodic(now_ms)

    def stop(self, reason: Reason = Reason.COORDINATOR_SUSPEND) -> None:
        """The job no longer runs: trigger nothing, and abort unfinished checkpoints."""
        self.is_active = self._is_periodic = False
        self._intake.drop_all(reason, "the job is not RUNNING")
        self._abort_all(reason)

    def shut_down(self, status: JobStatus) -> None:
        """The job is over. If a checkpoint is being written, `on_outcome_after_end` handles its answer."""
        if status is JobStatus.SUSPENDED:  # another driver may use the same ids
            for pending in list(self.pending.values()):
                if pending.phase is not Phase.STORING:
                    del self.pending[pending.checkpoint_id]
                    reason = Reason.COORDINATOR_SHUTDOWN
                    self._gateway.answer_failure(pending.request, reason, "the job is SUSPENDED")
        self.stop(Reason.COORDINATOR_SHUTDOWN)
        self._gateway.report_ends(self.pending.values(), self.store, status)
        for checkpoint in self.store.shut_down(status):
            self._emit(messages.DiscardCheckpoint(checkpoint))

    def on_outcome_after_end(self, event: StoringOutcome, status: JobStatus) -> None:
        """The checkpoint was being written when the job ended."""
        pending = self.pending.pop(event.checkpoint_id, None)
        if pending is not None:
            self._gateway.end_after_job(pending, event, self.store, status)

    def on_attempt_ended(self, vertex: ExecutionVertex, now_ms: int) -> None:
        """Abort checkpoints that wait for this attempt. A final checkpoint of other tasks is requested again."""
        attempt_id = vertex.execution.attempt_id
        self.ends.discard(attempt_id)
        self._intake.ending.discard(attempt_id)
        for pending in self._under_way():
            if attempt_id in pending.plan.running and attempt_id not in pending.states:
                self._abort(pending, Reason.TASK_CLOSING, f"task {vertex} is {vertex.state}")
        is_last_lost = self.ends.has_uncovered and not (self.pending or len(self._intake.queue))
        if vertex.state is ExecutionState.FINISHED and is_last_lost:
            self._request_last(now_ms)

    # ------------------------------------------------------------------ triggering

    def on_timer(self, timer: str, now_ms: int) -> None:
        if timer == TRIGGER_TIMER and self._is_periodic:
            assert self._settings.interval_ms is not None
            self._emit(messages.SetTimer(TRIGGER_TIMER, now_ms + self._settings.interval_ms))
            if not self._intake.queue.has_periodic:
                self._intake.add(CheckpointRequest(now_ms, is_periodic=True))
        elif timer == EXPIRY_TIMER:
            self._expiry.fired()
            text = f"not acknowledged by all within {self._settings.timeout_ms} ms"
            for pending in [one for one in self._under_way() if one.deadline_ms <= now_ms]:
                self._abort(pending, Reason.CHECKPOINT_EXPIRED, text)
            self._intake.expire(now_ms - self._settings.timeout_ms, text)

    def on_awaited(self, attempt_id: AttemptId, now_ms: int) -> None:
        """A task has read all its input. When all have, a checkpoint is taken without waiting for the timer."""
        self.ends.waiting.add(attempt_id)
        self._request_last(now_ms)

    def _request_last(self, now_ms: int) -> None:
        if self.ends.are_all:
            self.take_one(now_ms)

    def take_one(self, now_ms: int) -> None:
        """Take a checkpoint out of turn, if they are taken at intervals."""
        if self._is_periodic:
            self._intake.add(CheckpointRequest(now_ms))

    def on_savepoint_wanted(self, event: messages.TriggerSavepoint) -> None:
        request = request_of(event, is_forced=not self._settings.is_unaligned)
        if self._intake.refuses(request, self.asked_for, is_active=self.is_active):
            return
        if event.checkpoint_type.is_synchronous:  # No later checkpoint may commit during the stop.
            self._stop_periodic()
        self._intake.add_of_user(request)

    def hand_over(self, now_ms: int, kept: frozenset[VertexId] = frozenset()) -> None:
        """Take a checkpoint after which all tasks stop except those of `kept` vertices. When it is
        complete, the stopped tasks end and the next generation begins from it.
        """
        self._stop_periodic()
        self._intake.begin_handover(now_ms, kept)

    @property
    def asked_for(self) -> list[CheckpointRequest]:
        """What is being taken, or waits."""
        return self._intake.with_those([one.request for one in self.pending.values()])

    def _stop_periodic(self) -> None:
        self._is_periodic = False
        self._intake.queue.drop_periodic()
        self._abort_all(Reason.COORDINATOR_SUSPEND)

    def _start_periodic(self, now_ms: int) -> None:
        """Take checkpoints at the interval, unless the job is to be stopped with a savepoint that waits."""
        is_stopping = any(one.checkpoint_type.is_synchronous for one in self.asked_for)
        self._is_periodic = self._settings.interval_ms is not None and not is_stopping
        if self._is_periodic:
            self._emit(messages.SetTimer(TRIGGER_TIMER, now_ms + self._settings.first_delay_ms()))

    def _serve(self, now_ms: int) -> None:
        """Trigger as many checkpoints as allowed, and set the timer for their deadlines."""
        while self.is_active and not self.handover.is_complete:
            if any(one.request.is_handover for one in self.pending.values()):
                break  # The tasks may have stopped for it.
            phases = [pending.phase for pending in self.pending.values()]
            situation = Situation(
                now_ms,
                len(phases),
                Phase.COORDINATORS in phases,
                self.coordinator_state.last_completion_ms,
            )
            chosen = self._intake.queue.choose(situation)
            if chosen is None:
                break
            if isinstance(chosen, Refusal):
                if chosen.retry_in_ms is not None and self._is_periodic:
                    self._emit(messages.SetTimer(TRIGGER_TIMER, now_ms + chosen.retry_in_ms))
                continue
            self._trigger(chosen, now_ms)
        waiting = self._intake.deadlines_ms(self._settings.timeout_ms)
        self._expiry.watch([*(one.deadline_ms for one in self._under_way()), *waiting])

    def _trigger(self, request: CheckpointRequest, now_ms: int) -> None:
        plan = plan_of(self._graph, self._settings)
        if isinstance(plan, str):
            reason = Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
            self._gateway.answer_failure(request, reason, plan)
            if request.is_handover:
                self.handover.fail(plan)
            elif request.checkpoint_type.is_synchronous:  # The job continues as before.
                self._start_periodic(now_ms)
            return
        checkpoint_id = self.coordinator_state.take_id()
        deadline_ms = now_ms + self._settings.timeout_ms
        pending = PendingCheckpoint(checkpoint_id, request, plan, now_ms, deadline_ms)
        pending.awaited = frozenset(self.ends.waiting)
        self.pending[checkpoint_id] = pending
        self.story.add(
            "trigger", checkpoint_id, request.checkpoint_type, len(plan.running), "tasks"
        )
        vertices = self._graph.job_graph.vertices.values()
        if any(o.has_coordinator for v in vertices for o in v.operators):
            self._emit(messages.SnapshotCoordinators(checkpoint_id))
        else:
            self._trigger_tasks(pending)

    def on_coordinators_snapshotted(self, event: messages.CoordinatorsSnapshotted) -> None:
        pending = self.pending.get(event.checkpoint_id)
        if pending is None or pending.phase is not Phase.COORDINATORS:
            return  # It was aborted meanwhile.
        if event.failure is not None:
            self._abort(pending, Reason.IO_EXCEPTION, event.failure)
        else:
            pending.coordinator_states = dict(event.states)
            self._trigger_tasks(pending)

    def _trigger_tasks(self, pending: PendingCheckpoint) -> None:
        pending.phase = Phase.TASKS
        self._gateway.trigger(pending)

    def on_acknowledged(self, message: messages.AcknowledgeCheckpoint) -> None:
        """Count an acknowledgement, or discard its snapshot unless a completed checkpoint may contain it."""
        pending = self.pending.get(message.checkpoint_id)
        if pending is None:
            if self.coordinator_state.ended.was_aborted(message.checkpoint_id):
                self._emit(messages.DiscardStates(message.checkpoint_id, (message.state,)))
            return
        result = pending.acknowledge(message.attempt_id, message.state, message.metrics)
        if result is AckResult.FOREIGN:
            self._emit(messages.DiscardStates(message.checkpoint_id, (message.state,)))

    def on_declined(self, message: messages.DeclineCheckpoint) -> None:
        pending = self.pending.get(message.checkpoint_id)
        if pending is None or not pending.declines(message.attempt_id):
            return  # It is over, or this is a past attempt.
        if message.reason is Reason.TASK_CLOSING:
            self._intake.ending.add(message.attempt_id)
        text = f"declined by {message.attempt_id}: {message.text or message.reason}"
        self._abort(pending, message.reason, text)

    # ------------------------------------------------------------------ completion

    def store_next(self) -> None:
        """Write the oldest checkpoint that all have acknowledged, unless one is being written."""
        while not self.is_storing:
            ready = next((p for p in self.pending.values() if p.phase is Phase.READY), None)
            if ready is None:
                return
            forbidden = ready.what_forbids_it(self._graph)
            if forbidden is not None:
                self._abort(ready, Reason.FINALIZE_FAILURE, forbidden)
                continue
            ready.phase = Phase.STORING
            ready.checkpoint = ready.completed(self._graph.job_graph.job_id, self._graph)
            self._emit(messages.StoreCheckpoint(ready.checkpoint))

    def on_stored(self, event: messages.CheckpointStored) -> None:
        pending = self.pending.get(event.checkpoint_id)
        if pending is None or pending.phase is not Phase.STORING:
            return
        del self.pending[event.checkpoint_id]
        self.story.add("complete", event.checkpoint_id, "at", event.location)
        self.coordinator_state.ended.add(event.checkpoint_id, is_completed=True)
        self._counter.reset()
        self.coordinator_state.last_completion_ms = event.now_ms
        if pending.request.is_handover:
            self.handover.complete()
        checkpoint = pending.stored(event.location)
        if checkpoint.is_for_recovery:
            for subsumed in self.store.add(checkpoint):
                self._emit(messages.DiscardCheckpoint(subsumed))
            self._subsume_before(checkpoint.checkpoint_id)
            self.ends.on_completed(pending.awaited)
            self._gateway.notify_complete(pending)
        self._emit(pending.ended(event.location, metadata_bytes=event.metadata_bytes))
        self._gateway.answer(pending.request, event.location)

    def on_not_stored(self, event: messages.CheckpointNotStored) -> None:
        pending = self.pending.get(event.checkpoint_id)
        if pending is None or pending.phase is not Phase.STORING:
            return
        self._abort(pending, event.reason, event.text)

    def _subsume_before(self, checkpoint_id: int) -> None:
        """Abort older unfinished checkpoints, but not savepoints, which belong to the user."""
        for pending in list(self.pending.values()):
            if pending.checkpoint_id < checkpoint_id and not pending.is_savepoint:
                self._abort(pending, Reason.CHECKPOINT_SUBSUMED, f"{checkpoint_id} is complete")

    def _under_way(self) -> list[PendingCheckpoint]:
        return [pending for pending in self.pending.values() if pending.is_under_way]

    def _abort_all(self, reason: Reason) -> None:
        for pending in list(self.pending.values()):
            if pending.phase is not Phase.STORING:
                self._abort(pending, reason, "triggering of checkpoints was stopped")

    def _abort(self, pending: PendingCheckpoint, reason: Reason, text: str) -> None:
        """Abort the checkpoint: notify tasks and coordinators, discard its snapshots, and perhaps
        fail the job.
        """
        checkpoint_id = pending.checkpoint_id
        self.story.add("abort", checkpoint_id, reason, text)
        del self.pending[checkpoint_id]
        self.coordinator_state.ended.add(checkpoint_id, is_completed=False)
        self._gateway.notify_aborted(pending, self.store.latest_id)
        self._emit(pending.ended(None, reason, text))
        self._intake.failed(pending.request, reason, text)
        if pending.request.is_handover:  # Its tasks go on, so the job loses nothing.
            self.handover.fail(f"{reason}: {text}")
        elif self._counter.on_failure(checkpoint_id, pending.checkpoint_type, reason):
            of_job = self._counter.failure_of_job(checkpoint_id, reason, text)
            self._failure = self._failure or of_job


COUNTED: Final = frozenset({
    Reason.IO_EXCEPTION,
    Reason.ASYNC_EXCEPTION,
    Reason.CHECKPOINT_DECLINED,
    Reason.CHECKPOINT_EXPIRED,
    Reason.FINALIZE_FAILURE,
})
"""Failures of the checkpoint itself. The others come from a job that was starting, ending or restarting."""


class FailureCounter:
    """Counts how many checkpoints may fail in a row before the job fails.

    Knows no pending checkpoint. Source: Flink CheckpointFailureManager
    (docs/spec/checkpoints.md#coordinator). Differs: a synchronous savepoint that has been triggered
    and fails ends the attempt, whatever the reason, because its tasks have stopped for it. Any
    other savepoint that fails never counts, not even if a task could not write it: the user who
    asked for it gets the error.

    `continuous`: counted failures since the last success.
    """

    def __init__(self, tolerable: int = 0) -> None:
        self._tolerable = tolerable
        self._counted_ids: set[int] = set()
        self.continuous = 0

    def on_failure(
        self, checkpoint_id: int, checkpoint_type: CheckpointType, reason: Reason
    ) -> bool:
        """Count a failure, each id once. Returns: whether the job must fail because of it."""
        if checkpoint_type.is_synchronous:
            return True
        if checkpoint_type.is_savepoint or reason not in COUNTED:
            return False
        if checkpoint_id in self._counted_ids:
            return False
        self._counted_ids.add(checkpoint_id)
        self.continuous += 1
        return self.continuous > self._tolerable

    def failure_of_job(self, checkpoint_id: int, reason: Reason, text: str) -> messages.FailureInfo:
        """Return the failure of the job."""
        rule = "the tasks have stopped for it"
        if self.continuous > self._tolerable:
            rule = (
                f"{self.continuous} checkpoints failed in a row, but "
                f"'execution.checkpointing.tolerable-failed-checkpoints' is {self._tolerable}"
            )
        cause = f"{reason}: {text}" if text else f"{reason}"
        message = f"checkpoint {checkpoint_id} failed with {cause} ({rule})"
        return messages.FailureInfo("CheckpointFailed", message)

    def reset(self) -> None:
        """A checkpoint was completed, or the job starts again."""
        self._counted_ids.clear()
        self.continuous = 0


class Intake:
    """Which checkpoints are asked for: those that are due, those of users, and the one with which a generation of the job
    hands over.

    Source: Flink CheckpointRequestDecider. Differs: what a user asks for during a handover waits for the next
    generation. A savepoint that met the end of a task is taken again when the task has ended; in Flink it fails.

    `queue`: requests that may be taken. `coordinator_state`: has those that wait, for the next generation or until no
    task is `ending`: these have declined because they were about to end. `handover`: to the next generation.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        gateway: CheckpointGateway,
        coordinator_state: CheckpointCourse,
    ) -> None:
        self.queue = RequestQueue(settings.max_concurrent, settings.min_pause_ms)
        self.coordinator_state = coordinator_state
        self.handover = Handover()
        self.ending: set[AttemptId] = set()
        self._gateway = gateway

    def add(self, request: CheckpointRequest) -> None:
        """Add a request; a full queue answers one of them with a failure."""
        refusal = self.queue.add(request)
        if refusal is not None:
            text = f"{len(self.queue)} wait already"
            self._gateway.answer_failure(refusal.request, refusal.reason, text)

    def refuses(
        self, request: CheckpointRequest, others: list[CheckpointRequest], *, is_active: bool
    ) -> bool:
        """Whether a user's request is refused for good. If so, it is answered. `others`, `is_active`: as `refusal_of` takes them."""
        refusal = refusal_of(request, others, is_active=is_active)
        if refusal is not None:
            self._gateway.answer_failure(request, *refusal)
        return refusal is not None

    def failed(self, request: CheckpointRequest, reason: Reason, text: str) -> None:
        """A checkpoint was aborted. A savepoint waits if it met the end of a task. Of all others this is the answer."""
        kind = request.checkpoint_type
        if reason is Reason.TASK_CLOSING and kind.is_savepoint and not kind.is_synchronous:
            self.coordinator_state.waiting.append(request)
        else:
            self._gateway.answer_failure(request, reason, text)

    def deadlines_ms(self, timeout_ms: int) -> list[int]:
        """Return until when those that wait for the end of a task may wait."""
        return [one.at_ms + timeout_ms for one in self._waiting_for_ends]

    @property
    def _waiting_for_ends(self) -> list[CheckpointRequest]:
        is_so = self.ending and not self.handover.keeps_others_waiting
        return self.coordinator_state.waiting if is_so else []

    def expire(self, asked_ms: int, text: str) -> None:
        """Answer those that were asked for by then and still wait for the end of a task."""
        if self._waiting_for_ends:
            late = [one for one in self.coordinator_state.waiting if one.at_ms <= asked_ms]
            self.coordinator_state.waiting = [
                one for one in self.coordinator_state.waiting if one.at_ms > asked_ms
            ]
            for request in late:
                self._gateway.answer_failure(request, Reason.CHECKPOINT_EXPIRED, text)

    def add_of_user(self, request: CheckpointRequest) -> None:
        if self.handover.keeps_others_waiting:
            self.coordinator_state.waiting.append(request)
        else:
            self.add(request)

    def begin_handover(self, now_ms: int, kept: frozenset[VertexId]) -> None:
        self.handover.begin(kept)
        self.add(CheckpointRequest(now_ms, is_forced=True, is_handover=True, kept=kept))

    def catch_up(self, graph: ExecutionGraph, settings: CheckpointSettings) -> None:
        """Take what waits, once no handover is under way, no task is about to end, and all can take part in a checkpoint."""
        if not self.coordinator_state.waiting or self.handover.keeps_others_waiting or self.ending:
            return
        if isinstance(plan_of(graph, settings), str):
            return
        waiting, self.coordinator_state.waiting = self.coordinator_state.waiting, []
        for request in waiting:
            self.add(request)

    def drop_all(self, reason: Reason, text: str) -> None:
        """Answer all with this failure. No task is waited for any more."""
        self.ending.clear()
        waiting, self.coordinator_state.waiting = self.coordinator_state.waiting, []
        for request in (*self.queue.drop_all(), *waiting):
            self._gateway.answer_failure(request, reason, text)

    def with_those(self, pending: list[CheckpointRequest]) -> list[CheckpointRequest]:
        """Return everything that is asked for and not done. `pending`: what is being taken."""
        return [*pending, *self.queue, *self.coordinator_state.waiting]
