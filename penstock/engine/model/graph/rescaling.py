"""The JobGraph of a job at another parallelism. Pure.

A graph is always made of the submitted one, so that an edge that was changed for one parallelism is as the program has
it at the next. Source: Flink VertexParallelismStore, ForwardEdgesAdapter. Differs: an edge that cannot be changed
without breaking a keyed stream is refused here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.engine.model.graph.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex
from penstock.engine.model.graph.partitioning import ShipStrategy, pattern_of
from penstock.engine.model.ids import DataSetId, VertexId


def rescaled(submitted: JobGraph, parallelism: Mapping[VertexId, int]) -> JobGraph:
    """Return a copy of the graph in which the named vertices have this parallelism. The others have that of the program.

    A forward edge whose ends differ hands its records to all consumers in turn. The max parallelism never changes.
    """
    found = {
        vertex_id: parallelism.get(vertex_id, vertex.parallelism)
        for vertex_id, vertex in submitted.vertices.items()
    }
    edges = {
        edge.data_set_id: _edge(edge, found)
        for vertex in submitted.vertices.values()
        for edge in vertex.inputs
    }
    vertices = {
        vertex_id: replace(
            vertex,
            parallelism=found[vertex_id],
            inputs=[_edge(edge, found) for edge in vertex.inputs],
            outputs=[_data_set(data_set, edges) for data_set in vertex.outputs],
        )
        for vertex_id, vertex in submitted.vertices.items()
    }
    return replace(submitted, vertices=vertices)


def parallelism_of(job_graph: JobGraph) -> dict[VertexId, int]:
    """Return the parallelism of each vertex."""
    return {vertex_id: one.parallelism for vertex_id, one in job_graph.vertices.items()}


def untouched(job_graph: JobGraph, changed: Collection[VertexId]) -> frozenset[VertexId]:
    """Return the vertices that no edges, in whatever direction, join with one that changes."""
    joined: dict[VertexId, set[VertexId]] = {one: set() for one in job_graph.vertices}
    for vertex in job_graph.vertices.values():
        for edge in vertex.inputs:
            joined[edge.source].add(vertex.vertex_id)
            joined[vertex.vertex_id].add(edge.source)
    reached = set(changed)
    waiting = list(reached)
    while waiting:
        found = joined[waiting.pop()] - reached
        reached |= found
        waiting += found
    return frozenset(job_graph.vertices) - reached


def refusals_of(submitted: JobGraph, parallelism: Mapping[VertexId, int]) -> list[str]:
    """Return why the job cannot run at this parallelism, one text each; empty: it can."""
    wanted = {
        vertex_id: parallelism.get(vertex_id, vertex.parallelism)
        for vertex_id, vertex in submitted.vertices.items()
    }
    return [
        *_outside_of_limits(submitted, wanted),
        *_broken_keyed_streams(submitted, wanted),
        *_parted_co_locations(submitted, wanted),
    ]


def are_ends_equal(submitted: JobGraph) -> list[tuple[VertexId, VertexId]]:
    """Return the pairs of vertices whose parallelism has to be the same: producer and consumer of a keyed stream that is
    continued.
    """
    return [
        (edge.source, vertex.vertex_id)
        for vertex in submitted.vertices.values()
        for edge in vertex.inputs
        if _continues_keys(edge, vertex)
    ]


def _outside_of_limits(submitted: JobGraph, wanted: Mapping[VertexId, int]) -> list[str]:
    return [
        f"vertex '{vertex.name}' was given parallelism {wanted[vertex_id]}, and it takes 1 to "
        f"{vertex.max_parallelism}, its max parallelism"
        for vertex_id, vertex in submitted.vertices.items()
        if not 1 <= wanted[vertex_id] <= vertex.max_parallelism
    ]


def _broken_keyed_streams(submitted: JobGraph, wanted: Mapping[VertexId, int]) -> list[str]:
    return [
        f"vertex '{submitted.vertices[target].name}' continues with the keys of vertex "
        f"'{submitted.vertices[source].name}' without another key_by, so both need the same "
        f"parallelism, but they were given {wanted[target]} and {wanted[source]}. Give them the "
        "same, or put key_by between them"
        for source, target in are_ends_equal(submitted)
        if wanted[source] != wanted[target]
    ]


def _parted_co_locations(submitted: JobGraph, wanted: Mapping[VertexId, int]) -> list[str]:
    groups: dict[str, list[JobVertex]] = {}
    for vertex in submitted.vertices.values():
        if vertex.co_location_group is not None:
            groups.setdefault(vertex.co_location_group, []).append(vertex)
    return [
        f"the vertices {', '.join(repr(one.name) for one in members)} share their places, so they "
        "need the same parallelism, but they were given "
        f"{', '.join(str(wanted[one.vertex_id]) for one in members)}"
        for members in groups.values()
        if len({wanted[one.vertex_id] for one in members}) > 1
    ]


def _continues_keys(edge: JobEdge, target: JobVertex) -> bool:
    is_keyed = any(operator.keys is not None for operator in target.operators)
    return is_keyed and edge.ship_strategy is ShipStrategy.FORWARD


def _edge(edge: JobEdge, parallelism: Mapping[VertexId, int]) -> JobEdge:
    is_equal = parallelism[edge.source] == parallelism[edge.target]
    if edge.ship_strategy is not ShipStrategy.FORWARD or is_equal:
        return edge
    strategy = ShipStrategy.REBALANCE
    return replace(edge, ship_strategy=strategy, pattern=pattern_of(strategy))


def _data_set(
    data_set: IntermediateDataSet, edges: Mapping[DataSetId, JobEdge]
) -> IntermediateDataSet:
    edge = edges.get(data_set.data_set_id)
    return data_set if edge is None else replace(data_set, pattern=edge.pattern)
