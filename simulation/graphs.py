"""Random job graphs that are valid and not trivial. Knows no machine except the one that finds
regions.

Shapes: chains, joins, forks; point-wise and all-to-all edges; pipelined and blocking results; slot
sharing groups; co-location. Each graph has at least `REGIONS_MIN` pipelined regions and `TASKS_MIN`
tasks.
"""

from __future__ import annotations

from random import Random
from typing import Final

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.job_graph import (
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobType,
    JobVertex,
    OperatorInfo,
    ResultPartitionType,
)
from penstock.engine.model.graph.partitioning import DistributionPattern, ShipStrategy
from penstock.engine.model.ids import BlobKey, DataSetId, JobId, VertexId
from penstock.engine.model.slot_size import slot_size

REGIONS_MIN: Final = 2
TASKS_MIN: Final = 8
TASKS_MAX: Final = 16
_BLOB: Final = BlobKey("chain")
_SHIP: Final = {
    DistributionPattern.POINTWISE: ShipStrategy.RESCALE,
    DistributionPattern.ALL_TO_ALL: ShipStrategy.HASH,
}


def random_graph(draw: Random, job_id: JobId) -> JobGraph:
    """Draw graphs until one is suitable."""
    while True:
        graph = _try(draw, job_id)
        tasks = sum(vertex.parallelism for vertex in graph.vertices.values())
        if not TASKS_MIN <= tasks <= TASKS_MAX:
            continue
        execution_graph = ExecutionGraph(graph)
        try:
            regions = Regions(execution_graph)
        except GraphError:  # Co-location across regions is invalid.
            continue
        if len(regions.regions) >= REGIONS_MIN and not _reads_inside(execution_graph, regions):
            return graph


def _reads_inside(graph: ExecutionGraph, regions: Regions) -> bool:
    """Whether a blocking result is read in its own region, where its reader could never start."""
    return any(
        regions.of(partition.producer) is regions.of(reader)
        for group in graph.consumed_groups
        if group.result_type.is_blocking
        for partition in group.partitions
        for reader in group.consumers.vertices
    )


def _try(draw: Random, job_id: JobId) -> JobGraph:
    is_batch = draw.random() < 0.5
    job_type = JobType.BATCH if is_batch else JobType.STREAMING
    graph = JobGraph(job_id, f"job of {job_id}", job_type, blobs={_BLOB: b"chain"})
    groups = draw.choice((1, 1, 2, 3))
    base = draw.choice((2, 3, 4))
    count = draw.randint(2, 5)
    for place in range(count):
        name = VertexId(f"v{place}")
        parallelism = base if draw.random() < 0.6 else draw.randint(1, 4)
        group = f"group-{draw.randrange(groups)}"
        graph.vertices[name] = JobVertex(
            name, f"Op{place}", parallelism, 128, chain_blob=_BLOB, slot_sharing_group=group
        )
        has_coordinator = place == 0  # The source.
        operator = OperatorInfo(place, f"Op{place}", name, has_coordinator=has_coordinator)
        graph.vertices[name].operators = (operator,)
    for place in range(1, count):
        _connect(draw, graph, place, is_batch=is_batch)
    if draw.random() < 0.2:
        _co_locate(draw, graph)
    if draw.random() < 0.2:  # One group asks for cores, so its TaskManagers have that size.
        group = next(iter(graph.vertices.values())).slot_sharing_group
        graph.slot_sizes[group] = slot_size({"cpu": 2})
    return graph


def _connect(draw: Random, graph: JobGraph, place: int, *, is_batch: bool) -> None:
    """Give a vertex its inputs: one or two earlier vertices, or none, which makes it a source."""
    if draw.random() < 0.15:
        return
    sources = draw.sample(range(place), min(place, draw.choice((1, 1, 1, 2))))
    down = graph.vertices[VertexId(f"v{place}")]
    for index, source in enumerate(sources):
        up = graph.vertices[VertexId(f"v{source}")]
        pattern = draw.choice(
            (DistributionPattern.POINTWISE, DistributionPattern.POINTWISE, DistributionPattern.ALL_TO_ALL)
        )  # fmt: skip
        result_type = ResultPartitionType.PIPELINED_BOUNDED
        if is_batch and draw.random() < 0.6:
            result_type = ResultPartitionType.BLOCKING
        data_set = DataSetId(f"v{source}-v{place}")
        up.outputs.append(IntermediateDataSet(data_set, up.vertex_id, result_type, pattern))
        down.inputs.append(
            JobEdge(data_set, up.vertex_id, down.vertex_id, pattern, _SHIP[pattern], index)
        )


def _co_locate(draw: Random, graph: JobGraph) -> None:
    """Co-locate two vertices of one parallelism and one sharing group. The graph is rejected later
    if no pipelined edges join them.
    """
    pairs = [
        (one, other)
        for one in graph.vertices.values()
        for other in graph.vertices.values()
        if one.name < other.name and one.parallelism == other.parallelism
    ]
    if pairs:
        one, other = draw.choice(pairs)
        other.slot_sharing_group = one.slot_sharing_group
        one.co_location_group = other.co_location_group = "together"
