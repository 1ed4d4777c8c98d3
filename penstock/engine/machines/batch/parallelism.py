"""Decides the parallelism of a BATCH job's open vertices when their inputs are complete, and which
subpartitions each subtask reads.

Knows no host: sizes are the bytes of a shuffle's partitions, wherever they are. Source: Flink
AdaptiveBatchScheduler, ForwardGroup, DefaultVertexParallelismAndInputInfosDecider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.model.graph.auto_parallelism import UNDECIDED, SubpartitionRange, cut, decided
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.ids import VertexId


@dataclass(frozen=True, slots=True)
class Subpartitions:
    """Where a vertex's all-to-all inputs are in the shuffle of each of its producers: the first
    partition, and how many.

    Broadcasts, and point-wise inputs of an open vertex, are in other partitions.
    """

    first: int
    count: int


class BatchParallelism:
    """Sets `JobVertex.parallelism` of open vertices, of all at once that forward edges connect."""

    def __init__(self, job_graph: JobGraph, places: Mapping[VertexId, Subpartitions]) -> None:
        self._graph = job_graph
        self._places = places

    def settle(self, vertex: JobVertex, produced: Mapping[VertexId, Sequence[int]]) -> None:
        """Decide the parallelism, unless it is decided. `produced`: bytes by partition of each producer's shuffle."""
        auto = self._graph.auto_parallelism
        if auto is None or vertex.parallelism != UNDECIDED:
            return
        group = list(self._forward_group(vertex))
        most = min(one.max_parallelism for one in group)
        parallelism = decided(auto, sum(self._sizes(vertex, produced)), most)
        for one in group:
            one.parallelism = parallelism

    def ranges(
        self, vertex: JobVertex, produced: Mapping[VertexId, Sequence[int]]
    ) -> tuple[SubpartitionRange, ...]:
        """Return the subpartitions of its all-to-all inputs that each subtask reads; empty if there are none."""
        sizes = self._sizes(vertex, produced)
        return cut(sizes, vertex.parallelism) if sizes else ()

    def _sizes(
        self, vertex: JobVertex, produced: Mapping[VertexId, Sequence[int]]
    ) -> Sequence[int]:
        """Return the bytes of each subpartition, summed over all producers."""
        place = self._places.get(vertex.vertex_id)
        if place is None:
            return ()
        sizes = [0] * place.count
        for producer in dict.fromkeys(edge.source for edge in vertex.inputs):
            held = produced.get(producer, ())[place.first : place.first + place.count]
            for subpartition, size in enumerate(held):
                sizes[subpartition] += size
        return sizes

    def _forward_group(self, vertex: JobVertex) -> Iterator[JobVertex]:
        """Return all open vertices that forward edges connect to this one, itself first."""
        vertices = self._graph.vertices
        group = {vertex.vertex_id: vertex}
        waiting = [vertex]
        while waiting:
            one = waiting.pop()
            yield one
            for neighbour in self._forward_neighbours(one):
                if neighbour not in group and vertices[neighbour].parallelism == UNDECIDED:
                    group[neighbour] = vertices[neighbour]
                    waiting.append(vertices[neighbour])

    def _forward_neighbours(self, vertex: JobVertex) -> Iterator[VertexId]:
        for other in self._graph.vertices.values():
            for edge in other.inputs:
                if edge.ship_strategy is ShipStrategy.FORWARD:
                    if edge.source == vertex.vertex_id:
                        yield edge.target
                    elif edge.target == vertex.vertex_id:
                        yield edge.source
