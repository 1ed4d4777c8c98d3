"""Orders of a graph: topological order of stream nodes and of job vertices.

Does not know parallelism or state. Source: Flink JobGraph.getVerticesSortedTopologicallyFromSources; differs: no
recursion, so that a chain of thousands of vertices does not exceed Python's recursion limit.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.engine.model.ids import DataSetId, VertexId

Node = TypeVar("Node", bound=Hashable)


def topological_order(
    nodes: Sequence[Node],
    inputs_of: Callable[[Node], Iterable[Node]],
    outputs_of: Callable[[Node], Iterable[Node]],
) -> list[Node]:
    """Sources first, in their given order; then depth first along the outputs.

    A node is placed at the first edge that reaches it when all its inputs are placed, and its own
    outputs are followed before its siblings: this is the order that slots and regions depend on.

    Raises: GraphError: a cycle; the text names the nodes that could not be placed.
    """
    waiting_for = {node: len(set(inputs_of(node))) for node in nodes}
    order = [node for node in nodes if not waiting_for[node]]
    placed = set(order)
    for node in order:
        _tell_outputs(node, outputs_of, waiting_for)
    for source in tuple(order):
        stack: list[Iterator[Node]] = [iter(outputs_of(source))]
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
            elif following not in placed and not waiting_for[following]:
                order.append(following)
                placed.add(following)
                _tell_outputs(following, outputs_of, waiting_for)
                stack.append(iter(outputs_of(following)))
    if len(order) != len(nodes):
        left = ", ".join(str(node) for node in nodes if node not in placed)
        raise GraphError(
            f"the dataflow has a cycle: {left} cannot be ordered, because each of them waits for "
            "another one. Penstock runs only programs without cycles; remove the feedback edge."
        )
    return order


def _tell_outputs(
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
