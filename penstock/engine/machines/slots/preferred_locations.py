"""Where a subtask should run if possible: where its state is, else where its inputs are.

Knows no slots. Source: Flink DefaultPreferredLocationsRetriever
(docs/spec/slots.md#preferred-locations). Places that are not known yet are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, TypeVar

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.model.ids import TaskManagerLocation
from penstock.engine.model.states import ExecutionState

MAX_DISTINCT_CONSUMERS: Final = 8
"""Inputs that more subtasks share are skipped, because they would draw all of these subtasks to one place."""
MAX_DISTINCT_LOCATIONS: Final = 8

Location = TypeVar("Location", bound=Hashable)


def preferred_by_inputs(
    inputs: Iterable[tuple[int, Callable[[], Iterable[Location | None]]]],
) -> list[Location]:
    """Return the places of the input with the fewest places; of equal ones, the later input.

    Args: inputs: for each input the number of consumers that share it, and its producers' places
    (None: not known), which are read only if few share it.
    """
    best: list[Location] = []
    for consumers, places_of in inputs:
        if consumers > MAX_DISTINCT_CONSUMERS:
            continue
        places: list[Location] = []
        for place in places_of():
            if place is not None:
                places.append(place)
            if len(places) > MAX_DISTINCT_LOCATIONS:
                places = []
                break
        distinct = list(dict.fromkeys(places))
        if distinct and (not best or len(distinct) <= len(best)):
            best = distinct
    return best


def preferred_locations(
    vertex: ExecutionVertex,
    ignored_producers: Collection[ExecutionVertex],
    state_location: TaskManagerLocation | None = None,
) -> list[TaskManagerLocation]:
    """Return the places for one subtask. `ignored_producers`: those that are placed in the same call."""
    if state_location is not None:
        return [state_location]
    return preferred_by_inputs(
        (
            len(group.consumers.vertices),
            lambda group=group: (  # type: ignore[misc]
                _place_of(partition.producer)
                for partition in group.partitions
                if partition.producer not in ignored_producers
            ),
        )
        for group in vertex.consumed_groups
    )


def _place_of(vertex: ExecutionVertex) -> TaskManagerLocation | None:
    return None if vertex.state is ExecutionState.CREATED else vertex.execution.location
