"""Job graphs for tests, written as names and edges."""

from penstock.engine.model.graph.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobType,
    JobVertex,
    ResultPartitionType,
)
from penstock.engine.model.graph.partitioning import DistributionPattern, ShipStrategy
from penstock.engine.model.ids import BlobKey, DataSetId, JobId, VertexId

A2A = DistributionPattern.ALL_TO_ALL
POINTWISE = DistributionPattern.POINTWISE
PIPELINED = ResultPartitionType.PIPELINED_BOUNDED
BLOCKING = ResultPartitionType.BLOCKING


def job_graph(
    vertices: dict[str, int],
    edges: list[tuple],
    *,
    groups: dict[str, str] | None = None,
    co_location: dict[str, str] | None = None,
    job_type: JobType = JobType.STREAMING,
) -> JobGraph:
    """`edges`: (from, to, pattern, type); the last two may be left out."""
    graph = JobGraph(JobId("job"), "test job", job_type)
    for name, parallelism in vertices.items():
        graph.vertices[VertexId(name)] = JobVertex(
            VertexId(name),
            name,
            parallelism,
            128,
            chain_blob=BlobKey("blob"),
            slot_sharing_group=(groups or {}).get(name, "default"),
            co_location_group=(co_location or {}).get(name),
        )
    for place, (source, target, *rest) in enumerate(edges):
        pattern = rest[0] if rest else POINTWISE
        result_type = rest[1] if len(rest) > 1 else PIPELINED
        data_set_id = DataSetId(f"{source}-{target}-{place}")
        up, down = graph.vertices[VertexId(source)], graph.vertices[VertexId(target)]
        up.outputs.append(IntermediateDataSet(data_set_id, up.vertex_id, result_type, pattern))
        down.inputs.append(
            JobEdge(data_set_id, up.vertex_id, down.vertex_id, pattern, ShipStrategy.RESCALE)
        )
    return graph


def word_count() -> JobGraph:
    """Source 1, FlatMap 2, KeyAgg->Sink 2."""
    return job_graph(
        {"Source": 1, "FlatMap": 2, "KeyAggSink": 2},
        [("Source", "FlatMap"), ("FlatMap", "KeyAggSink", A2A)],
    )


def figure() -> JobGraph:
    """Source 4, Map 4, Reduce 3: the figure in Flink's documentation of scheduling."""
    return job_graph(
        {"Source": 4, "Map": 4, "Reduce": 3},
        [("Source", "Map"), ("Map", "Reduce", A2A)],
    )
