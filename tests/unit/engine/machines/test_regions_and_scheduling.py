"""Regions, scheduling and failover, by docs/spec/scheduling.md#region-by-region,
docs/spec/failover.md#tasks-to-restart.
"""

import pytest

from penstock.engine.machines.execution.execution import ExecutionEvent as E
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.execution.regions import Regions, strongly_connected
from penstock.engine.machines.failover import RestartAll, RestartRegions
from penstock.engine.machines.scheduling.scheduling import PipelinedRegionScheduling
from penstock.engine.model.errors import BrokenInvariant, GraphError
from penstock.engine.model.graph.job_graph import ResultPartitionType
from tests.tools.machines.job_graphs import A2A, BLOCKING, PIPELINED, POINTWISE, figure, job_graph

HYBRID = ResultPartitionType.HYBRID_FULL


def regions_of(vertices: dict, edges: list, **more) -> list[list[str]]:
    graph = ExecutionGraph(job_graph(vertices, edges, **more))
    return [list(map(str, region.vertices)) for region in Regions(graph).regions]


@pytest.mark.parametrize(
    ("edges", "count"),
    [
        ([("A", "B")], 2),
        ([("A", "B", A2A)], 1),
        ([("A", "B", A2A, BLOCKING)], 4),
        ([("A", "B", POINTWISE, HYBRID)], 4),
        ([("A", "B", POINTWISE, ResultPartitionType.PIPELINED_APPROXIMATE)], 4),
        ([("A", "B"), ("A", "B", A2A, BLOCKING)], 1),
    ],
)
def test_regions_of_two_by_two(edges: list, count: int) -> None:
    assert len(regions_of({"A": 2, "B": 2}, edges)) == count


def test_pointwise_narrowing_joins_the_producers_of_one_consumer() -> None:
    assert regions_of({"A": 4, "B": 2}, [("A", "B")]) == [
        ["A[0]", "A[1]", "B[0]"],
        ["A[2]", "A[3]", "B[1]"],
    ]


def test_regions_that_wait_for_each_other_are_merged() -> None:
    edges = [
        ("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"),
        ("A", "D", POINTWISE, BLOCKING),
    ]  # fmt: skip
    assert len(regions_of({"A": 2, "B": 2, "C": 2, "D": 2}, edges)) == 2


def test_co_location_across_regions_is_refused() -> None:
    with pytest.raises(GraphError, match="same pipelined region"):
        regions_of({"A": 1, "B": 1}, [], co_location={"A": "c", "B": "c"})


def test_strong_components() -> None:
    found = strongly_connected({1: [2], 2: [3], 3: [1, 4], 4: [5], 5: [4], 6: []})
    assert {frozenset(c) for c in found} == {
        frozenset({1, 2, 3}),
        frozenset({4, 5}),
        frozenset({6}),
    }


class Bench:
    """A graph with its strategy, driven by hand."""

    def __init__(self, vertices: dict, edges: list) -> None:
        self.graph = ExecutionGraph(job_graph(vertices, edges))
        self.regions = Regions(self.graph)
        self.strategy = PipelinedRegionScheduling(self.graph, self.regions)
        self.failover = RestartRegions(self.regions)

    def vertex(self, name: str) -> ExecutionVertex:
        return next(v for v in self.graph.vertices if str(v) == name)

    def deploy(self, calls: list[list[ExecutionVertex]]) -> list[list[str]]:
        for vertex in (v for call in calls for v in call):
            vertex.execution.apply(E.SCHEDULE, 0)
            vertex.execution.apply(E.DEPLOY, 0)
            for partition in vertex.partitions:
                partition.is_available = True
        return [list(map(str, call)) for call in calls]

    def start(self) -> list[list[str]]:
        return self.deploy(self.strategy.start())

    def finish(self, name: str) -> list[list[str]]:
        vertex = self.vertex(name)
        vertex.execution.apply(E.REPORT_FINISHED, 0)
        self.graph.mark_finished(vertex)
        return self.deploy(self.strategy.on_finished(vertex))

    def restart_set(self, name: str, unreadable: object = None) -> list[str]:
        return list(map(str, self.failover.to_restart([self.vertex(name)], unreadable)))


