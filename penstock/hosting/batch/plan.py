"""What runs as which stage, and where in the shuffle its inputs and outputs lie.

One job vertex is one stage: its exchanges are all blocking. All shuffles of a job have the same number of reduce partitions:
each consumer has a range of them, its own in every shuffle that it reads, so that Spark unites several without another
shuffle. The last partition of all is the driver's: rows that are collected there, and what sinks want committed.

Source: Flink's BATCH execution, whose result partitions are here Spark's map outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.model.graph.job_graph import JobGraph, JobVertex
from penstock.model.graph.partitioning import ShipStrategy
from penstock.model.graph.stream_graph import StreamNode
from penstock.model.graph.topology import sort_job_vertices
from penstock.model.ids import DataSetId, VertexId
from penstock.runtime.sink import Sink


@dataclass(frozen=True, slots=True)
class Exchange:
    """One edge. `gate`: its place among the consumer's inputs. `first`: reduce partition of the consumer's subtask 0.
    `max_parallelism`: the consumer's.
    """

    data_set_id: DataSetId
    producer: VertexId
    gate: int
    first: int
    consumers: int
    max_parallelism: int


@dataclass(frozen=True, slots=True)
class Stage:
    """`inputs`, `outputs`: exchanges in the order of the vertex's. `first`: of its own range of reduce partitions.
    `speaks_to_driver`: rows or commits of it go there.
    """

    vertex: JobVertex
    first: int
    inputs: tuple[Exchange, ...]
    outputs: tuple[Exchange, ...]

    speaks_to_driver: bool

    @property
    def vertex_id(self) -> VertexId:
        return self.vertex.vertex_id

    @property
    def producers(self) -> tuple[VertexId, ...]:
        """Each once; those that all subtasks read whole come first, as consumers of broadcasts want it."""
        wholes = sorted(
            self.vertex.inputs, key=lambda edge: edge.ship_strategy is not ShipStrategy.BROADCAST
        )
        return tuple(dict.fromkeys(edge.source for edge in wholes))


@dataclass(frozen=True, slots=True)
class Plan:
    """`stages`: in an order in which producers come first. `partitions`: of every shuffle, the driver's included."""

    stages: tuple[Stage, ...]
    partitions: int

    @property
    def driver_partition(self) -> int:
        return self.partitions - 1

    def stage(self, vertex_id: VertexId) -> Stage:
        return next(stage for stage in self.stages if stage.vertex_id == vertex_id)


def speakers_of(job_graph: JobGraph, nodes: Mapping[int, StreamNode]) -> set[VertexId]:
    """Vertices with an operator that has rows or commits for the driver."""

    def speaks(node: StreamNode) -> bool:
        return node.driver_stream is not None or isinstance(node.coordinator, Sink)

    return {
        vertex_id
        for vertex_id, vertex in job_graph.vertices.items()
        if any(speaks(nodes[one.node_id]) for one in vertex.operators)
    }


def plan_of(job_graph: JobGraph, speakers: Collection[VertexId]) -> Plan:
    """`speakers`: see `speakers_of`. Raises: GraphError: the graph has a circle."""
    ordered = sort_job_vertices(job_graph)
    first_of: dict[VertexId, int] = {}
    partitions = 0
    for vertex in ordered:
        first_of[vertex.vertex_id] = partitions
        partitions += vertex.parallelism if vertex.inputs else 0
    read_by: dict[DataSetId, Exchange] = {}
    inputs: dict[VertexId, tuple[Exchange, ...]] = {}
    for vertex in ordered:
        first = first_of[vertex.vertex_id]
        inputs[vertex.vertex_id] = tuple(
            Exchange(
                edge.data_set_id,
                edge.source,
                gate,
                first,
                vertex.parallelism,
                vertex.max_parallelism,
            )
            for gate, edge in enumerate(vertex.inputs)
        )
        read_by |= {exchange.data_set_id: exchange for exchange in inputs[vertex.vertex_id]}
    stages = tuple(
        Stage(
            vertex,
            first_of[vertex.vertex_id],
            inputs[vertex.vertex_id],
            tuple(read_by[data_set.data_set_id] for data_set in vertex.outputs),
            speaks_to_driver=not vertex.outputs or vertex.vertex_id in speakers,
        )
        for vertex in ordered
    )
    return Plan(stages, partitions + 1)
