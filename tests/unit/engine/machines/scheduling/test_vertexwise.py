"""Scheduling subtask by subtask, by docs/spec/scheduling.md#subtask-by-subtask."""

import pytest

from penstock.engine.machines.execution.execution import ExecutionEvent as E
from penstock.engine.machines.execution.execution_graph import ExecutionGraph, ExecutionVertex
from penstock.engine.machines.job_state.job_settings import job_settings_of
from penstock.engine.machines.scheduling.scheduling import VertexwiseScheduling
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobType, ResultPartitionType
from penstock.engine.model.messages import DeployTask
from penstock.engine.model.options.scheduling import ConsumeConstraint
from tests.tools.machines.job_bench import Bench as JobBench
from tests.tools.machines.job_graphs import A2A, BLOCKING, POINTWISE, job_graph

HYBRID = ResultPartitionType.HYBRID_FULL
C = ConsumeConstraint


class Bench:
    """A graph with its strategy, driven by hand."""

    def __init__(self, vertices, edges, constraint=C.UNFINISHED_PRODUCERS):
        self.graph = ExecutionGraph(job_graph(vertices, edges))
        self.strategy = VertexwiseScheduling(self.graph, constraint)

    def vertex(self, name) -> ExecutionVertex:
        return next(v for v in self.graph.vertices if str(v) == name)

    def deploy(self, calls):
        for vertex in (v for call in calls for v in call):
            vertex.execution.apply(E.SCHEDULE, 0)
            vertex.execution.apply(E.DEPLOY, 0)
        return [[str(v) for v in call] for call in calls]

    def start(self):
        return self.deploy(self.strategy.start())

    def finish(self, name):
        vertex = self.vertex(name)
        vertex.execution.apply(E.REPORT_FINISHED, 0)
        self.graph.mark_finished(vertex)
        return self.deploy(self.strategy.on_finished(vertex))


def test_subtasks_go_one_by_one_and_consumers_wait_for_their_whole_input():
    bench = Bench({"A": 2, "B": 2}, [("A", "B", A2A, BLOCKING)])
    assert bench.start() == [["A[0]"], ["A[1]"]]
    assert bench.finish("A[1]") == []
    assert bench.finish("A[0]") == [["B[0]"], ["B[1]"]]


def test_a_pointwise_consumer_waits_for_its_own_producer_only():
    bench = Bench({"A": 2, "B": 2}, [("A", "B", POINTWISE, BLOCKING)])
    bench.start()
    assert bench.finish("A[1]") == [["B[1]"]]


def test_a_join_waits_for_both_sides():
    bench = Bench({"A": 1, "B": 1, "J": 1}, [("A", "J", A2A, BLOCKING), ("B", "J", A2A, BLOCKING)])
    bench.start()
    assert bench.finish("A[0]") == []
    assert bench.finish("B[0]") == [["J[0]"]]


@pytest.mark.parametrize(
    ("constraint", "at_start", "after_one", "after_both"),
    [
        (C.UNFINISHED_PRODUCERS, [["A[0]"], ["A[1]"], ["B[0]"]], [], []),
        (C.ONLY_FINISHED_PRODUCERS, [["A[0]"], ["A[1]"]], [["B[0]"]], []),
        (C.ALL_PRODUCERS_FINISHED, [["A[0]"], ["A[1]"]], [], [["B[0]"]]),
    ],
)
def test_hybrid_results_are_read_as_the_constraint_says(
    constraint, at_start, after_one, after_both
):
    bench = Bench({"A": 2, "B": 1}, [("A", "B", A2A, HYBRID)], constraint)
    assert bench.start() == at_start
    assert bench.finish("A[0]") == after_one
    assert bench.finish("A[1]") == after_both


def test_blocking_inputs_are_complete_under_every_constraint():
    for constraint in C:
        bench = Bench({"A": 2, "B": 1}, [("A", "B", A2A, BLOCKING)], constraint)
        bench.start()
        assert bench.finish("A[0]") == []
        assert bench.finish("A[1]") == [["B[0]"]]


def test_a_restarted_subtask_goes_again_when_its_input_is_there():
    bench = Bench({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)])
    bench.start()
    bench.finish("A[0]")
    failed = bench.vertex("B[0]")
    failed.execution.apply(E.FAIL, 0)
    failed.reset()
    assert bench.deploy(bench.strategy.restart([failed])) == [["B[0]"]]


def test_batch_jobs_are_scheduled_so_when_they_ask_for_it():
    settings = job_settings_of(Settings({"jobmanager.scheduler": "AdaptiveBatch"}))
    edges = [("A", "B", POINTWISE)]
    for job_type, deployed in ((JobType.BATCH, 1), (JobType.STREAMING, 0)):
        bench = JobBench(
            job_graph({"A": 1, "B": 1}, edges, job_type=job_type, groups={"B": "b"}), settings
        )
        bench.start()
        effects = bench.offer("tm1", 1)
        assert len([e for e in effects if isinstance(e, DeployTask)]) == deployed


def test_other_names_are_refused():
    with pytest.raises(ConfigurationError, match="AdaptiveBatch"):
        job_settings_of(Settings({"jobmanager.scheduler": "Fastest"}))
    key = "jobmanager.partition.hybrid.partition-data-consume-constraint"
    with pytest.raises(ConfigurationError, match="ALL_PRODUCERS_FINISHED"):
        job_settings_of(Settings({key: "SOME"}))