def test_a_join_is_scheduled_by_the_input_that_finishes_last() -> None:
    bench = Bench({"A": 1, "B": 1, "C": 1}, [("A", "C", A2A, BLOCKING), ("B", "C", A2A, BLOCKING)])
    assert bench.start() == [["A[0]"], ["B[0]"]]
    assert bench.finish("B[0]") == []
    assert bench.finish("A[0]") == [["C[0]"]]


def test_a_pointwise_consumer_starts_when_its_own_group_is_complete() -> None:
    bench = Bench({"A": 2, "B": 2}, [("A", "B", POINTWISE, BLOCKING)])
    bench.start()
    assert bench.finish("A[1]") == [["B[1]"]]


def test_readers_of_hybrid_results_start_with_their_producers() -> None:
    bench = Bench({"A": 1, "B": 1}, [("A", "B", POINTWISE, HYBRID)])
    assert bench.start() == [["A[0]"], ["B[0]"]]


def test_a_restarted_region_waits_for_its_input_again() -> None:
    bench = Bench({"A": 1, "B": 1}, [("A", "B", POINTWISE, BLOCKING)])
    bench.start()
    bench.finish("A[0]")
    both = [bench.vertex("A[0]"), bench.vertex("B[0]")]
    both[1].execution.apply(E.FAIL, 0)
    for vertex in both:
        vertex.reset()
    assert bench.deploy(bench.strategy.restart(both)) == [["A[0]"]]
    assert bench.finish("A[0]") == [["B[0]"]]


def test_scheduling_what_is_scheduled_already_is_a_bug() -> None:
    bench = Bench({"A": 1}, [])
    bench.vertex("A[0]").execution.apply(E.SCHEDULE, 0)
    with pytest.raises(BrokenInvariant, match="not CREATED"):
        bench.strategy.start()


def test_a_failed_consumer_restarts_alone_while_its_inputs_are_intact() -> None:
    bench = Bench({"A": 2, "B": 2}, [("A", "B", A2A, BLOCKING)])
    bench.start()
    bench.finish("A[0]")
    bench.finish("A[1]")
    assert bench.restart_set("B[0]") == ["B[0]"]


def test_a_lost_result_pulls_its_producer_and_all_consumers_in() -> None:
    bench = Bench({"A": 2, "B": 2}, [("A", "B", A2A, BLOCKING)])
    bench.start()
    bench.finish("A[0]")
    bench.finish("A[1]")
    bench.vertex("A[1]").partitions[0].is_available = False
    assert bench.restart_set("B[0]") == ["A[1]", "B[0]", "B[1]"]


def test_a_failed_producer_restarts_with_its_consumers_that_were_scheduled() -> None:
    bench = Bench({"A": 2, "B": 2}, [("A", "B", POINTWISE, BLOCKING)])
    bench.start()
    assert bench.restart_set("A[0]") == ["A[0]"]
    bench.finish("A[0]")
    assert bench.restart_set("A[0]") == ["A[0]", "B[0]"]


def test_hybrid_selective_results_always_pull_the_producer_in() -> None:
    kind = ResultPartitionType.HYBRID_SELECTIVE
    bench = Bench({"A": 1, "B": 1}, [("A", "B", POINTWISE, kind)])
    bench.start()
    assert bench.restart_set("B[0]") == ["A[0]", "B[0]"]


def test_full_failover_restarts_everything() -> None:
    graph = ExecutionGraph(figure())
    assert RestartAll(graph).to_restart([graph.vertices[0]]) == graph.vertices
    assert PIPELINED.must_be_pipelined_consumed
