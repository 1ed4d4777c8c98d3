"""Whether requests that wait together can still be served, and when to stop waiting.

Knows no pool. Source: Flink PhysicalSlotRequestBulkCheckerImpl
(docs/spec/scheduling.md#bulks-that-wait-for-slots). It checks whether they can be served once other
tasks have finished, not whether they can be served now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from penstock.engine.machines.slots.resource_profile import ResourceProfile
from penstock.engine.machines.slots.slot_selection import FreeSlot
from penstock.engine.model.ids import AllocationId


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
    """Whether each pending request finds a slot of its own.

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
