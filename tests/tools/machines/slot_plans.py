"""A parallelism with a slot for each of its execution groups: by state, or in order where nothing is known of it."""

from dataclasses import dataclass

from penstock.engine.machines.rescaling.slot_allocator import (
    ExecutionGroup,
    VertexParallelism,
    by_state,
    parallelism_for,
)
from penstock.engine.model.ids import ExecutionVertexId


@dataclass(frozen=True)
class Plan:
    parallelism: VertexParallelism
    assignment: dict[str, ExecutionGroup]

    def slot_of(self):
        """The slot of each subtask."""
        found = self.assignment.items()
        return {subtask: slot for slot, group in found for subtask in group.subtasks}


def execution_groups(groups, parallelism):
    """Group k of a sharing group has subtask k of each of its vertices that has so many."""
    return tuple(
        ExecutionGroup(
            group.name,
            index,
            tuple(
                ExecutionVertexId(vertex, index)
                for vertex in group.bounds
                if index < parallelism.of_vertex[vertex]
            ),
        )
        for group in groups
        for index in range(parallelism.slots_of_group[group.name])
    )


def make_plan(groups, slots, former=None):
    """None: the slots are too few."""
    parallelism = parallelism_for(groups, len(slots))
    if parallelism is None:
        return None
    wanted = execution_groups(groups, parallelism)
    if former is not None:
        return Plan(parallelism, by_state(wanted, slots, former))
    names = [slot.allocation_id for slot in slots]
    return Plan(parallelism, dict(zip(names, wanted, strict=False)))
