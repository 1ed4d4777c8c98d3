"""How far a generation of a job is on its way to the next one, and what that one goes on with.

The next generation begins in one of two cases. Either this one hands over: a checkpoint behind which all tasks stop holds all that
they did, and when it is complete they end, but for vertices that run on into the next generation. Or it fails, and the
next one begins with the last completed checkpoint, as any restart does. Who decides:
`engine/machines/generations`.
Source: Flink AdaptiveScheduler, which knows the second way only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.handover import Handover
from penstock.engine.machines.job.failure_handler import FailureHandler
from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.machines.job.job_state import JobState
from penstock.engine.machines.slots.shared_slots import SharedSlot
from penstock.engine.model.ids import ResourceId, VertexId
from penstock.engine.model.states import ExecutionState, JobStatus

_MAY_BE_IN_A_CHECKPOINT = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class GenerationHandover:
    """Of one generation; read only. `succession_events` change it."""

    def __init__(self, state: JobState, failures: FailureHandler) -> None:
        self._state = state
        self._failures = failures

    @property
    def handover(self) -> Handover:
        return self._state.checkpoints.handover

    @property
    def can_hand_over(self) -> bool:
        """Whether all tasks can take part in a checkpoint now, and no savepoint has to be taken first."""
        coordinator = self._state.checkpoints.coordinator
        if coordinator is None or self._state.lifecycle.status is not JobStatus.RUNNING:
            return False
        if coordinator.handover.keeps_others_waiting or _has_savepoint(coordinator):
            return False
        states = {vertex.state for vertex in self._state.graph.vertices}
        return ExecutionState.RUNNING in states and states <= _MAY_BE_IN_A_CHECKPOINT

    @property
    def kept(self) -> frozenset[VertexId]:
        """The vertices whose tasks run on into the next generation."""
        lifecycle = self._state.lifecycle
        is_planned = lifecycle.has_handed_over and lifecycle.status is JobStatus.RUNNING
        return self.handover.kept if is_planned else frozenset()

    @property
    def is_over(self) -> bool:
        """Whether the next generation may begin now."""
        lifecycle, alive = self._state.lifecycle, self._state.attempts.alive
        if lifecycle.awaits_next and lifecycle.status is JobStatus.RESTARTING:
            return alive == 0
        if not lifecycle.has_handed_over or lifecycle.status is not JobStatus.RUNNING:
            return False
        return alive == 0 or (bool(self.kept) and self._have_all_but_kept_ended())

    def _have_all_but_kept_ended(self) -> bool:
        kept, may_be = self.kept, _MAY_BE_IN_A_CHECKPOINT
        return all(
            vertex.state in may_be
            if vertex.vertex_id.vertex_id in kept
            else vertex.state.is_terminal
            for vertex in self._state.graph.vertices
        )

    @property
    def may_begin(self) -> bool:
        """Whether nothing runs and nothing is waited for but slots."""
        return self.is_over or self._state.lifecycle.status is JobStatus.CREATED

    def handed_over(self) -> HandedOver:
        """Return what the next generation goes on with. This one takes no more events."""
        state = self._state
        return HandedOver(
            state.lifecycle.status,
            state.graph,
            state.event_log,
            state.slots.pool,
            state.slots.freed,
            state.attempts.gone,
            state.slots.declared,
            self._failures.backoff,
            self._failures.history,
            state.checkpoints.coordinator_state,
            (
                state.deployer.next_bulk,
                state.restarts.next_number,
                state.slots.shared_slots.next_request,
            ),
            self.kept,
            tuple(self._seats_of(self.kept)),
        )

    # ------------------------------------------------------------------ slots

    def slots_outside(self, leaving: Collection[ResourceId]) -> int:
        """Return how many slots the job holds, except those on these TaskManagers."""
        slots = self._state.slots.pool.slots.values()
        return sum(slot.resource_id not in leaving for slot in slots)

    @property
    def slots_wanted(self) -> int:
        """Count of the last `HoldSlots`."""
        return self._state.slots.pool.floor

    def slots_used(self, there: Collection[ResourceId] | None = None) -> int:
        """Return how many slots subtasks have on these TaskManagers; None: on all."""
        slots = self._state.slots.pool.slots.values()
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
            for seat in self._state.slots.shared_slots
            if seat.slot is not None and seat.slot.resource_id in resource_ids
            for vertex in seat.members.values()
        }

    def _seats_of(self, vertices: Collection[VertexId]) -> list[SharedSlot]:
        return [
            seat
            for seat in self._state.slots.shared_slots
            if any(one.vertex_id.vertex_id in vertices for one in seat.members.values())
        ]


def _has_savepoint(coordinator: CheckpointCoordinator) -> bool:
    """Whether a user waits for a savepoint. It comes before a handover."""
    return any(one.checkpoint_type.is_savepoint for one in coordinator.asked_for)
