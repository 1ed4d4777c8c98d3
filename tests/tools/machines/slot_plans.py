"""A parallelism with a slot for each of its execution groups: by state, or in order where nothing is known of it."""

from dataclasses import dataclass

from penstock.machines.adaptive.parallelism import VertexParallelism, parallelism_for
from penstock.machines.adaptive.slot_assignment import ExecutionGroup, by_state, execution_groups


@dataclass(frozen=True)
class Plan:
    parallelism: VertexParallelism
    assignment: dict[str, ExecutionGroup]

    def slot_of(self):
        """The slot of each subtask."""
        found = self.assignment.items()
        return {subtask: slot for slot, group in found for subtask in group.subtasks}


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
