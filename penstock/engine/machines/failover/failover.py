"""Which subtasks start again after a failure.

Knows no back-off and no slots. Source: Flink RestartPipelinedRegionFailoverStrategy,
RestartAllFailoverStrategy (docs/spec/failover.md#tasks-to-restart).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
    in_topological_order,
)
from penstock.engine.machines.execution.regions import Region, Regions
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import PartitionId
from penstock.engine.model.states import ExecutionState


class FailoverStrategy(Protocol):
    """Chooses the subtasks to restart."""

    def to_restart(
        self, failed: Iterable[ExecutionVertex], unreadable: PartitionId | None = None
    ) -> list[ExecutionVertex]: ...


class RestartRegions:
    """The failed regions, the producers of what they cannot read again, and all their consumers."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def to_restart(
        self, failed: Iterable[ExecutionVertex], unreadable: PartitionId | None = None
    ) -> list[ExecutionVertex]:
        """Return the subtasks in topological order, without those that were never scheduled.

        Args: unreadable: a partition that the failed task could not read; this one decision treats
        it as lost.
        """
        queue = deque({self._regions.of(vertex): None for vertex in failed})
        visited: set[Region] = set(queue)
        seen_inputs: set[int] = set()
        seen_outputs: set[int] = set()
        while queue:
            region = queue.popleft()
            for other in (
                *self._producers(region, unreadable, seen_inputs),
                *self._consumers(region, seen_outputs),
            ):
                if other not in visited:
                    visited.add(other)
                    queue.append(other)
        return in_topological_order(
            vertex
            for region in visited
            for vertex in region.vertices
            if vertex.execution.state is not ExecutionState.CREATED
        )

    def _producers(
        self, region: Region, unreadable: PartitionId | None, seen: set[int]
    ) -> Iterable[Region]:
        """Return the regions whose results this region cannot read again."""
        for vertex in region.vertices:
            for group in vertex.consumed_groups:
                if id(group) in seen:
                    continue
                seen.add(id(group))
                lost = (
                    [p for p in group.partitions if not is_available(p, unreadable)]
                    if is_rereadable(group.result_type)
                    else group.partitions
                )
                yield from self._regions.of_all(partition.producer for partition in lost)

    def _consumers(self, region: Region, seen: set[int]) -> Iterable[Region]:
        for vertex in region.vertices:
            for partition in vertex.partitions:
                for group in partition.consumer_groups:
                    if id(group) not in seen:
                        seen.add(id(group))
                        yield from self._regions.of_all(group.vertices)


class RestartAll:
    """Restarts the whole job, whatever failed."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph

    def to_restart(
        self, failed: Iterable[ExecutionVertex], unreadable: PartitionId | None = None
    ) -> list[ExecutionVertex]:
        return list(self._graph.vertices)


def is_rereadable(kind: ResultPartitionType) -> bool:
    """Whether a second attempt can read results of this type, once they are made."""
    return kind.is_reconsumable or kind is ResultPartitionType.PIPELINED_APPROXIMATE


def is_available(partition: ResultPartition, unreadable: PartitionId | None) -> bool:
    """Whether a restarted consumer could read it again without its producer."""
    is_there = partition.is_available and partition.partition_id != unreadable
    return is_there and is_rereadable(partition.result_type)
