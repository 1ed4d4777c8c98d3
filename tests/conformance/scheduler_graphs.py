"""Areas about graphs: topology, groups, regions, slot sharing, scheduling, failover,
distribution."""

from typing import Any

from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    partition_ranges,
    subpartition_of,
)
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.failover import RestartRegions
from penstock.engine.machines.scheduling.scheduling import PipelinedRegionScheduling
from penstock.engine.machines.slots.slot_sharing import local_input_preferred, task_balanced
from penstock.engine.model.graph.partitioning import DistributionPattern
from penstock.engine.model.states import ExecutionState
from tests.conformance.dynamic_subpartitions import dynamic_subpartitions
from tests.conformance.scheduler_graph import execution_graph_of, names, task, tasks

E = ExecutionEvent


def topology(given: dict[str, Any]) -> dict[str, Any]:
    return {"order": names(execution_graph_of(given["graph"]).vertices)}


def edge_groups(given: dict[str, Any]) -> dict[str, Any]:
    graph = execution_graph_of(given["graph"])
    return {
        "num_consumed_partition_groups": len(graph.consumed_groups),
        "num_consumer_vertex_groups": len({id(g.consumers) for g in graph.consumed_groups}),
        "consumed_producers": {
            str(vertex): [
                [str(partition.producer) for partition in group.partitions]
                for group in vertex.consumed_groups
            ]
            for vertex in graph.vertices
        },
    }


def region_computation(given: dict[str, Any]) -> dict[str, Any]:
    regions = Regions(execution_graph_of(given["graph"])).regions
    return {"num_regions": len(regions), "regions": [names(r.vertices) for r in regions]}


def slot_sharing(given: dict[str, Any]) -> dict[str, Any]:
    is_local = given["strategy"].startswith("LOCAL")
    strategy = local_input_preferred if is_local else task_balanced
    groups = strategy(execution_graph_of(given["graph"]))
    return {"num_groups": len(groups), "groups": [names(group.vertices) for group in groups]}


class Schedule:
    """A graph driven by the steps of a case. Each allocate-and-deploy call is recorded."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.graph: ExecutionGraph = execution_graph_of(given)
        self.regions = Regions(self.graph)
        self.strategy = PipelinedRegionScheduling(self.graph, self.regions)

    def step(self, text: str) -> list[list[str]]:
        word, _, rest = text.partition(" ")
        match word:
            case "start":
                return self._deploy(self.strategy.start())
            case "finish":
                calls: list[list[str]] = []
                for vertex in tasks(self.graph, rest):
                    calls += self._finish(vertex)
                return calls
            case "run":
                for vertex in self.graph.vertices:
                    self._run(vertex)
                return []
            case "lose":
                for vertex in tasks(self.graph, rest):
                    for partition in vertex.partitions:
                        partition.is_available = False
                return []
        raise ValueError(f"unknown step {text!r}")

    def _deploy(self, calls: list[list[ExecutionVertex]]) -> list[list[str]]:
        for vertices in calls:
            for vertex in vertices:
                vertex.execution.apply(E.SCHEDULE, 0)
                vertex.execution.apply(E.DEPLOY, 0)
                for partition in vertex.partitions:
                    partition.is_available = True
        return [names(vertices) for vertices in calls]

    def _finish(self, vertex: ExecutionVertex) -> list[list[str]]:
        vertex.execution.apply(E.REPORT_FINISHED, 0)
        self.graph.mark_finished(vertex)
        return self._deploy(self.strategy.on_finished(vertex))

    def _run(self, vertex: ExecutionVertex) -> None:
        if vertex.state is ExecutionState.DEPLOYING:
            vertex.execution.apply(E.REPORT_INITIALIZING, 0)
        if vertex.state is ExecutionState.INITIALIZING:
            vertex.execution.apply(E.REPORT_RUNNING, 0)


def region_scheduling(given: dict[str, Any]) -> dict[str, Any]:
    schedule = Schedule(given["graph"])
    return {"deployed_per_step": [schedule.step(step) for step in given["steps"]]}


def failover_region(given: dict[str, Any]) -> dict[str, Any]:
    schedule = Schedule(given["graph"])
    for step in given["steps_before"]:
        schedule.step(step)
    word, failed, *rest = given["failure"].split(" ")
    unreadable = None
    if word == "failpart":
        producer = task(schedule.graph, rest[0])
        consumer = task(schedule.graph, failed)
        unreadable = next(
            partition.partition_id
            for group in consumer.consumed_groups
            for partition in group.partitions
            if partition.producer is producer
        )
    vertex = task(schedule.graph, failed)
    restart = RestartRegions(schedule.regions).to_restart([vertex], unreadable)
    return {"restart": sorted(names(restart))}


def pointwise_mapping(given: dict[str, Any]) -> dict[str, Any]:
    pattern = DistributionPattern(given["pattern"])
    consumers = given["consumers"]
    subpartitions = given.get("num_subpartitions")
    found = []
    for span in partition_ranges(pattern, given["producers"], consumers):
        sharing = span.last_consumer - span.first_consumer + 1
        for consumer in range(span.first_consumer, span.last_consumer + 1):
            if subpartitions is not None:
                is_broadcast = bool(given.get("broadcast"))
                read = dynamic_subpartitions(
                    consumer, sharing, subpartitions, is_broadcast=is_broadcast
                )
            else:
                read = (subpartition_of(pattern, consumer, sharing),) * 2
            found.append({
                "consumer": consumer,
                "partitions": [span.first_partition, span.last_partition],
                "subpartitions": list(read),
            })
    return {"per_consumer": found}
