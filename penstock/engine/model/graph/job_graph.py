"""JobGraph: chains of operators, the data sets between them, and the blobs they need.

Source: Flink JobGraph, JobVertex, IntermediateDataSet, JobEdge. Serialisable: the code is in
`blobs`, opaque, and only a TaskManager opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.auto_parallelism import AutoParallelism
from penstock.engine.model.graph.partitioning import DistributionPattern, ShipStrategy
from penstock.engine.model.ids import BlobKey, DataSetId, JobId, VertexId
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.slot_size import SlotSize


class JobType(StrEnum):
    """STREAMING jobs hold their slots until they end."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"


class ResultPartitionType(StrEnum):
    """How a result is produced, consumed and released. The properties: docs/spec/job-graph.md#kinds-of-results."""

    PIPELINED = "PIPELINED"
    PIPELINED_BOUNDED = "PIPELINED_BOUNDED"
    PIPELINED_APPROXIMATE = "PIPELINED_APPROXIMATE"
    BLOCKING = "BLOCKING"
    BLOCKING_PERSISTENT = "BLOCKING_PERSISTENT"
    HYBRID_FULL = "HYBRID_FULL"
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"

    @property
    def must_be_pipelined_consumed(self) -> bool:
        return self in (type(self).PIPELINED, type(self).PIPELINED_BOUNDED)

    @property
    def can_be_pipelined_consumed(self) -> bool:
        return not self.is_blocking

    @property
    def is_blocking(self) -> bool:
        return self in (type(self).BLOCKING, type(self).BLOCKING_PERSISTENT)

    @property
    def has_bounded_buffers(self) -> bool:
        return self in (type(self).PIPELINED_BOUNDED, type(self).PIPELINED_APPROXIMATE)

    @property
    def is_reconsumable(self) -> bool:
        return self.is_blocking or self is type(self).HYBRID_FULL

    @property
    def is_persistent(self) -> bool:
        return self is type(self).BLOCKING_PERSISTENT

    @property
    def is_released_by_scheduler(self) -> bool:
        return self.is_blocking or self in (type(self).HYBRID_FULL, type(self).HYBRID_SELECTIVE)


@dataclass(frozen=True, slots=True)
class FunctionStrategy:
    """How a row function will run: on `columns`, by `counts` of its records, on the `fields` that it reads, or on `records`. `why`: why not on columns."""

    strategy: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class SelectorStrategy:
    """How a key selector will run. `strategy`, `why`: as of a FunctionStrategy. `defined_at`: the line with its key_by."""

    strategy: str
    why: str = ""
    defined_at: str = ""


@dataclass(frozen=True, slots=True)
class FieldsRead:
    """Which fields of its records a source parses. `declared`: how many there are. `why_all`: why all of them."""

    names: tuple[str, ...]
    declared: int
    why_all: str = ""


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """The facts about an operator that the JobManager knows. `keys`: of its keyed state; None: it has none. `function`: None: it has no
    row function that could run on columns. `selectors`: of its inputs' keys, where these are functions. `reads`: of a
    source that parses only the fields that functions read.
    """

    node_id: int
    name: str
    uid: str
    defined_at: str = ""
    has_coordinator: bool = False
    keys: KeyType | None = None
    function: FunctionStrategy | None = None
    selectors: tuple[SelectorStrategy, ...] = ()
    reads: FieldsRead | None = None


@dataclass(frozen=True, slots=True)
class JobEdge:
    """One input gate of `target`: reads all of `data_set_id` by `pattern`."""

    data_set_id: DataSetId
    source: VertexId
    target: VertexId
    pattern: DistributionPattern
    ship_strategy: ShipStrategy
    input_index: int = 0


@dataclass(frozen=True, slots=True)
class IntermediateDataSet:
    """What a vertex produces for one or several edges that agree on pattern and broadcast."""

    data_set_id: DataSetId
    producer: VertexId
    result_type: ResultPartitionType
    pattern: DistributionPattern
    is_broadcast: bool = False


