"""The scheduler's benchmark does what it says; and what it does grows with tasks, not with edges."""

import gc
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.measures import scheduler
from benchmarks.workloads import scheduler_job
from benchmarks.workloads.null_cluster import NullCluster
from benchmarks.workloads.scheduler_job import SLOTS_EACH, line_of_vertices
from penstock.engine.machines.checkpoints.restore import shared_out
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.failover import RestartRegions
from penstock.engine.model.checkpoints import InlineHandle, KeyedStateHandle
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.graph.partitioning import DistributionPattern
from penstock.engine.model.key_groups import key_group_range
from penstock.engine.model.messages import TaskReported, TaskStateChanged
from penstock.engine.model.states import ExecutionState
from tests.tools.machines.generation_bench import GenerationBench

PATTERNS = [
    DistributionPattern.ALL_TO_ALL,
    pytest.param(DistributionPattern.POINTWISE, marks=pytest.mark.long),
]
SMALL, MIDDLE, LARGE = 50, 100, 200


def life_of_a_job(
    pattern: DistributionPattern, parallelism: int, *, is_spread: bool
) -> NullCluster:
    """Built, deployed, run; one task fails; deployed and run again."""
    job_graph = line_of_vertices(pattern, 2, parallelism)
    cluster = NullCluster(job_graph, SLOTS_EACH, is_spread=is_spread)
    cluster.start()
    cluster.run()
    failed = cluster.job.state.graph.vertices[0]
    RestartRegions(Regions(cluster.job.state.graph)).to_restart([failed])
    cluster.fail(failed.execution.attempt_id)
    cluster.end_canceled()
    cluster.restart()
    cluster.run()
    return cluster


def life_of_a_batch_job(pattern: DistributionPattern, parallelism: int) -> NullCluster:
    """Producers run and finish, then consumers; one of them fails, and runs again."""
    job_graph = line_of_vertices(pattern, 2, parallelism, ResultPartitionType.BLOCKING)
    cluster = NullCluster(job_graph, SLOTS_EACH, is_spread=False)
    cluster.start()
    cluster.run()
    cluster.finish()
    cluster.run()
    cluster.fail(cluster.job.state.graph.vertices[-1].execution.attempt_id)
    cluster.restart()
    cluster.run()
    cluster.finish()
    assert cluster.job.state.graph.is_finished
    assert cluster.deployed == 2 * parallelism + 1
    return cluster


def operations_of(action: Callable[[], object]) -> int:
    """Byte codes that Python carries out."""
    count = 0

    def trace(frame, event, _argument):
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("is_spread", [False, True])
def test_the_work_grows_with_the_tasks_and_not_with_the_edges(pattern, is_spread) -> None:
    small, middle, large = (
        operations_of(lambda size=size: life_of_a_job(pattern, size, is_spread=is_spread))
        for size in (SMALL, MIDDLE, LARGE)
    )
    # twice the tasks: twice what came on top. Work per edge would make it four times.
    assert (large - middle) / (middle - small) < 2.15


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_work_of_a_batch_job_grows_with_the_tasks_and_not_with_the_edges(pattern) -> None:
    small, middle, large = (
        operations_of(lambda size=size: life_of_a_batch_job(pattern, size))
        for size in (SMALL, MIDDLE, LARGE)
    )
    assert (large - middle) / (middle - small) < 2.15


def test_the_work_of_a_report_does_not_grow_with_the_job() -> None:
    def work(parallelism: int) -> int:
        bench = GenerationBench(graph=line_of_vertices(PATTERNS[0], 2, parallelism))
        bench.begin(*(f"tm-{number}" for number in range(parallelism)))
        assert {str(vertex.state) for vertex in bench.job.graph.vertices} == {"RUNNING"}
        attempt_id = bench.job.graph.vertices[0].execution.attempt_id
        known = TaskReported(TaskStateChanged(attempt_id, ExecutionState.RUNNING), bench.now_ms)
        bench.master.step(known)  # what is made once
        return operations_of(lambda: bench.master.step(known))

    assert work(LARGE) == work(SMALL)


def test_the_work_of_a_restore_grows_with_the_subtasks_and_not_with_their_square() -> None:
    def work(parallelism: int) -> int:
        (vertex, *_) = line_of_vertices(PATTERNS[0], 1, parallelism).vertices.values()
        groups = [
            key_group_range(vertex.max_parallelism, parallelism, i) for i in range(parallelism)
        ]
        handles = [KeyedStateHandle(*one, (), InlineHandle(b"", 0)) for one in groups]
        assert shared_out(handles, vertex, None) == [(one,) for one in handles]
        return operations_of(lambda: shared_out(handles, vertex, None))

    small, middle, large = (work(parallelism) for parallelism in (SMALL, MIDDLE, LARGE))
    assert (large - middle) / (middle - small) < 2.15


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_objects_grow_with_the_tasks_and_not_with_the_edges(pattern) -> None:
    def objects(size: int) -> int:
        gc.collect()
        before = len(gc.get_objects())
        cluster = life_of_a_job(pattern, size, is_spread=True)
        gc.collect()
        held = len(gc.get_objects()) - before
        assert cluster.deployed  # it is held until here
        return held

    life_of_a_job(pattern, SMALL, is_spread=True)  # what is made once
    small, middle, large = (objects(size) for size in (SMALL, MIDDLE, LARGE))
    assert (large - middle) / (middle - small) < 2.15


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_phase_of_the_benchmark_runs(pattern) -> None:
    done = scheduler_job.run(pattern, 3, 20, is_spread=True)
    assert set(scheduler.RESTART) | {"initialise", "deploy", "run", "restart set"} == set(
        done["phases"]
    )
    assert done["tasks"] == 60
    figures = scheduler.figures(
        {"pattern": pattern.value, "vertices": 2, "parallelism": 10_000, "is_spread": False},
        [done] * 3,
    )
    assert Counter(figure.unit for figure in figures) == {"s": 5, "MiB": 1}
    has_peer = pattern is DistributionPattern.ALL_TO_ALL
    assert sum(bool(figure.floors) for figure in figures) == (4 if has_peer else 0)


def test_all_consumers_are_deployed_with_one_list_of_producers() -> None:
    cluster = NullCluster(
        line_of_vertices(DistributionPattern.ALL_TO_ALL, 2, 30), SLOTS_EACH, is_spread=False
    )
    lists = []
    deploy = cluster.take
    cluster.take = lambda tm, deployment: (
        lists.extend(gate.channels for gate in deployment.gates),
        deploy(tm, deployment),
    )
    cluster.start()
    assert len(lists) == 30
    assert len(set(lists)) == 1
    (group,) = cluster.job.state.graph.consumed_groups
    assert group.descriptors == lists[0]
    assert [str(d.location.resource_id) for d in lists[0]] == [
        f"tm-{1 + n // SLOTS_EACH}" for n in range(30)
    ]
