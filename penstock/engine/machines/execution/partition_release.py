"""Which results can be released before the job ends: those that no unfinished vertex reads.

Knows no TaskManager: it names partitions. Source: Flink RegionPartitionGroupReleaseStrategy,
ConsumedPartitionGroup releasability (docs/spec/execution-graph.md#release-of-results). If a region
starts again, its release is revoked. Results that are gone by then are made again, because the
failover strategy finds them missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
)
from penstock.engine.machines.execution.regions import Region, Regions


class PartitionRelease(Protocol):
    """Is told of each vertex that finishes, and of each finished one that starts again."""

    def on_finished(self, vertex: ExecutionVertex) -> Iterable[ResultPartition]: ...
    def on_unfinished(self, vertex: ExecutionVertex) -> None: ...


class ReleaseAtEnd:
    """Releases nothing before the job ends."""

    def on_finished(self, vertex: ExecutionVertex) -> Iterable[ResultPartition]:
        return ()

    def on_unfinished(self, vertex: ExecutionVertex) -> None:
        """Does nothing: nothing was released."""


class ReleaseByRegion:
    """Releases a group of partitions when all regions that read it have finished, and a partition
    with its last group.
    """

    def __init__(self, graph: ExecutionGraph, regions: Regions) -> None:
        self._regions = regions
        self._unfinished = {region: len(region.vertices) for region in regions.regions}
        self._readers = {
            id(group): len(regions.of_all(group.consumers.vertices))
            for group in graph.consumed_groups
            if _can_go(group)
        }

    def on_finished(self, vertex: ExecutionVertex) -> Iterable[ResultPartition]:
        """Return the partitions that can be released now, each once, in the order of their groups."""
        region = self._regions.of(vertex)
        self._unfinished[region] -= 1
        if self._unfinished[region]:
            return ()
        found: dict[int, ResultPartition] = {}
        for group in region.inputs:
            if id(group) not in self._readers:
                continue
            self._readers[id(group)] -= 1
            if self._readers[id(group)] == 0:
                found |= {id(p): p for p in group.partitions if self._is_unread(p)}
        return found.values()

    def on_unfinished(self, vertex: ExecutionVertex) -> None:
        """The vertex was finished and starts again, so its region reads once more."""
        region: Region = self._regions.of(vertex)
        if self._unfinished[region] == 0:
            for group in region.inputs:
                if id(group) in self._readers:
                    self._readers[id(group)] += 1
        self._unfinished[region] += 1

    def _is_unread(self, partition: ResultPartition) -> bool:
        return all(self._readers.get(id(group), 1) == 0 for group in partition.consumed_groups)


def _can_go(group: ConsumedPartitionGroup) -> bool:
    kind = group.result_type
    return kind.is_released_by_scheduler and not kind.is_persistent