@dataclass(slots=True)
class JobVertex:
    """A chain of operators with its parallelism and the blob that holds its ChainSpec.

    `parallelism` is UNDECIDED until the inputs are complete; only in a graph with `auto_parallelism`.
    `is_max_parallelism_set`: the program sets it. Otherwise a checkpoint that the job starts from may change it.
    """

    vertex_id: VertexId
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorInfo, ...] = ()
    chain_blob: BlobKey | None = None
    slot_sharing_group: str = "default"
    co_location_group: str | None = None
    inputs: list[JobEdge] = field(default_factory=list)
    outputs: list[IntermediateDataSet] = field(default_factory=list)
    is_source: bool = False
    is_max_parallelism_set: bool = False


@dataclass(slots=True)
class JobGraph:
    """The submitted graph: vertices in insertion order and the blobs they name.

    `slot_sizes`: of the slot sharing groups that ask for resources. `auto_parallelism`: how a parallelism is chosen for
    vertices that set none (UNDECIDED until then); None: every vertex has a parallelism.
    """

    job_id: JobId
    name: str
    job_type: JobType = JobType.STREAMING
    vertices: dict[VertexId, JobVertex] = field(default_factory=dict)
    blobs: dict[BlobKey, bytes] = field(default_factory=dict)
    slot_sizes: dict[str, SlotSize] = field(default_factory=dict)
    auto_parallelism: AutoParallelism | None = None


Node = TypeVar("Node", bound=Hashable)


def topological_order(
    nodes: Sequence[Node],
    inputs_of: Callable[[Node], Iterable[Node]],
    outputs_of: Callable[[Node], Iterable[Node]],
) -> list[Node]:
    """Orders of a graph: topological order of stream nodes and of job vertices.

    Does not know parallelism or state. Source: Flink JobGraph.getVerticesSortedTopologicallyFromSources; differs: no
    recursion, so that a chain of thousands of vertices does not exceed Python's recursion limit.

    Sources first, in their given order; then depth first along the outputs.

    A node is placed at the first edge that reaches it when all its inputs are placed, and its own
    outputs are followed before its siblings: this is the order that slots and regions depend on.

    Raises: GraphError: a cycle; the text names the nodes that could not be placed.
    """
    waiting_for = {node: len(set(inputs_of(node))) for node in nodes}
    order = [node for node in nodes if not waiting_for[node]]
    placed = set(order)
    for node in order:
        _count_down_outputs(node, outputs_of, waiting_for)
    for source in tuple(order):
        stack: list[Iterator[Node]] = [iter(outputs_of(source))]
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
            elif following not in placed and not waiting_for[following]:
                order.append(following)
                placed.add(following)
                _count_down_outputs(following, outputs_of, waiting_for)
                stack.append(iter(outputs_of(following)))
    if len(order) != len(nodes):
        left = ", ".join(str(node) for node in nodes if node not in placed)
        raise GraphError(
            f"the dataflow has a cycle: {left} cannot be ordered, because each of them waits for "
            "another one. Penstock runs only programs without cycles; remove the feedback edge."
        )
    return order


def _count_down_outputs(
    node: Node, outputs_of: Callable[[Node], Iterable[Node]], waiting_for: dict[Node, int]
) -> None:
    for following in set(outputs_of(node)):
        waiting_for[following] -= 1


def consumers_of(job_graph: JobGraph) -> dict[DataSetId, list[JobEdge]]:
    """Edges that read each data set, in the order of the vertices and their inputs."""
    consumers: dict[DataSetId, list[JobEdge]] = {
        data_set.data_set_id: []
        for vertex in job_graph.vertices.values()
        for data_set in vertex.outputs
    }
    for vertex in job_graph.vertices.values():
        for edge in vertex.inputs:
            if edge.data_set_id not in consumers:
                raise GraphError(
                    f"vertex '{vertex.name}' reads data set {edge.data_set_id}, which no vertex "
                    "produces. The job graph is not complete; build it with build_job_graph."
                )
            consumers[edge.data_set_id].append(edge)
    return consumers


def sort_job_vertices(job_graph: JobGraph) -> list[JobVertex]:
    """Job vertices from sources to sinks. Raises GraphError for a cycle."""
    vertices: Mapping[VertexId, JobVertex] = job_graph.vertices
    consumers = consumers_of(job_graph)
    order = topological_order(
        list(vertices),
        lambda vertex_id: [edge.source for edge in vertices[vertex_id].inputs],
        lambda vertex_id: [
            edge.target
            for data_set in vertices[vertex_id].outputs
            for edge in consumers[data_set.data_set_id]
        ],
    )
    return [vertices[vertex_id] for vertex_id in order]
