"""Where the new subtasks of a generation sit beside those that run on: in their slots, as far as these go.

Source: none; Flink makes all subtasks anew (docs/spec/elasticity.md#what-runs-on).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.machines.job.inheritance import Inheritance
from penstock.machines.slots.shared_slots import SharedSlot, SharedSlots
from penstock.machines.slots.slot_sharing import SharingGroup
from penstock.model.ids import AllocationId, ResourceId


def seat_beside(
    graph: ExecutionGraph,
    shared_slots: SharedSlots,
    left: Inheritance,
    leaving: Collection[ResourceId],
) -> None:
    """Give those that run on the seats that they have. Each group of new subtasks shares one of these slots, so that no more slots are used
    than needed, but not on a TaskManager that is `leaving`. What is left over asks for slots of its own.

    A group goes to the slot where one of its subtasks was before, if it can.
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
