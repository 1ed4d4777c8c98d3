"""All subtasks of a job with their attempts, and who reads what, stored as groups.

Knows no scheduler and no slots. Source: Flink ExecutionGraph, EdgeManager
(docs/spec/execution-graph.md#attempts, #groups); differs: vertices have a dense `index` in
topological order, by which everything is sorted. Edges cost O(n + m): an all-to-all edge is one
pair of groups, a point-wise edge one pair per distinct range.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from penstock.engine.machines.execution import execution as machine
from penstock.engine.machines.execution.execution import Consequence, ExecutionEvent
from penstock.engine.model import ids
from penstock.engine.model.checkpoints import SubtaskState, TaskRestore
from penstock.engine.model.deployment import Producers
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.auto_parallelism import UNDECIDED
from penstock.engine.model.graph.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    ResultPartitionType,
    sort_job_vertices,
)
from penstock.engine.model.graph.partitioning import DistributionPattern
from penstock.engine.model.messages import Committable, FailureInfo
from penstock.engine.model.states import ExecutionState, aggregate_state

DEFAULT_HISTORY_SIZE = 16


@dataclass(slots=True, eq=False)
class Execution:
    """One attempt. `location`, `allocation_id`: set when its slot is assigned, kept afterwards.
    `restore`: the state that it begins with. `final_state`: as in its report that it has FINISHED.
    """

    attempt_id: ids.AttemptId
    state: ExecutionState = ExecutionState.CREATED
    location: ids.TaskManagerLocation | None = None
    allocation_id: ids.AllocationId | None = None
    failure: FailureInfo | None = None
    committables: tuple[Committable, ...] = ()
    final_state: SubtaskState | None = None
    restore: TaskRestore | None = None
    since_ms: dict[ExecutionState, int] = field(default_factory=dict)

    def apply(self, event: ExecutionEvent, now_ms: int) -> Consequence:
        """Move by the table. Raises IllegalTransition."""
        following, consequence = machine.step(self.attempt_id, self.state, event)
        if following is not self.state and consequence is not Consequence.NEW_ATTEMPT:
            self.state = following
            self.since_ms[following] = now_ms
        return consequence


@dataclass(slots=True, eq=False)
class ConsumerVertexGroup:
    """The vertices that read the same range of partitions."""

    vertices: tuple[ExecutionVertex, ...]
    result_type: ResultPartitionType


@dataclass(slots=True, eq=False)
class ConsumedPartitionGroup:
    """A range of partitions that some vertices read, with the number of partitions that are not complete yet."""

    partitions: tuple[ResultPartition, ...]
    result_type: ResultPartitionType
    edge: JobEdge
    consumers: ConsumerVertexGroup
    unfinished: int
    descriptors: Producers | None = None

    @property
    def is_all_data_produced(self) -> bool:
        return self.unfinished == 0


@dataclass(slots=True, eq=False)
class ResultPartition:
    """The output of one subtask for one data set. `is_available`: deployed, and not lost since then."""

    partition_id: ids.PartitionId
    producer: ExecutionVertex
    result_type: ResultPartitionType
    data_set: IntermediateDataSet
    consumer_groups: list[ConsumerVertexGroup] = field(default_factory=list)
    consumed_groups: list[ConsumedPartitionGroup] = field(default_factory=list)
    is_all_data_produced: bool = False
    is_available: bool = False

    @property
    def subpartitions(self) -> int:
        """The number of members of the first consumer group; one if nobody reads."""
        return len(self.consumer_groups[0].vertices) if self.consumer_groups else 1

    @property
    def is_wanted(self) -> bool:
        """Whether it exists where it was made and has not been released."""
        return self.is_available and self.result_type.is_released_by_scheduler

    def mark_produced(self) -> None:
        """All data is there. Never called for pipelined results; a second call changes nothing."""
        if self.result_type.must_be_pipelined_consumed or self.is_all_data_produced:
            return
        self.is_all_data_produced = True
        for group in self.consumed_groups:
            group.unfinished -= 1
        if self.result_type.is_blocking:  # It can be read from now on.
            self.forget_descriptors()

    def reset(self) -> None:
        """The producer starts again: nothing is produced, and its place is not known yet."""
        if self.is_all_data_produced:
            self.is_all_data_produced = False
            for group in self.consumed_groups:
                group.unfinished += 1
        self.is_available = False
        self.forget_descriptors()

    def forget_descriptors(self) -> None:
        for group in self.consumed_groups:
            group.descriptors = None


@dataclass(slots=True, eq=False)
class ExecutionVertex:
    """One subtask. `index`: its place in the topological order of all subtasks. `execution`: the current attempt."""

    vertex_id: ids.ExecutionVertexId
    job_vertex: ExecutionJobVertex
    index: int
    execution: Execution
    history: deque[Execution]
    consumed_groups: list[ConsumedPartitionGroup] = field(default_factory=list)
    partitions: list[ResultPartition] = field(default_factory=list)
    last_location: ids.TaskManagerLocation | None = None
    last_allocation_id: ids.AllocationId | None = None
    version: int = 0

    def __str__(self) -> str:
        return f"{self.job_vertex.name}[{self.subtask}]"

    @property
    def subtask(self) -> int:
        return self.vertex_id.subtask

    @property
    def state(self) -> ExecutionState:
        return self.execution.state

    def reset(self) -> None:
        """Make a new attempt. Raises IllegalTransition while the current one is not terminal."""
        old = self.execution
        was_finished = old.state is ExecutionState.FINISHED
        old.apply(ExecutionEvent.RESET, 0)
        self.history.append(old)
        self.last_location = old.location or self.last_location
        self.last_allocation_id = old.allocation_id or self.last_allocation_id
        self.execution = Execution(ids.AttemptId(self.vertex_id, old.attempt_id.attempt + 1))
        if was_finished:
            self.job_vertex.finished -= 1
        for partition in self.partitions:
            partition.reset()


@dataclass(slots=True, eq=False)
class ExecutionJobVertex:
    """All subtasks of a job vertex. `finished`: how many of them are FINISHED."""

    job_vertex: JobVertex
    vertices: list[ExecutionVertex] = field(default_factory=list)
    inputs: list[JobEdge] = field(default_factory=list)
    finished: int = 0

    @property
    def name(self) -> str:
        return self.job_vertex.name

    @property
    def slot_sharing_group(self) -> str:
        return self.job_vertex.slot_sharing_group

    @property
    def co_location_group(self) -> str | None:
        return self.job_vertex.co_location_group

    @property
    def is_finished(self) -> bool:
        return self.finished == len(self.vertices)

    @property
    def state(self) -> ExecutionState:
        """One state for all subtasks: the most alarming one."""
        return aggregate_state(Counter(vertex.state for vertex in self.vertices))


class ExecutionGraph:
    """Vertices in topological order, current attempts by id, groups. Raises GraphError for a cycle."""

    def __init__(
        self,
        job_graph: JobGraph,
        history_size: int = DEFAULT_HISTORY_SIZE,
        first_attempt: int = 0,
    ) -> None:
        """`first_attempt`: the number of the first attempt of each subtask."""
        self.job_graph = job_graph
        self._first_attempt = first_attempt
        self.job_vertices: list[ExecutionJobVertex] = []
        self.vertices: list[ExecutionVertex] = []
        self.partitions: dict[ids.PartitionId, ResultPartition] = {}
        self.consumed_groups: list[ConsumedPartitionGroup] = []
        self._by_id: dict[ids.ExecutionVertexId, ExecutionVertex] = {}
        self._history_size = history_size
        self._produced: dict[ids.DataSetId, list[ResultPartition]] = {}
        self.attach()

    def attach(self) -> list[ExecutionVertex]:
        """Add the vertices that the job graph has gained; existing ones stay as they are.

        Vertices whose parallelism is still open wait, with all that read from them.

        Returns: the new subtasks, in topological order. Raises: GraphError: a cycle, an input
        without producer, or a known vertex that reads a new one.
        """
        known = {job_vertex.job_vertex.vertex_id for job_vertex in self.job_vertices}
        first = len(self.vertices)
        for model in sort_job_vertices(self.job_graph):
            if model.vertex_id in known:
                self._check_unchanged(model, known)
                continue
            if not self._is_settled(model):
                continue
            job_vertex = ExecutionJobVertex(model, [])
            self.job_vertices.append(job_vertex)
            self._add_subtasks(job_vertex, self._history_size)
            self._add_partitions(job_vertex, self._produced)
            for edge in model.inputs:
                self._connect(edge, self._produced[edge.data_set_id], job_vertex.vertices)
        return self.vertices[first:]

    def _is_settled(self, model: JobVertex) -> bool:
        """Whether its parallelism and that of its inputs' producers are known."""
        if self.job_graph.auto_parallelism is None:
            return True
        is_known = model.parallelism != UNDECIDED
        return is_known and all(edge.data_set_id in self._produced for edge in model.inputs)

    def _check_unchanged(self, model: JobVertex, known: set[ids.VertexId]) -> None:
        new = [edge.source for edge in model.inputs if edge.source not in known]
        if new:
            raise GraphError(
                f"vertex '{model.name}' is attached already and cannot read '{new[0]}', which "
                "was added later."
            )

    def vertex(self, vertex_id: ids.ExecutionVertexId) -> ExecutionVertex:
        return self._by_id[vertex_id]

    def current(self, attempt_id: ids.AttemptId) -> ExecutionVertex | None:
        """Return the vertex whose current attempt this is; None: a past or an unknown attempt."""
        vertex = self._by_id.get(attempt_id.execution_vertex_id)
        is_current = vertex is not None and vertex.execution.attempt_id == attempt_id
        return vertex if is_current else None

    @property
    def is_finished(self) -> bool:
        return all(job_vertex.is_finished for job_vertex in self.job_vertices)

    def mark_finished(self, vertex: ExecutionVertex) -> None:
        """Update the counters for a vertex that has just become FINISHED."""
        vertex.job_vertex.finished += 1
        for partition in vertex.partitions:
            partition.mark_produced()

    def _add_subtasks(self, job_vertex: ExecutionJobVertex, history_size: int) -> None:
        model = job_vertex.job_vertex
        if model.parallelism < 1:
            raise GraphError(
                f"vertex '{model.name}' has parallelism {model.parallelism}; it must be at least 1."
            )
        for subtask in range(model.parallelism):
            vertex_id = ids.ExecutionVertexId(model.vertex_id, subtask)
            vertex = ExecutionVertex(
                vertex_id=vertex_id,
                job_vertex=job_vertex,
                index=len(self.vertices),
                execution=Execution(ids.AttemptId(vertex_id, self._first_attempt)),
                history=deque(maxlen=history_size),
            )
            job_vertex.vertices.append(vertex)
            self.vertices.append(vertex)
            self._by_id[vertex_id] = vertex

    def _add_partitions(
        self, job_vertex: ExecutionJobVertex, produced: dict[ids.DataSetId, list[ResultPartition]]
    ) -> None:
        for data_set in job_vertex.job_vertex.outputs:
            made = [
                ResultPartition(
                    ids.PartitionId(data_set.data_set_id, vertex.subtask),
                    vertex,
                    data_set.result_type,
                    data_set,
                )
                for vertex in job_vertex.vertices
            ]
            produced[data_set.data_set_id] = made
            for vertex, partition in zip(job_vertex.vertices, made, strict=True):
                vertex.partitions.append(partition)
                self.partitions[partition.partition_id] = partition

    def _connect(
        self,
        edge: JobEdge,
        partitions: list[ResultPartition],
        consumers: list[ExecutionVertex],
    ) -> None:
        for span in partition_ranges(edge.pattern, len(partitions), len(consumers)):
            read = tuple(partitions[span.first_partition : span.last_partition + 1])
            readers = tuple(consumers[span.first_consumer : span.last_consumer + 1])
            result_type = read[0].result_type
            unfinished = sum(not partition.is_all_data_produced for partition in read)
            group = ConsumedPartitionGroup(
                read, result_type, edge, ConsumerVertexGroup(readers, result_type), unfinished
            )
            self.consumed_groups.append(group)
            for partition in read:
                partition.consumed_groups.append(group)
                partition.consumer_groups.append(group.consumers)
            for vertex in readers:
                vertex.consumed_groups.append(group)


