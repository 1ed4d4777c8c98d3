"""A case's graph as the product's objects, and tasks by the names that the cases use."""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.model.graph.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    ResultPartitionType,
)
from penstock.engine.model.graph.partitioning import DistributionPattern, ShipStrategy
from penstock.engine.model.ids import DataSetId, JobId, VertexId


def job_graph_of(given: dict[str, Any]) -> JobGraph:
    graph = JobGraph(JobId("case"), "case")
    for vertex in given["vertices"]:
        name = VertexId(vertex["name"])
        graph.vertices[name] = JobVertex(
            name,
            vertex["name"],
            vertex["parallelism"],
            32768,
            slot_sharing_group=vertex.get("slot_sharing_group") or "default",
            co_location_group=vertex.get("co_location_group"),
        )
    for place, edge in enumerate(given.get("edges", ())):
        up, down = graph.vertices[edge["from"]], graph.vertices[edge["to"]]
        pattern = DistributionPattern(edge["pattern"])
        data_set_id = DataSetId(f"{place}")
        result_type = ResultPartitionType(edge["result_type"])
        up.outputs.append(IntermediateDataSet(data_set_id, up.vertex_id, result_type, pattern))
        down.inputs.append(
            JobEdge(data_set_id, up.vertex_id, down.vertex_id, pattern, ShipStrategy.RESCALE)
        )
    return graph


def execution_graph_of(given: dict[str, Any]) -> ExecutionGraph:
    return ExecutionGraph(job_graph_of(given))


def names(vertices: Iterable[ExecutionVertex]) -> list[str]:
    return [str(vertex) for vertex in vertices]


def task(graph: ExecutionGraph, name: str) -> ExecutionVertex:
    return next(vertex for vertex in graph.vertices if str(vertex) == name)


def tasks(graph: ExecutionGraph, text: str) -> Iterator[ExecutionVertex]:
    """`A[0]+B[1]`."""
    return (task(graph, name.strip()) for name in text.split("+"))
