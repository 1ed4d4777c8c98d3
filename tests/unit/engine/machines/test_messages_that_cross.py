"""Bugs that the simulator found, in the smallest form that shows them."""

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.regions import Regions
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    ExecutionVertexId,
    JobId,
    ResourceId,
    VertexId,
)
from penstock.engine.model.messages import (
    AnswerOffers,
    FreeSlot,
    SlotFreed,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.job_bench import BROKEN, Bench, cancelled, deployed, statuses
from tests.tools.machines.job_graphs import A2A, BLOCKING, POINTWISE, job_graph

ME, JOB, A1 = ResourceId("tm"), JobId("j"), AllocationId("a1")
TASK = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)


def test_two_restarts_that_become_ready_at_once_end_in_one_running() -> None:
    """The TaskManager that both wait for is lost."""
    bench = Bench(job_graph({"A": 2, "B": 2}, [("A", "B")]))
    bench.start()
    bench.offer("tm1", 2)
    bench.run_all()
    for name in ("A[0]", "A[1]"):
        bench.report(name, S.FAILED, BROKEN)
        bench.fire("restart")
    effects = bench.lose("tm1")
    assert statuses(effects) == ["RUNNING"]
    assert [v.execution.attempt_id.attempt for v in bench.job.state.graph.vertices] == [1] * 4


def test_a_slot_that_its_task_manager_freed_by_itself_leaves_the_pool() -> None:
    """Our answer came after taskmanager.slot.timeout."""
    bench = Bench(job_graph({"A": 1, "B": 1}, [("A", "B")]))
    bench.start()
    assert set(deployed(bench.offer("tm1"))) == {"A[0]", "B[0]"}
    effects = bench.step(SlotFreed(ResourceId("tm1"), 0, AllocationId("tm1/0")))
    assert statuses(effects) == ["RESTARTING"]
    assert cancelled(effects) == 0, "nothing runs there"
    assert bench.job.failure.kind == "SlotLost"
    again = bench.offer("tm1")
    (answer,) = [e for e in again if isinstance(e, AnswerOffers)]
    assert answer.accepted == (), "an allocation that is over does not come back"
    assert statuses(bench.fire("restart")) == ["RUNNING"]
    assert deployed(bench.offer("tm2")) == {"A[0]": "tm2", "B[0]": "tm2"}


def test_a_slot_that_the_job_gave_back_may_be_freed() -> None:
    bench = Bench(job_graph({"A": 1}, []))
    bench.start()
    bench.offer("tm1")
    assert bench.step(SlotFreed(ResourceId("tm1"), 0, AllocationId("other"))) == []
    assert bench.job.status is JobStatus.RUNNING


def test_regions_that_wait_for_each_other_over_job_vertices_are_one() -> None:
    """A and C are joined by a pipeline, B stands between them with blocking edges."""
    edges = [("A", "C", A2A), ("A", "B", POINTWISE, BLOCKING), ("B", "C", POINTWISE, BLOCKING)]
    graph = ExecutionGraph(job_graph({"A": 2, "B": 2, "C": 2}, edges))
    assert len(Regions(graph).regions) == 1


def batch_bench() -> Bench:
    graph = job_graph(
        {"A": 1, "B": 1, "C": 1},
        [("A", "C", POINTWISE, BLOCKING), ("B", "C", POINTWISE, BLOCKING)],
        groups={"A": "a", "B": "b", "C": "c"},
        job_type=JobType.BATCH,
    )
    bench = Bench(graph, JobSettings(slot_idle_timeout_ms=1000))
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    bench.run_all()
    return bench


def idle(bench: Bench, now_ms: int) -> list[ResourceId]:
    """TaskManagers of the slots that are given back when the timer rings."""
    bench.now_ms = now_ms
    effects = bench.step(TimerFired("idle-slots", now_ms))
    return [e.resource_id for e in effects if isinstance(e, FreeSlot)]


def test_a_task_manager_with_results_that_are_to_be_read_keeps_a_slot() -> None:
    """It would be let go as idle, and the results with it."""
    bench = batch_bench()
    bench.finish("A[0]")
    assert idle(bench, 5000) == []
    bench.finish("B[0]")
    bench.offer("tm3")
    bench.run_all()
    bench.finish("C[0]")
    assert bench.job.status is JobStatus.RUNNING, "finalizing"
    assert idle(bench, 60_000) == ["tm1", "tm2"]


def test_the_report_of_a_task_that_found_no_slot_comes_too_late_to_matter() -> None:
    bench = Bench(job_graph({"A": 1}, []))
    bench.start()
    bench.offer("tm1")
    attempt_id = bench.vertex("A[0]").execution.attempt_id
    bench.step(SlotFreed(ResourceId("tm1"), 0, AllocationId("tm1/0")))
    report = TaskStateChanged(attempt_id, S.FAILED, BROKEN)
    assert bench.step(TaskReported(report, 1)) == []
