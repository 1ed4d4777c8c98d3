"""Sends a checkpoint's messages to tasks, coordinators of operators and users.

Decides nothing. Source: Flink CheckpointCoordinator.sendAcknowledgeMessages, sendAbortedMessages
(docs/spec/checkpoints.md#coordinator).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from penstock.engine.machines.checkpoints.coordinator_state import CompletedCheckpointStore
from penstock.engine.machines.checkpoints.pending import PendingCheckpoint
from penstock.engine.machines.checkpoints.requests import CheckpointRequest
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.model.ids import AttemptId, ResourceId
from penstock.engine.model.states import ExecutionState, JobStatus

Emit: TypeAlias = Callable[[messages.CheckpointEffect | messages.SetTimer], None]


StoringOutcome: TypeAlias = messages.CheckpointStored | messages.CheckpointNotStored


class CheckpointGateway:
    """Emits effects in the right order, to tasks that still exist."""

    def __init__(self, graph: ExecutionGraph, settings: CheckpointSettings, emit: Emit) -> None:
        self._graph = graph
        self._settings = settings
        self._emit = emit

    def trigger(self, pending: PendingCheckpoint) -> None:
        """Trigger the tasks. Savepoints are always aligned, and so is a checkpoint after which
        tasks stop: nothing may be in flight.
        """
        request = pending.request
        options = self._options(request, is_held=False)
        held = self._options(request, is_held=True)
        found: defaultdict[tuple[ResourceId, bool], list[AttemptId]] = defaultdict(list)
        for vertex in pending.plan.triggered:
            is_kept = vertex.vertex_id.vertex_id in request.kept
            location = vertex.execution.location
            assert location is not None
            is_held = request.is_handover and not is_kept
            found[location.resource_id, is_held].append(vertex.execution.attempt_id)
        for (resource_id, is_held), attempt_ids in found.items():
            message = messages.TriggerCheckpoint(
                resource_id,
                tuple(attempt_ids),
                pending.checkpoint_id,
                pending.timestamp_ms,
                held if is_held else options,
            )
            self._emit(message)

    def _options(self, request: CheckpointRequest, *, is_held: bool) -> CheckpointOptions:
        is_aligned = request.checkpoint_type.is_savepoint or is_held
        timeout_ms = None if is_aligned else self._settings.aligned_timeout_ms
        return CheckpointOptions(
            request.checkpoint_type,
            is_exactly_once=self._settings.is_exactly_once,
            is_unaligned=timeout_ms == 0,
            aligned_timeout_ms=timeout_ms or None,
            target=request.target_directory,
            is_held=is_held,
        )

    def notify_complete(self, pending: PendingCheckpoint) -> None:
        checkpoint_id = pending.checkpoint_id
        for resource_id, attempt_ids in self._reachable(pending):
            message = messages.NotifyCheckpointComplete(
                resource_id, attempt_ids, checkpoint_id, pending.timestamp_ms
            )
            self._emit(message)
        self._emit(messages.CoordinatorsCheckpointEnded(checkpoint_id, is_completed=True))

    def notify_aborted(self, pending: PendingCheckpoint, latest_completed_id: int) -> None:
        """Notify tasks and coordinators of the abort, and discard the checkpoint's snapshots."""
        checkpoint_id = pending.checkpoint_id
        for resource_id, attempt_ids in self._reachable(pending):
            message = messages.NotifyCheckpointAborted(
                resource_id, attempt_ids, checkpoint_id, latest_completed_id, pending.timestamp_ms
            )
            self._emit(message)
        self._emit(messages.CoordinatorsCheckpointEnded(checkpoint_id, is_completed=False))
        if pending.states:
            self._emit(messages.DiscardStates(checkpoint_id, tuple(pending.states.values())))

    def report_ends(
        self,
        written: Iterable[PendingCheckpoint],
        store: CompletedCheckpointStore,
        status: JobStatus,
    ) -> None:
        """The job ends with this status, while these are being written. Those that are discarded then have ended for people."""
        reason = messages.CheckpointFailureReason.COORDINATOR_SHUTDOWN
        for pending in written:
            if store.is_discarded_at(status, pending.checkpoint_type):
                self._emit(pending.ended(None, reason, f"the job is {status}"))

    def end_after_job(
        self,
        pending: PendingCheckpoint,
        event: StoringOutcome,
        store: CompletedCheckpointStore,
        status: JobStatus,
    ) -> None:
        """The checkpoint was being written when the job ended with this status."""
        if isinstance(event, messages.CheckpointStored):
            checkpoint = pending.stored(event.location)
            self.answer(pending.request, event.location)
            if store.is_discarded_at(status, pending.checkpoint_type):
                self._emit(messages.DiscardCheckpoint(checkpoint))
            else:
                self._emit(pending.ended(event.location, metadata_bytes=event.metadata_bytes))
            return
        if not store.is_discarded_at(status, pending.checkpoint_type):
            self._emit(pending.ended(None, event.reason, event.text))
        self.answer_failure(pending.request, event.reason, event.text)
        if status is not JobStatus.SUSPENDED:
            states = tuple(pending.states.values())
            self._emit(messages.DiscardStates(event.checkpoint_id, states))

    def answer(self, request: CheckpointRequest, location: str) -> None:
        if request.request_id is not None:
            self._emit(messages.SavepointAnswered(request.request_id, location))

    def answer_failure(
        self, request: CheckpointRequest, reason: messages.CheckpointFailureReason, text: str
    ) -> None:
        if request.request_id is not None:
            failure = messages.FailureInfo("CheckpointFailed", f"{reason}: {text}")
            self._emit(messages.SavepointAnswered(request.request_id, None, failure))

    def _reachable(
        self, pending: PendingCheckpoint
    ) -> Iterator[tuple[ResourceId, tuple[AttemptId, ...]]]:
        """Yield the checkpoint's tasks that still exist to hear of its end, by TaskManager."""
        found: defaultdict[ResourceId, list[AttemptId]] = defaultdict(list)
        for attempt_id in pending.plan.running:
            vertex = self._graph.current(attempt_id)
            if vertex is None or vertex.state is not ExecutionState.RUNNING:
                continue
            location = vertex.execution.location
            if location is not None:
                found[location.resource_id].append(attempt_id)
        for resource_id, attempt_ids in found.items():
            yield resource_id, tuple(attempt_ids)
