"""Which regions to deploy next: a region is deployed as a whole, when all that it waits for is
there.

Knows no slots: it names vertices. Source: Flink PipelinedRegionSchedulingStrategy
(docs/spec/scheduling.md#region-by-region).
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
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.states import ExecutionState


class SchedulingStrategy(Protocol):
    """Decides what is deployed next; each list is allocated and deployed together."""

    def start(self) -> list[list[ExecutionVertex]]: ...
    def on_finished(self, vertex: ExecutionVertex) -> list[list[ExecutionVertex]]: ...
    def restart(self, vertices: Iterable[ExecutionVertex]) -> list[list[ExecutionVertex]]: ...


class PipelinedRegionScheduling:
    """Every method returns what to allocate and deploy: one list of vertices per region, in order."""

    def __init__(self, graph: ExecutionGraph, regions: Regions) -> None:
        self._regions = regions
        self._scheduled: set[Region] = set()
        self._consumers: dict[int, set[Region]] = {}
        self._produced: dict[Region, list[ConsumedPartitionGroup]] = {}
        self._cross_region: set[int] = set()
        for group in graph.consumed_groups:
            if not group.result_type.must_be_pipelined_consumed:
                self._add_group(group)

    def start(self) -> list[list[ExecutionVertex]]:
        """Return the regions that wait for no other region."""
        return self._schedule(
            region
            for region in self._regions.regions
            if not any(self._is_external(group, region) for group in region.inputs)
        )

    def on_finished(self, vertex: ExecutionVertex) -> list[list[ExecutionVertex]]:
        """A vertex has finished, so its results are complete."""
        candidates: set[Region] = set()
        for partition in vertex.partitions:
            if partition.result_type.can_be_pipelined_consumed:
                continue
            for group in partition.consumed_groups:
                if group.is_all_data_produced or id(group) in self._cross_region:
                    candidates |= self._consumers.get(id(group), set())
        return self._schedule(candidates)

    def restart(self, vertices: Iterable[ExecutionVertex]) -> list[list[ExecutionVertex]]:
        """These vertices have new attempts, which wait to be scheduled."""
        regions = {self._regions.of(vertex) for vertex in vertices}
        self._scheduled -= regions
        return self._schedule(regions)

    def _add_group(self, group: ConsumedPartitionGroup) -> None:
        producers = {self._regions.of(partition.producer) for partition in group.partitions}
        consumers = {self._regions.of(vertex) for vertex in group.consumers.vertices}
        if len(producers) > 1 and producers & consumers:
            self._cross_region.add(id(group))
        for region in producers:
            self._produced.setdefault(region, []).append(group)
        waiting = {region for region in consumers if self._is_external(group, region)}
        if waiting:
            self._consumers[id(group)] = waiting

    def _is_external(self, group: ConsumedPartitionGroup, region: Region) -> bool:
        if id(group) in self._cross_region:
            return True
        return self._regions.of(group.partitions[0].producer) is not region

    def _schedule(self, candidates: Iterable[Region]) -> list[list[ExecutionVertex]]:
        """Take the regions that can be deployed, then also those that read hybrid results of these
        while they are made.
        """
        taken: set[Region] = set()
        current = set(candidates)
        while current:
            known: dict[int, bool] = {}
            ready = {region for region in current if self._is_schedulable(region, taken, known)}
            taken |= ready
            produced = {
                id(group)
                for region in ready
                for group in self._produced.get(region, ())
                if group.result_type.can_be_pipelined_consumed
            }
            current = {
                consumer for group_id in produced for consumer in self._consumers.get(group_id, ())
            } - taken
        return [self._take(region) for region in sorted(taken, key=lambda region: region.index)]

    def _take(self, region: Region) -> list[ExecutionVertex]:
        for vertex in region.vertices:
            if vertex.state is not ExecutionState.CREATED:
                raise BrokenInvariant(
                    f"{region} is to be scheduled, but {vertex} is {vertex.state}, not CREATED."
                )
        self._scheduled.add(region)
        return list(region.vertices)

    def _is_schedulable(self, region: Region, taken: set[Region], known: dict[int, bool]) -> bool:
        """`known`: answers of this round for groups whose answer does not depend on the consumer."""
        if region in self._scheduled or region in taken:
            return False
        for group in region.inputs:
            if not self._is_external(group, region):
                continue
            if id(group) in self._cross_region:
                is_consumable = self._is_consumable(group, region, taken)
            else:
                if id(group) not in known:
                    known[id(group)] = self._is_consumable(group, None, taken)
                is_consumable = known[id(group)]
            if not is_consumable:
                return False
        return True

    def _is_consumable(
        self, group: ConsumedPartitionGroup, region: Region | None, taken: set[Region]
    ) -> bool:
        """`region`: the consumer, if some of the producers are in it; those are not waited for."""
        if region is None and not group.result_type.can_be_pipelined_consumed:
            return group.is_all_data_produced
        partitions: Iterable[ResultPartition] = group.partitions
        if region is not None:
            partitions = [p for p in partitions if self._regions.of(p.producer) is not region]
        if group.result_type.can_be_pipelined_consumed:
            producers = self._regions.of_all(partition.producer for partition in partitions)
            return all(producer in self._scheduled or producer in taken for producer in producers)
        return all(partition.is_all_data_produced for partition in partitions)
