"""The changes of one generation of a job: how it begins, and how it gives way to the next one.

Who decides: `engine/machines/generations`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Concatenate, ParamSpec

from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.coordinator_state import Handover
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.job.failure_handler import FailureHandler
from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.machines.job.job_state import JobState, JobTransitions
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.machines.rescaling.slot_allocator import (
    ExecutionGroup,
    FormerAssignment,
    FormerPlace,
    SlotPlace,
    by_state,
)
from penstock.engine.machines.scheduling.scheduling import SchedulingStrategy
from penstock.engine.machines.slots.shared_slots import SharedSlot, SharedSlots
from penstock.engine.machines.slots.slot_sharing import SharingGroup
from penstock.engine.model.checkpoints import CompletedCheckpoint
from penstock.engine.model.graph.job_graph import JobVertex
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.ids import AllocationId, ResourceId, VertexId
from penstock.engine.model.messages import GraphReplaced
from penstock.engine.model.states import ExecutionState, JobStatus

_MAY_BE_IN_A_CHECKPOINT = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


def _has_savepoint(coordinator: CheckpointCoordinator) -> bool:
    """Whether a user waits for a savepoint. It comes before a handover."""
    return any(one.checkpoint_type.is_savepoint for one in coordinator.asked_for)


# ---------------------------------------------------------------------- state locality
# Which slot each slot sharing group of a new generation gets, so that much of its keyed state is
# on its TaskManager already.
#
# Source: Flink StateLocalitySlotAssigner, AdaptiveScheduler
# (docs/spec/elasticity.md#slot-assignment). Differs: the groups are those of the job's slot
# sharing, which need not have subtasks of one index.


def slots_by_state(
    groups: Sequence[SharingGroup],
    free: Sequence[SlotPlace],
    former: ExecutionGraph,
    latest: CompletedCheckpoint | None,
) -> dict[SharingGroup, AllocationId]:
    """Return a slot for each group; none if the slots are too few. `latest`: the checkpoint with which the generation
    begins.
    """
    if len(free) < len(groups):
        return {}
    wanted = [
        ExecutionGroup(
            group.slot_sharing_group,
            group.index,
            tuple(vertex.vertex_id for vertex in group.vertices),
        )
        for group in groups
    ]
    by_index = {group.index: group for group in groups}
    found = by_state(wanted, free, former_assignment(former, latest))
    return {by_index[group.index]: slot for slot, group in found.items()}


def former_assignment(
    former: ExecutionGraph, latest: CompletedCheckpoint | None
) -> FormerAssignment:
    """Return where the former generation had its state. `latest` None: nothing is known of its bytes."""
    places = {}
    for vertex in former.vertices:
        location = vertex.execution.location or vertex.last_location
        allocation_id = vertex.execution.allocation_id or vertex.last_allocation_id
        if location is not None and allocation_id is not None:
            places[vertex.vertex_id] = FormerPlace(allocation_id, location.host)
    vertices = former.job_graph.vertices
    bytes_of = {} if latest is None else _keyed_bytes(latest)
    return FormerAssignment(
        places,
        parallelism_of(former.job_graph),
        {name: vertex.max_parallelism for name, vertex in vertices.items()},
        {name: _held(vertex, bytes_of) for name, vertex in vertices.items()},
    )


def _held(vertex: JobVertex, bytes_of: Mapping[str, int]) -> int:
    return sum(bytes_of.get(operator.uid, 0) for operator in vertex.operators)


def _keyed_bytes(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """The bytes of keyed state by the uid of the operator."""
    found: dict[str, int] = {}
    for operator in checkpoint.operators:
        states = [state for state in operator.subtasks if state is not None]
        handles = [one.handle for state in states for one in state.keyed]
        files = [file for state in states for one in state.databases for _, file in one.files]
        found[operator.uid] = sum(handle.size for handle in (*handles, *files))
    return found


# ---------------------------------------------------------------------- handover changes


def share_kept_slots(
    graph: ExecutionGraph,
    shared_slots: SharedSlots,
    left: HandedOver,
    leaving: Collection[ResourceId],
) -> None:
    """Give the vertices that run on the slots that they have, and let each group of new subtasks
    share one of these slots.

    So no more slots are used than needed. Slots of TaskManagers that are `leaving` are not shared.
    Groups that are left over ask for slots of their own. A group goes to the slot where one of its
    subtasks ran before, if it can.
    """
    groups = list(shared_slots.groups)
    vertices = graph.vertices
    kept = {one.vertex_id: one for one in vertices if one.vertex_id.vertex_id in left.kept}
    seats = shared_slots.adopt(left.seats, kept)
    room: defaultdict[str, dict[AllocationId, SharedSlot]] = defaultdict(dict)
    for seat in seats:
        if seat.slot is not None and seat.slot.resource_id not in leaving:
            room[seat.group.slot_sharing_group][seat.slot.allocation_id] = seat
    waiting: list[SharingGroup] = []
    for group in groups:
        former = [one.last_allocation_id for one in group.vertices]
        there = room[group.slot_sharing_group]
        place = next((one for one in former if one is not None and one in there), None)
        if place is None:
            waiting.append(group)
        else:
            shared_slots.join(group, there.pop(place))
    for group in waiting:
        there = room[group.slot_sharing_group]
        if there:
            shared_slots.join(group, there.pop(next(iter(there))))


class HandoverChanges:
    """Progress of one generation of a job towards the next one, and what the next one continues with.

    The next generation begins in one of two cases. Either this one hands over: it takes a checkpoint
    after which all tasks stop. When the checkpoint is complete the tasks end, except those of
    vertices that run on into the next generation. Or this one fails, and the next one begins with
    the last completed checkpoint, as any restart does. Who decides: `engine/machines/generations`.
    Source: Flink AdaptiveScheduler, which knows the second way only.

    Part of JobMaster, whose `step` alone makes changes, for a `GenerationChange`.
    """

    def __init__(
        self,
        state: JobState,
        transitions: JobTransitions,
        failures: FailureHandler,
        scheduling: SchedulingStrategy,
    ) -> None:
        self._state = state
        self._transitions = transitions
        self._failures = failures
        self._scheduling = scheduling

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
    def waits_for_slots(self) -> bool:
        """Whether tasks that are to run have no slots yet."""
        is_running = self._state.lifecycle.status is JobStatus.RUNNING
        states = {vertex.state for vertex in self._state.graph.vertices}
        return is_running and ExecutionState.SCHEDULED in states

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
        """Return what the next generation continues with. This one takes no more events."""
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

    # ------------------------------------------------------------------ changes

    def start(self) -> None:
        """Begin as the first generation of the job."""
        self._state.lifecycle.move(JobStatusEvent.START)
        self._state.checkpoints.restore_coordinators()
        self._transitions.allocate(self._scheduling.start())

    def leave_restarts(self) -> None:
        """Leave the next restart of the whole job to another generation."""
        self._failures.is_replaced_at_restart = True

    def leave_free_slots(self, leaving: Collection[ResourceId]) -> None:
        """Give back what is free on these TaskManagers."""
        self._state.slots.leave(leaving)

    def hold_slots(self, count: int, leaving: Collection[ResourceId] = ()) -> None:
        """Hold at least `count` slots, whatever the tasks ask for now. Free slots on TaskManagers that are `leaving` do not count."""
        self._state.slots.leave(leaving)
        self._state.slots.pool.floor = count

    def wait_for_slots(self, count: int, leaving: Collection[ResourceId]) -> None:
        """The next generation cannot begin yet: as `hold_slots`, and a job that runs is RESTARTING from now on."""
        self.hold_slots(count, leaving)
        lifecycle = self._state.lifecycle
        if lifecycle.status is JobStatus.RUNNING:
            lifecycle.move(JobStatusEvent.RESTARTABLE_FAILURE)
            lifecycle.awaits_next = True

    def hand_over(self, kept: frozenset[VertexId] = frozenset()) -> None:
        """Take a checkpoint after which all tasks end, except those of `kept` vertices. No edge may join these with others."""
        self._state.checkpoints.hand_over(self._state.event_log.now_ms, kept)

    def take_checkpoint(self) -> None:
        """Take one out of turn, if the job takes them at intervals."""
        self._state.checkpoints.take_one(self._state.event_log.now_ms)

    def note_handover_failure(self) -> None:
        """It is known that the last handover has failed, and another one may begin."""
        self._state.checkpoints.handover.note_failure()

    def give_up(self) -> None:
        """All tasks end, and the next generation begins as after a failure."""
        self._state.lifecycle.move(JobStatusEvent.RESTARTABLE_FAILURE)
        self._state.lifecycle.awaits_next = True
        for vertex in self._state.graph.vertices:
            self._state.attempts.cancel(vertex)

    def take_over(self, left: HandedOver, leaving: Collection[ResourceId]) -> None:
        """Begin where the generation before has stopped, but on none of the TaskManagers that are `leaving`."""
        state, latest = self._state, self._state.checkpoints.store.latest
        former = left.graph
        status = state.lifecycle.status
        replaced = GraphReplaced(
            state.graph.job_graph,
            tuple(vertex.vertex_id for vertex in former.vertices),
            left.first_attempt,
            None if latest is None else latest.checkpoint_id,
            is_planned=status is JobStatus.RUNNING,
            kept=left.kept,
            is_first=status is JobStatus.CREATED,
        )
        state.event_log.emit(replaced)
        state.checkpoints.restore_coordinators(left.kept)
        if status is JobStatus.CREATED:
            state.lifecycle.move(JobStatusEvent.START)
        elif status is JobStatus.RESTARTING:
            state.lifecycle.move(JobStatusEvent.RESTARTED)
        state.slots.leave(leaving)
        shared, needed = state.slots.shared_slots, 0
        if left.kept:
            share_kept_slots(state.graph, shared, left, leaving)
            needed = len(shared.groups)  # What runs on may have more than is asked for by now.
        state.slots.keep(max(needed, state.slots.pool.floor))
        if left.kept:
            new = [one for one in state.graph.vertices if one.vertex_id.vertex_id not in left.kept]
            self._transitions.allocate(self._scheduling.restart(new))
            return
        if state.deployer.keeps_state_near:
            free = state.slots.pool.free
            shared.planned = slots_by_state(shared.groups, free, former, latest)
        self._transitions.allocate(self._scheduling.start())


P = ParamSpec("P")


class GenerationChange:
    """An event of a JobMaster: a method of `HandoverChanges` and its arguments. Only the master of all generations sends it.

    It has no time of its own: it belongs to the event that the master has got.
    """

    def __init__(
        self, how: Callable[Concatenate[HandoverChanges, P], None], *args: P.args, **more: P.kwargs
    ) -> None:
        self.name = how.__name__.title().replace("_", "")
        self.make: Callable[[HandoverChanges], None] = lambda made: how(made, *args, **more)