def in_topological_order(vertices: Iterable[ExecutionVertex]) -> list[ExecutionVertex]:
    return sorted(vertices, key=attrgetter("index"))


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Consecutive partitions and the consecutive consumers that share them."""

    first_partition: int
    last_partition: int
    first_consumer: int
    last_consumer: int


def partition_ranges(
    pattern: DistributionPattern, producers: int, consumers: int
) -> list[PartitionRange]:
    """Which partitions and subpartitions each consumer reads: index arithmetic.

    Knows no graph. Source: Flink VertexInputInfoComputationUtils
    (docs/spec/execution-graph.md#who-reads-what). All ranges are inclusive.

    Return one entry per distinct range of partitions, in the order of consumers: O(producers +
    consumers).

    Point-wise with fewer producers than consumers, a partition serves a run of consumers; with
    more, a consumer reads a run of partitions.
    """
    if pattern is DistributionPattern.ALL_TO_ALL:
        return [PartitionRange(0, producers - 1, 0, consumers - 1)]
    if producers >= consumers:
        return [
            PartitionRange(i * producers // consumers, (i + 1) * producers // consumers - 1, i, i)
            for i in range(consumers)
        ]
    return [
        PartitionRange(
            p, p, -(-p * consumers // producers), -(-(p + 1) * consumers // producers) - 1
        )
        for p in range(producers)
    ]


def subpartition_of(pattern: DistributionPattern, consumer: int, consumers_of_range: int) -> int:
    """Return the one subpartition that a consumer reads of each partition of its range.

    Point-wise, this is the consumer's own index modulo the number of consumers of the range, not
    its place in the range.
    """
    if pattern is DistributionPattern.ALL_TO_ALL:
        return consumer
    return consumer % consumers_of_range
