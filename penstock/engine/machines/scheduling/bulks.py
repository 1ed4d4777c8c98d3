"""Vertices that wait for slots together: which requests each bulk still waits for, and which bulk a
vertex is in.

Knows no state of a vertex. Source: Flink PhysicalSlotRequestBulkImpl
(docs/spec/scheduling.md#bulks-that-wait-for-slots).
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.scheduling.bulk_check import BulkTimeout
from penstock.engine.machines.slots.shared_slots import SharedSlot
from penstock.engine.model.ids import SlotRequestId


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
