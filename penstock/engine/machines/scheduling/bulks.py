"""Vertices that wait for slots together: which requests each bulk still waits for, and which bulk a
vertex is in.

Knows no state of a vertex. Source: Flink PhysicalSlotRequestBulkImpl
(docs/spec/scheduling.md#bulks-that-wait-for-slots).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.slots.resource_profile import ResourceProfile
from penstock.engine.machines.slots.shared_slots import SharedSlot
from penstock.engine.machines.slots.slot_matching import FreeSlot
from penstock.engine.model.ids import AllocationId, SlotRequestId


@dataclass(slots=True, eq=False)
class Bulk:
    """Vertices that are deployed together. `waits_for`: requests without a slot yet."""

    timer: str
    vertices: dict[int, ExecutionVertex]
    shared: list[SharedSlot]
    waits_for: set[SlotRequestId]
    timeout: BulkTimeout


class Bulks:
    """The bulks that wait."""

    def __init__(self) -> None:
        self._by_timer: dict[str, Bulk] = {}
        self._of_request: dict[SlotRequestId, list[Bulk]] = {}
        self._of_vertex: dict[int, Bulk] = {}

    def add(self, bulk: Bulk) -> None:
        self._by_timer[bulk.timer] = bulk
        self._of_vertex.update(dict.fromkeys(bulk.vertices, bulk))
        for request_id in bulk.waits_for:
            self._of_request.setdefault(request_id, []).append(bulk)

    def of_timer(self, timer: str) -> Bulk | None:
        return self._by_timer.get(timer)

    def is_waiting(self, vertex: ExecutionVertex) -> bool:
        return vertex.index in self._of_vertex

    def served(self, request_id: SlotRequestId) -> list[Bulk]:
        """A request has its slot. Returns: bulks that have all their slots now."""
        complete = []
        for bulk in self._of_request.pop(request_id, ()):
            bulk.waits_for.discard(request_id)
            if not bulk.waits_for and bulk.timer in self._by_timer:
                complete.append(bulk)
        return complete

    def forget(self, vertex: ExecutionVertex) -> None:
        """The vertex is no longer to be deployed."""
        bulk = self._of_vertex.pop(vertex.index, None)
        if bulk is not None:
            del bulk.vertices[vertex.index]
            if not bulk.vertices:
                self.drop(bulk)

    def drop(self, bulk: Bulk) -> None:
        self._by_timer.pop(bulk.timer, None)
        for index in bulk.vertices:
            self._of_vertex.pop(index, None)
        for request_id in bulk.waits_for:
            left = [b for b in self._of_request.pop(request_id, ()) if b is not bulk]
            if left:
                self._of_request[request_id] = left

    def __len__(self) -> int:
        """Return the number of entries of all tables."""
        return len(self._by_timer) + len(self._of_request) + len(self._of_vertex)


class BulkCheck(StrEnum):
    """What a check found."""

    FULFILLED = "FULFILLED"
    PENDING = "PENDING"
    TIMEOUT = "TIMEOUT"


def is_fulfillable(
    pending: Iterable[ResourceProfile],
    reusable_slots: Iterable[FreeSlot],
    fulfilled: Collection[AllocationId],
) -> bool:
    """Whether requests that wait together can still be served, and when to stop waiting.

    Knows no pool. Source: Flink PhysicalSlotRequestBulkCheckerImpl
    (docs/spec/scheduling.md#bulks-that-wait-for-slots). It checks whether they can be served once other
    tasks have finished, not whether they can be served now.

    Whether each pending request finds a slot of its own.

    Args: reusable_slots: free ones, and used ones that will become free by themselves. fulfilled:
    slots that serve this bulk already.
    """
    left: dict[ResourceProfile, deque[int]] = {}
    for order, slot in enumerate(reusable_slots):
        if slot.allocation_id not in fulfilled:
            left.setdefault(slot.profile, deque()).append(order)
    for profile in pending:
        usable = [orders for of, orders in left.items() if orders and of.is_matching(profile)]
        if not usable:
            return False
        min(usable, key=lambda orders: orders[0]).popleft()  # The first slot that matches is taken.
    return True


@dataclass(slots=True)
class BulkTimeout:
    """The timeout of one bulk. It counts only the time during which the bulk is not fulfillable."""

    timeout_ms: int
    unfulfillable_since_ms: int | None

    def check(self, now_ms: int, *, has_pending: bool, can_be_fulfilled: bool) -> BulkCheck:
        if not has_pending:
            return BulkCheck.FULFILLED
        if can_be_fulfilled:
            self.unfulfillable_since_ms = None
            return BulkCheck.PENDING
        if self.unfulfillable_since_ms is None:
            self.unfulfillable_since_ms = now_ms
        is_over = self.unfulfillable_since_ms + self.timeout_ms <= now_ms
        return BulkCheck.TIMEOUT if is_over else BulkCheck.PENDING
