"""Which regions to deploy next: a region is deployed as a whole, when all that it waits for is
there.

Knows no slots: it names vertices. Source: Flink PipelinedRegionSchedulingStrategy
(docs/spec/scheduling.md#region-by-region).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
)
from penstock.engine.machines.execution.regions import Region, Regions
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.options.scheduling import ConsumeConstraint
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


@dataclass(eq=False, repr=False)
class VertexwiseScheduling:
    """Which subtasks to deploy next, one by one: for BATCH jobs, whose regions need not be deployed as
    a whole.

    Knows no slots: it names vertices. Source: Flink VertexwiseSchedulingStrategy and its input
    consumable deciders (docs/spec/scheduling.md#subtask-by-subtask); differs: an edge that can only be
    read while it is produced waits until its producers are scheduled, whatever the constraint (Flink
    refuses it).

    Every method returns what to allocate and deploy: lists of one vertex, in topological order.
    """

    _graph: ExecutionGraph
    _constraint: ConsumeConstraint = ConsumeConstraint.UNFINISHED_PRODUCERS
    _scheduled: set[int] = field(default_factory=set)

    def start(self) -> list[list[ExecutionVertex]]:
        """Return the subtasks that read nothing."""
        return self._schedule(v for v in self._graph.vertices if not v.consumed_groups)

    def on_finished(self, vertex: ExecutionVertex) -> list[list[ExecutionVertex]]:
        """A vertex has finished, so its results are complete."""
        groups = (
            group
            for partition in vertex.partitions
            for group in partition.consumed_groups
            if self._is_worth_a_look(group)
        )
        return self._schedule(v for group in groups for v in group.consumers.vertices)

    def restart(self, vertices: Iterable[ExecutionVertex]) -> list[list[ExecutionVertex]]:
        """These vertices have new attempts, which wait to be scheduled."""
        again = list(vertices)
        self._scheduled.difference_update(vertex.index for vertex in again)
        return self._schedule(again)

    def _schedule(self, candidates: Iterable[ExecutionVertex]) -> list[list[ExecutionVertex]]:
        """Take the subtasks that can be deployed, then also those that read hybrid results of these
        while they are made.
        """
        taken: dict[int, ExecutionVertex] = {}
        current = {vertex.index: vertex for vertex in candidates}
        while current:
            ready = {i: v for i, v in current.items() if self._is_schedulable(v, taken)}
            taken |= ready
            current = {
                consumer.index: consumer
                for vertex in ready.values()
                for partition in vertex.partitions
                if partition.result_type.can_be_pipelined_consumed
                for group in partition.consumer_groups
                for consumer in group.vertices
                if consumer.index not in taken
            }
        return [[self._take(taken[index])] for index in sorted(taken)]

    def _take(self, vertex: ExecutionVertex) -> ExecutionVertex:
        if vertex.state is not ExecutionState.CREATED:
            raise BrokenInvariant(
                f"{vertex} is to be scheduled, but is {vertex.state}, not CREATED."
            )
        self._scheduled.add(vertex.index)
        return vertex

    def _is_schedulable(self, vertex: ExecutionVertex, taken: dict[int, ExecutionVertex]) -> bool:
        if vertex.index in self._scheduled or vertex.index in taken:
            return False
        return all(self._is_consumable(group, taken) for group in vertex.consumed_groups)

    def _is_consumable(
        self, group: ConsumedPartitionGroup, taken: dict[int, ExecutionVertex]
    ) -> bool:
        kind = group.result_type
        if not kind.can_be_pipelined_consumed:
            return group.is_all_data_produced
        is_along = self._constraint is ConsumeConstraint.UNFINISHED_PRODUCERS
        if kind.must_be_pipelined_consumed or is_along:
            return all(
                partition.producer.index in self._scheduled
                or partition.producer.index in taken
                or partition.producer.state is ExecutionState.FINISHED
                for partition in group.partitions
            )
        if self._constraint is ConsumeConstraint.ONLY_FINISHED_PRODUCERS:
            return any(partition.is_all_data_produced for partition in group.partitions)
        return group.is_all_data_produced

    def _is_worth_a_look(self, group: ConsumedPartitionGroup) -> bool:
        """Whether a finished producer may have made the group consumable."""
        if self._constraint is ConsumeConstraint.UNFINISHED_PRODUCERS:
            is_along = group.result_type.can_be_pipelined_consumed
            return not is_along and group.is_all_data_produced
        return self._is_consumable(group, {})
