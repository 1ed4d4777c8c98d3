"""Which subtasks to deploy next, one by one: for BATCH jobs, whose regions need not be deployed as
a whole.

Knows no slots: it names vertices. Source: Flink VertexwiseSchedulingStrategy and its input
consumable deciders (docs/spec/scheduling.md#subtask-by-subtask); differs: an edge that can only be
read while it is produced waits until its producers are scheduled, whatever the constraint (Flink
refuses it).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionVertex,
)
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.states import ExecutionState


class ConsumeConstraint(StrEnum):
    """How much of a hybrid input must be there before its consumer starts. Blocking inputs must always be complete."""

    UNFINISHED_PRODUCERS = "UNFINISHED_PRODUCERS"
    """All its producers are scheduled."""
    ONLY_FINISHED_PRODUCERS = "ONLY_FINISHED_PRODUCERS"
    """One of its producers has finished."""
    ALL_PRODUCERS_FINISHED = "ALL_PRODUCERS_FINISHED"
    """All its producers have finished."""


class VertexwiseScheduling:
    """Every method returns what to allocate and deploy: lists of one vertex, in topological order."""

    def __init__(
        self,
        graph: ExecutionGraph,
        constraint: ConsumeConstraint = ConsumeConstraint.UNFINISHED_PRODUCERS,
    ) -> None:
        self._graph = graph
        self._constraint = constraint
        self._scheduled: set[int] = set()

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
