"""From vertices to deployed tasks: seats are asked for, and a bulk goes when all its slots are
there.

Knows no failures: it says which bulk has waited too long. Source: Flink DefaultExecutionDeployer
and PhysicalSlotRequestBulkCheckerImpl (spec 0, 4.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.machines.execution.execution import ExecutionEvent
from penstock.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.machines.scheduling.bulk_check import BulkCheck, BulkTimeout, is_fulfillable
from penstock.machines.scheduling.task_deployments import TaskDeployments
from penstock.machines.slots.shared_slots import SharedSlot, SharedSlots
from penstock.machines.slots.slot_pool import SlotPool
from penstock.model.graph.job_graph import JobGraph, JobType
from penstock.model.ids import AllocationId, SlotRequestId
from penstock.model.messages import DeployTask, JobEffect, SetTimer
from penstock.model.states import ExecutionState

TIMER_PREFIX = "slots-"


@dataclass(slots=True, eq=False)
class Bulk:
    """Vertices that are deployed together. `waits_for`: requests without a slot yet."""

    timer: str
    vertices: dict[int, ExecutionVertex]
    shared: list[SharedSlot]
    waits_for: set[SlotRequestId]
    timeout: BulkTimeout


class Reserved:
    """Slots that some task has, or had before a failure: its own way back (spec 4.4).

    Kept per slot as tasks are placed, and looked at for the slot that is asked about: a set of all of
    them would be made anew for each region.
    """

    def __init__(self) -> None:
        self._claimants: dict[AllocationId, dict[int, ExecutionVertex]] = {}

    def add(self, vertex: ExecutionVertex, allocation_id: AllocationId) -> None:
        """The vertex sits there now, and gives up the slot that it had before."""
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
    """`move` changes a vertex's state by the table; `emit` takes effects, in order."""

    def __init__(
        self,
        job_graph: JobGraph,
        graph: ExecutionGraph,
        shared_slots: SharedSlots,
        pool: SlotPool,
        timeout_ms: int,
        *,
        is_local_recovery: bool = False,
    ) -> None:
        self._job = job_graph
        self._shared_slots = shared_slots
        self._pool = pool
        self._timeout_ms = timeout_ms
        self._reserved = Reserved() if is_local_recovery else None
        self._deployments = TaskDeployments(job_graph, graph)
        self._bulks: dict[str, Bulk] = {}
        self._bulks_of_request: dict[SlotRequestId, list[Bulk]] = {}
        self._bulk_of: dict[int, Bulk] = {}
        self._next_bulk = 0

    def allocate(
        self,
        vertices: Iterable[ExecutionVertex],
        now_ms: int,
        move: Callable[[ExecutionVertex, ExecutionEvent], object],
        emit: Callable[[JobEffect], None],
    ) -> None:
        """Schedule these vertices; deploy them at once if all their slots are there."""
        members = {vertex.index: vertex for vertex in vertices}
        for vertex in members.values():
            vertex.version += 1
            move(vertex, ExecutionEvent.SCHEDULE)
        shared = self._shared_slots.allocate(members.values(), self._reserved or frozenset())
        waits_for = {s.request.request_id for s in shared if s.slot is None}
        timer = f"{TIMER_PREFIX}{self._next_bulk}"
        self._next_bulk += 1
        bulk = Bulk(timer, members, shared, waits_for, BulkTimeout(self._timeout_ms, now_ms))
        if not waits_for:
            self._deploy(bulk, move, emit)
            return
        self._bulks[timer] = bulk
        self._bulk_of.update(dict.fromkeys(members, bulk))
        for request_id in waits_for:
            self._bulks_of_request.setdefault(request_id, []).append(bulk)
        emit(SetTimer(timer, now_ms + self._timeout_ms))

    def serve(
        self,
        move: Callable[[ExecutionVertex, ExecutionEvent], object],
        emit: Callable[[JobEffect], None],
    ) -> None:
        """Give free slots to waiting requests, and deploy the bulks that are complete by that."""
        complete: list[Bulk] = []
        for request, slot in self._pool.serve_pending():
            self._shared_slots.serve(request.request_id, slot)
            for bulk in self._bulks_of_request.pop(request.request_id, ()):
                bulk.waits_for.discard(request.request_id)
                if not bulk.waits_for and bulk.timer in self._bulks:
                    complete.append(bulk)
        for bulk in complete:
            self._drop(bulk)
            self._deploy(bulk, move, emit)

    def forget(self, vertex: ExecutionVertex) -> None:
        """The vertex is no longer to be deployed."""
        bulk = self._bulk_of.pop(vertex.index, None)
        if bulk is not None:
            del bulk.vertices[vertex.index]
            if not bulk.vertices:
                self._drop(bulk)

    def on_timer(self, timer: str, now_ms: int, emit: Callable[[JobEffect], None]) -> Bulk | None:
        """The bulk that has waited too long, if the timer is one of ours and finds so."""
        bulk = self._bulks.get(timer)
        if bulk is None:
            return None
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
        emit(SetTimer(timer, now_ms + self._timeout_ms))
        return None

    def tell_readers(self, vertex: ExecutionVertex, emit: Callable[[JobEffect], None]) -> None:
        """What the vertex makes can be read now: those that were deployed before that are told."""
        for update in self._deployments.updates_for(vertex):
            emit(update)

    def is_waiting(self, vertex: ExecutionVertex) -> bool:
        return vertex.index in self._bulk_of

    def _deploy(
        self,
        bulk: Bulk,
        move: Callable[[ExecutionVertex, ExecutionEvent], object],
        emit: Callable[[JobEffect], None],
    ) -> None:
        """First all are placed, then all are deployed: so pipelined producers are known to all."""
        placed = [v for v in bulk.vertices.values() if v.state is ExecutionState.SCHEDULED]
        for vertex in placed:
            slot = self._shared_slots.slot_of(vertex)
            assert slot is not None
            vertex.execution.location = slot.location
            vertex.execution.allocation_id = slot.allocation_id
            self._deployments.place(vertex)
            if self._reserved is not None:
                self._reserved.add(vertex, slot.allocation_id)
        for vertex in placed:
            move(vertex, ExecutionEvent.DEPLOY)
            location = vertex.execution.location
            assert location is not None
            emit(DeployTask(location.resource_id, self._deployments.of(vertex)))
        for vertex in placed:
            self.tell_readers(vertex, emit)

    def _drop(self, bulk: Bulk) -> None:
        self._bulks.pop(bulk.timer, None)
        for index in bulk.vertices:
            self._bulk_of.pop(index, None)
        for request_id in bulk.waits_for:
            left = [b for b in self._bulks_of_request.pop(request_id, ()) if b is not bulk]
            if left:
                self._bulks_of_request[request_id] = left
