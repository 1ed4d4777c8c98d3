"""The slots of a job: what TaskManagers offer, what the job has lost, and what it asks for.

Knows no restart. Source: Flink DeclarativeSlotPoolBridge, the part that talks with TaskManagers and
the ResourceManager.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.job_state.attempts import Attempts
from penstock.engine.machines.job_state.failures import lost_slot
from penstock.engine.machines.slots.resource_profile import (
    ANY,
    UNKNOWN,
    ResourceProfile,
    profile_of,
)
from penstock.engine.machines.slots.shared_slots import SharedSlots
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.machines.story import EventLog
from penstock.engine.model import messages
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import AllocationId, ResourceId
from penstock.engine.model.slot_size import SlotSize

Declared: TypeAlias = tuple[int, tuple[tuple[SlotSize, int], ...]]
"""How many slots without a given size, and how many of each size."""
_USUAL_SLOT = profile_of({"usual slot": 1})


class SlotSizes:
    """Which size of slot each slot sharing group asks for, and which requests a slot of some size can serve."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._sizes = job_graph.slot_sizes
        self.by_profile = {profile_of(dict(size)): size for size in job_graph.slot_sizes.values()}

    def wanted(self, slot_sharing_group: str) -> ResourceProfile:
        """Return the profile of a group's slots.

        If other groups ask for a size, a group without one takes only usual slots, so that it does
        not sit in a slot that was started for another group.
        """
        size = self._sizes.get(slot_sharing_group)
        if size:
            return profile_of(dict(size))
        return _USUAL_SLOT if self.by_profile else UNKNOWN

    def offered(self, size: SlotSize) -> ResourceProfile:
        if size:
            return profile_of(dict(size))
        return _USUAL_SLOT if self.by_profile else ANY


@dataclass(eq=False, repr=False)
class JobSlots:
    """`pool`: slots that the job holds. `shared_slots`: the tasks in them. `freed`: allocations that are over.

    `declared`: what was declared to the ResourceManager last.
    """

    _graph: ExecutionGraph
    pool: SlotPool
    shared_slots: SharedSlots
    _sizes: SlotSizes
    _attempts: Attempts
    _event_log: EventLog
    freed: set[AllocationId] = field(default_factory=set)
    declared: Declared = field(default_factory=lambda: (0, ()))

    def take_offers(self, event: messages.SlotsOffered, *, is_any_welcome: bool) -> None:
        """Take offers, except those of a TaskManager that is gone. `is_any_welcome`: the job
        restarts, and every slot is kept.
        """
        location = event.location
        if location.resource_id in self._attempts.gone:
            self.reject_offers(event)
            return
        self.pool.register_task_manager(location.resource_id)
        by_size: dict[SlotSize, list[messages.SlotOffer]] = {}
        # Some were offered before they were freed, but are read after that.
        over = tuple(
            offer.allocation_id for offer in event.offers if offer.allocation_id in self.freed
        )
        if over:
            self._event_log.emit(messages.AnswerOffers(location.resource_id, (), over))
        for offer in event.offers:
            if offer.allocation_id not in over:
                by_size.setdefault(offer.size, []).append(offer)
        for size, offers in by_size.items():
            answer = self.pool.offer(
                location,
                offers,
                self._event_log.now_ms,
                profile=self._sizes.offered(size),
                is_any_welcome=is_any_welcome,
            )
            answered = messages.AnswerOffers(location.resource_id, answer.accepted, answer.rejected)
            self._event_log.emit(answered)

    def reject_offers(self, event: messages.SlotsOffered) -> None:
        rejected = tuple(offer.allocation_id for offer in event.offers)
        self._event_log.emit(messages.AnswerOffers(event.location.resource_id, (), rejected))

    def lose_slot(self, allocation_id: AllocationId) -> list[ExecutionVertex]:
        """A TaskManager has freed a slot by itself. Returns: the vertices that were to run in it."""
        self.freed.add(allocation_id)
        slot = self.pool.slots.get(allocation_id)
        if slot is None:
            return []  # The job itself gave it back.
        seated = self.shared_slots.seated_in(slot)
        self._attempts.fail(seated, lost_slot(slot))
        self.pool.lose_slot(allocation_id)
        return seated

    def lose_task_manager(
        self, resource_id: ResourceId, failure: messages.FailureInfo
    ) -> list[ExecutionVertex]:
        """The slots, tasks and results of a TaskManager are gone. Returns: the vertices that were alive there."""
        self._attempts.gone.add(resource_id)
        seated = self.shared_slots.lose(self.pool.release_task_manager(resource_id))
        victims = {vertex.index: vertex for vertex in seated}
        for vertex in self._graph.vertices:
            location = vertex.execution.location
            if location is None or location.resource_id != resource_id:
                continue
            victims[vertex.index] = vertex
            for partition in vertex.partitions:
                partition.is_available = False
        alive = [victims[i] for i in sorted(victims) if not victims[i].state.is_terminal]
        self._attempts.fail(alive, failure)
        return alive

    def release_idle(self, kept: Collection[ResourceId]) -> None:
        """Free slots that have been unused for too long, except on TaskManagers in `kept`."""
        for slot in self.pool.release_idle(self._event_log.now_ms, kept):
            cause = "idle beyond slot.idle.timeout"
            self._event_log.emit(messages.FreeSlot(slot.resource_id, slot.allocation_id, cause))

    def keep(self, count: int) -> None:
        """Give back free slots beyond this number, those of whole TaskManagers first, so that these can end."""
        for slot in self.pool.release_surplus(count):
            cause = "the job needs fewer slots"
            self._event_log.emit(messages.FreeSlot(slot.resource_id, slot.allocation_id, cause))

    def leave(self, resource_ids: Collection[ResourceId]) -> None:
        """Give back the free slots of TaskManagers that will be gone soon."""
        for slot in self.pool.free:
            if slot.resource_id in resource_ids:
                self.pool.lose_slot(slot.allocation_id)
                cause = "its TaskManager leaves"
                self._event_log.emit(messages.FreeSlot(slot.resource_id, slot.allocation_id, cause))

    def give_back(self, cause: str) -> None:
        """Give all slots back, and ask for none."""
        for slot in self.pool.clear():
            self._event_log.emit(messages.FreeSlot(slot.resource_id, slot.allocation_id, cause))
        self.declare()

    def declare(self) -> None:
        """Declare to the ResourceManager which slots are required, if that has changed."""
        required = self.pool.required
        sized = tuple(
            (size, required[p]) for p, size in self._sizes.by_profile.items() if required[p] > 0
        )
        declared = self.pool.total_required - sum(count for _, count in sized), sized
        if declared != self.declared:
            self.declared = declared
            slots, sized = declared
            job_id = self._graph.job_graph.job_id
            self._event_log.emit(
                messages.DeclareRequirements(job_id, slots, self._event_log.now_ms, sized)
            )
