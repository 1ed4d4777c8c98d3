"""The content of a task's deployment: its partitions, its gates, and where its producers are.

Knows no slots and no wire. Source: Flink TaskDeploymentDescriptorFactory, ShuffleDescriptor
(docs/spec/execution-graph.md#deployment): descriptors are packed once per group of partitions and
shared by all its consumers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.machines.execution.execution_graph import (
    ConsumedPartitionGroup,
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
    subpartition_of,
)
from penstock.engine.model.deployment import (
    InputGateDeployment,
    PartitionDeployment,
    ShuffleDescriptor,
    TaskDeployment,
    pack_producers,
)
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.ids import AttemptId, PartitionId, ResultPartitionId, TaskManagerLocation
from penstock.engine.model.messages import UpdatePartitions


@dataclass(slots=True, eq=False)
class _Unaware:
    """Consumers that got the same list, in which some producers were not known."""

    consumers: list[AttemptId] = field(default_factory=list)


class TaskDeployments:
    """Makes deployments, and remembers which consumers do not know a producer yet."""

    def __init__(self, job_graph: JobGraph, graph: ExecutionGraph) -> None:
        self._job = job_graph
        self._graph = graph
        self._unaware: dict[PartitionId, list[_Unaware]] = {}
        self._unaware_of: dict[int, _Unaware] = {}

    def place(self, vertex: ExecutionVertex) -> None:
        """The vertex has a slot, so its results can be described from now on."""
        for partition in vertex.partitions:
            partition.is_available = True
            partition.forget_descriptors()

    def of(self, vertex: ExecutionVertex) -> TaskDeployment:
        """Return the deployment of a placed vertex. Raises BrokenInvariant: it is not placed."""
        execution = vertex.execution
        job_vertex = vertex.job_vertex.job_vertex
        if execution.allocation_id is None or job_vertex.chain_blob is None:
            raise BrokenInvariant(f"{vertex} cannot be deployed: it has no slot or no code.")
        return TaskDeployment(
            job_id=self._job.job_id,
            job_name=self._job.name,
            attempt_id=execution.attempt_id,
            allocation_id=execution.allocation_id,
            vertex_name=job_vertex.name,
            parallelism=job_vertex.parallelism,
            max_parallelism=job_vertex.max_parallelism,
            chain_blob=job_vertex.chain_blob,
            partitions=tuple(self._partition(partition) for partition in vertex.partitions),
            gates=tuple(self._gate(vertex, group) for group in vertex.consumed_groups),
            restore=execution.restore,
        )

    def updates_for(self, vertex: ExecutionVertex) -> list[UpdatePartitions]:
        """Return messages to consumers that were deployed before this vertex's results could be read."""
        updates: dict[AttemptId, list[ShuffleDescriptor]] = {}
        for partition in vertex.partitions:
            if _readable_at(partition) is None:
                continue
            for unaware in self._unaware.pop(partition.partition_id, ()):
                for attempt_id in unaware.consumers:
                    updates.setdefault(attempt_id, []).append(_descriptor(partition))
        found: list[UpdatePartitions] = []
        for attempt_id, descriptors in updates.items():
            consumer = self._graph.current(attempt_id)
            if consumer is None or consumer.state.is_terminal:
                continue
            location = consumer.execution.location
            if location is not None:
                found.append(UpdatePartitions(location.resource_id, attempt_id, tuple(descriptors)))
        return found

    def _partition(self, partition: ResultPartition) -> PartitionDeployment:
        readers = partition.consumer_groups
        target = readers[0].vertices[0].job_vertex.job_vertex if readers else None
        edges = [group.edge for group in partition.consumed_groups]
        return PartitionDeployment(
            partition_id=partition.partition_id,
            result_type=partition.result_type,
            subpartitions=partition.subpartitions,
            consumer_max_parallelism=target.max_parallelism if target else 1,
            is_broadcast=partition.data_set.is_broadcast,
            is_in_turn=any(edge.ship_strategy is ShipStrategy.REBALANCE for edge in edges),
        )

    def _gate(self, vertex: ExecutionVertex, group: ConsumedPartitionGroup) -> InputGateDeployment:
        if group.descriptors is None:
            self._describe(group)
        assert group.descriptors is not None
        unaware = self._unaware_of.get(id(group))
        if unaware is not None:
            unaware.consumers.append(vertex.execution.attempt_id)
        return InputGateDeployment(
            data_set_id=group.edge.data_set_id,
            result_type=group.result_type,
            input_index=group.edge.input_index,
            subpartition_index=subpartition_of(
                group.edge.pattern, vertex.subtask, len(group.consumers.vertices)
            ),
            channels=group.descriptors,
        )

    def _describe(self, group: ConsumedPartitionGroup) -> None:
        """Describe a group's producers, once for all consumers until a producer moves.
        `_unaware_of` belongs to this list.
        """
        first = group.partitions[0]
        group.descriptors = pack_producers(
            first.partition_id.data_set_id,
            first.producer.vertex_id.vertex_id,
            first.partition_id.index,
            [(p.producer.execution.attempt_id.attempt, _readable_at(p)) for p in group.partitions],
        )
        self._unaware_of.pop(id(group), None)
        if group.result_type.must_be_pipelined_consumed:
            return
        unknown = [p for p in group.partitions if _readable_at(p) is None]
        if unknown:
            self._unaware_of[id(group)] = unaware = _Unaware()
            for partition in unknown:
                self._unaware.setdefault(partition.partition_id, []).append(unaware)


def _readable_at(partition: ResultPartition) -> TaskManagerLocation | None:
    """Return where a partition can be read. None: its place is not known, or it is blocking and not
    complete yet.

    The reader of a blocking partition may be in the producer's region and is then deployed with it.
    """
    if partition.result_type.is_blocking and not partition.is_all_data_produced:
        return None
    return partition.producer.execution.location


def _descriptor(partition: ResultPartition) -> ShuffleDescriptor:
    location = _readable_at(partition)
    if location is None:
        return ShuffleDescriptor(partition.partition_id, None, None)
    made = ResultPartitionId(partition.partition_id, partition.producer.execution.attempt_id)
    return ShuffleDescriptor(partition.partition_id, made, location)
