"""One topology through the real scheduler, in a process of its own; prints one JSON object.

python -m benchmarks.workloads.scheduler_job '{"pattern": "ALL_TO_ALL", "vertices": 2, "parallelism": 1000}'

Seconds per phase and part, MiB of memory. The process is new, so that nothing is warm and the
largest resident size is that of this run.
"""

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workloads.null_cluster import NullCluster
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.failover import RestartRegions
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
from penstock.engine.model.states import ExecutionState, JobStatus

SLOTS_EACH = 10


def line_of_vertices(
    pattern: DistributionPattern,
    vertices: int,
    parallelism: int,
    result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
) -> JobGraph:
    """vertex 0 -> vertex 1 -> ..., every edge of the same pattern and type."""
    job_type = JobType.BATCH if result_type.is_blocking else JobType.STREAMING
    graph = JobGraph(JobId("0" * 32), f"{vertices} x {parallelism}", job_type)
    for number in range(vertices):
        graph.vertices[_vertex_id(number)] = JobVertex(
            _vertex_id(number),
            f"Vertex {number}",
            parallelism,
            max_parallelism=32_768,
            chain_blob=BlobKey(f"{number:064x}"),
            is_source=number == 0,
        )
    for number in range(vertices - 1):
        up, down = graph.vertices[_vertex_id(number)], graph.vertices[_vertex_id(number + 1)]
        data_set_id = DataSetId(f"{number + 1_000_000:032x}")
        up.outputs.append(IntermediateDataSet(data_set_id, up.vertex_id, result_type, pattern))
        is_all = pattern is DistributionPattern.ALL_TO_ALL
        strategy = ShipStrategy.REBALANCE if is_all else ShipStrategy.FORWARD
        down.inputs.append(JobEdge(data_set_id, up.vertex_id, down.vertex_id, pattern, strategy))
    return graph


def run(pattern: DistributionPattern, vertices: int, parallelism: int, *, is_spread: bool) -> dict:
    """Every phase once."""
    graph = line_of_vertices(pattern, vertices, parallelism)
    imported_mib = _resident_mib()
    phases = Phases()
    cluster = phases.time("initialise", lambda: NullCluster(graph, SLOTS_EACH, is_spread=is_spread))
    for phase, action in (("deploy", cluster.start), ("run", cluster.run)):
        phases.time(phase, action, cluster.seconds)
    tasks = cluster.job.graph.vertices
    _expect(cluster, vertices * parallelism)
    running_mib = _resident_mib()

    strategy = RestartRegions(Regions(cluster.job.graph))
    restarted = phases.time("restart set", lambda: strategy.to_restart([tasks[0]]))
    is_one_region = pattern is DistributionPattern.ALL_TO_ALL
    assert len(restarted) == (len(tasks) if is_one_region else vertices)

    failed = tasks[0].execution.attempt_id
    for phase, action in (
        ("fail and cancel", lambda: (cluster.fail(failed), cluster.end_canceled())),
        ("deploy again", cluster.restart),
        ("run again", cluster.run),
    ):
        phases.time(phase, action, cluster.seconds)
    _expect(cluster, vertices * parallelism)
    channels = parallelism if is_one_region else 1
    deployed_twice = parallelism if is_one_region else 1
    assert cluster.channels == (parallelism + deployed_twice) * (vertices - 1) * channels
    assert tasks[0].execution.attempt_id.attempt == 1
    return {
        "phases": phases.seconds,
        "cpu": phases.cpu_seconds,
        "parts": phases.parts,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "held_mib": running_mib - imported_mib,
        "imported_mib": imported_mib,
        "tasks": len(tasks),
        "restarted": len(restarted),
        "deployment_bytes": cluster.wire_bytes / cluster.deployed,
    }


class Phases:
    """Seconds by the clock and of the processor per phase, and by the clock per part of a phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.parts: dict[str, dict[str, float]] = {}

    def time(self, phase: str, action: Callable[[], Any], parts: Counter | None = None) -> Any:
        if parts is not None:
            parts.clear()
        started, cpu_started = time.perf_counter(), time.process_time()
        done = action()
        self.seconds[phase] = time.perf_counter() - started
        self.cpu_seconds[phase] = time.process_time() - cpu_started
        self.parts[phase] = dict(parts or {})
        return done


def _expect(cluster: NullCluster, tasks: int) -> None:
    """Everything runs, nothing is left over."""
    graph = cluster.job.graph
    running = sum(vertex.state is ExecutionState.RUNNING for vertex in graph.vertices)
    assert (running, cluster.job.status) == (tasks, JobStatus.RUNNING)


def _vertex_id(number: int) -> VertexId:
    return VertexId(f"{number:032x}")


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(
        json.dumps(
            run(
                DistributionPattern(wanted["pattern"]),
                wanted["vertices"],
                wanted["parallelism"],
                is_spread=wanted.get("is_spread", False),
            )
        )
    )
