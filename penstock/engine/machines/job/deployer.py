"""From vertices to deployed tasks: asks for seats in slots, and deploys a bulk when all its slots are there.

Knows no failures: it only reports a bulk that has waited too long. Source: Flink DefaultExecutionDeployer and
PhysicalSlotRequestBulkCheckerImpl (docs/spec/scheduling.md#one-round, #bulks-that-wait-for-slots).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.execution.execution_graph import (
    ExecutionVertex,
)
from penstock.engine.machines.job_state.attempts import Attempts
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.job_state.job_slots import JobSlots
from penstock.engine.machines.scheduling.bulks import (
    Bulk,
    BulkCheck,
    Bulks,
    BulkTimeout,
    is_fulfillable,
)
from penstock.engine.machines.scheduling.task_deployments import TaskDeployments
from penstock.engine.machines.story import EventLog
from penstock.engine.model.graph.job_graph import JobGraph, JobType
from penstock.engine.model.ids import AllocationId
from penstock.engine.model.messages import DeployTask, SetTimer
from penstock.engine.model.states import ExecutionState

TIMER_PREFIX = "slots-"


class Reserved:
    """Slots that some task has now, or had before a failure and may return to
    (docs/spec/slots.md#preferred-locations).

    Updated as tasks are placed, and looked up per slot: building a set of all of them for each
    region would cost more.
    """

    def __init__(self) -> None:
        self._claimants: dict[AllocationId, dict[int, ExecutionVertex]] = {}

    def add(self, vertex: ExecutionVertex, allocation_id: AllocationId) -> None:
        """The vertex sits in this slot now, and gives up the slot that it had before."""
        former = vertex.last_allocation_id
        if former is not None and former in self._claimants:
            self._claimants[former].pop(vertex.index, None)
            if not self._claimants[former]:
                del self._claimants[former]
        self._claimants.setdefault(allocation_id, {})[vertex.index] = vertex

    def __contains__(self, allocation_id: object) -> bool:
        return any(
            vertex.state is not ExecutionState.FINISHED
            for vertex in self._claimants.get(allocation_id, {}).values()  # type: ignore[call-overload] # Container takes any object
        )

    def __bool__(self) -> bool:
        return bool(self._claimants)


class Deployer:
    """Collects vertices in bulks that wait for slots, and deploys them. `next_bulk`: number of the next one."""

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        slots: JobSlots,
        bulks: Bulks,
        attempts: Attempts,
        deployments: TaskDeployments,
        event_log: EventLog,
    ) -> None:
        self._job = job_graph
        self._timeout_ms = settings.slot_request_timeout_ms
        self._pool = slots.pool
        self._shared_slots = slots.shared_slots
        self._bulks = bulks
        self._attempts = attempts
        self._deployments = deployments
        self._event_log = event_log
        self.reserved = Reserved() if settings.is_local_recovery else None
        self.next_bulk = 0

    @property
    def keeps_state_near(self) -> bool:
        """Whether TaskManagers keep copies of their state, so that tasks are to run where theirs are."""
        return self.reserved is not None

    def allocate(self, vertices: Iterable[ExecutionVertex]) -> None:
        """Schedule these vertices; deploy them at once if all their slots are there."""
        members = {vertex.index: vertex for vertex in vertices}
        for vertex in members.values():
            vertex.version += 1
            self._attempts.move(vertex, ExecutionEvent.SCHEDULE)
        shared = self._shared_slots.allocate(members.values(), self.reserved or frozenset())
        waits_for = {s.request.request_id for s in shared if s.slot is None}
        timer = f"{TIMER_PREFIX}{self.next_bulk}"
        self.next_bulk += 1
        now_ms = self._event_log.now_ms
        bulk = Bulk(timer, members, shared, waits_for, BulkTimeout(self._timeout_ms, now_ms))
        if not waits_for:
            self._deploy(bulk)
            return
        self._bulks.add(bulk)
        self._event_log.emit(SetTimer(timer, now_ms + self._timeout_ms))

    def serve(self) -> None:
        """Give free slots to waiting requests, and deploy the bulks that have all their slots now."""
        complete: list[Bulk] = []
        for request, slot in self._pool.serve_pending():
            self._shared_slots.serve(request.request_id, slot)
            complete += self._bulks.served(request.request_id)
        for bulk in complete:
            self._bulks.drop(bulk)
            self._deploy(bulk)

    def on_timer(self, timer: str) -> Bulk | None:
        """Return the bulk of this timer if it has waited too long; None: it has not, or the timer
        is not one of ours.
        """
        bulk = self._bulks.of_timer(timer)
        if bulk is None:
            return None
        now_ms = self._event_log.now_ms
        pending = [s.request.profile for s in bulk.shared if s.slot is None]
        served = {s.slot.allocation_id for s in bulk.shared if s.slot is not None}
        is_streaming = self._job.job_type is JobType.STREAMING
        reusable = self._pool.free if is_streaming else list(self._pool.slots.values())
        check = bulk.timeout.check(
            now_ms,
            has_pending=bool(pending),
            can_be_fulfilled=is_fulfillable(pending, reusable, served),
        )
        if check is BulkCheck.TIMEOUT:
            return bulk
        self._event_log.emit(SetTimer(timer, now_ms + self._timeout_ms))
        return None

    def _deploy(self, bulk: Bulk) -> None:
        """Place all vertices before deploying any, so that the places of pipelined producers are known to all."""
        placed = [v for v in bulk.vertices.values() if v.state is ExecutionState.SCHEDULED]
        for vertex in placed:
            slot = self._shared_slots.slot_of(vertex)
            assert slot is not None
            vertex.execution.location = slot.location
            vertex.execution.allocation_id = slot.allocation_id
            self._deployments.place(vertex)
            if self.reserved is not None:
                self.reserved.add(vertex, slot.allocation_id)
        for vertex in placed:
            self._attempts.move(vertex, ExecutionEvent.DEPLOY)
            location = vertex.execution.location
            assert location is not None
            self._event_log.emit(DeployTask(location.resource_id, self._deployments.of(vertex)))
        for vertex in placed:
            self._attempts.update_consumers(vertex)
