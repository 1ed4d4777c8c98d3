"""BatchMaster: the order of stages, attempts as the host has them, the ways in which a job ends.

Expectations: docs/spec/execution-graph.md#states-of-a-job, #states-of-an-attempt; a host retries
tasks by itself.
"""

from dataclasses import replace

import pytest

from penstock.engine.machines.batch import BatchMaster, Subpartitions
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.auto_parallelism import UNDECIDED, AutoParallelism
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.messages import ExecutionStateChanged, FailureInfo
from penstock.engine.model.messages.batch import (
    AttemptSeen,
    CancelBatch,
    CancelStage,
    CommitResults,
    ResultsCommitted,
    RunStage,
    StageFailed,
    StageFinished,
    StartBatch,
)
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.job_graphs import A2A, BLOCKING, POINTWISE, job_graph

WRONG = FailureInfo("ValueError", "wrong", is_user_code=True)
AUTO = AutoParallelism(1, 8, 100, 1)
AT_LEAST_2 = AutoParallelism(2, 8, 100, 1)


def started():
    """A and B have no inputs; C reads both, D reads C."""
    edges = [("A", "C", A2A, BLOCKING), ("B", "C", A2A, BLOCKING), ("C", "D", A2A, BLOCKING)]
    graph = job_graph({"A": 1, "B": 2, "C": 2, "D": 1}, edges, job_type=JobType.BATCH)
    master = BatchMaster(graph, 0)
    return master, master.step(StartBatch(), 1)


def stages(effects, kind=RunStage):
    return [one.vertex_id for one in effects if isinstance(one, kind)]


def state_of(master, name, subtask=0):
    (vertex,) = [
        vertex
        for vertex in master.graph.vertices
        if vertex.job_vertex.name == name and vertex.subtask == subtask
    ]
    return vertex.execution.attempt_id.attempt, vertex.state


def test_a_stage_runs_when_all_its_inputs_are_complete_and_commits_come_last():
    master, effects = started()
    assert stages(effects) == ["A", "B"]
    assert stages(master.step(StageFinished("B"), 2)) == []
    assert stages(master.step(StageFinished("A", (5, 0)), 3)) == ["C"]
    assert master.bytes_by_partition["A"] == (5, 0)
    assert stages(master.step(StageFinished("C"), 4)) == ["D"]
    assert CommitResults() in master.step(StageFinished("D"), 5)
    assert master.status is JobStatus.RUNNING
    master.step(ResultsCommitted(), 6)
    assert master.status is JobStatus.FINISHED
    assert {vertex.state for vertex in master.graph.vertices} == {S.FINISHED}
    assert master.step(StageFailed("D", WRONG), 7) == []


def test_every_state_is_passed_however_late_an_attempt_is_seen():
    master, _ = started()
    effects = master.step(StageFinished("A"), 2)
    seen = [one.new for one in effects if isinstance(one, ExecutionStateChanged)]
    assert seen == [S.DEPLOYING, S.INITIALIZING, S.RUNNING, S.FINISHED]


@pytest.mark.parametrize("is_retry_seen", [True, False])
def test_a_failed_attempt_is_followed_by_the_hosts_next_one(is_retry_seen):
    master, _ = started()
    master.step(AttemptSeen("B", 1, 0, S.RUNNING), 2)
    master.step(AttemptSeen("B", 1, 0, S.FAILED, WRONG), 3)
    assert master.status is JobStatus.RUNNING
    if is_retry_seen:
        master.step(AttemptSeen("B", 1, 1, S.RUNNING), 4)
        assert state_of(master, "B", 1) == (1, S.RUNNING)
    master.step(StageFinished("B"), 5)
    assert state_of(master, "B", 1) == (1, S.FINISHED)
    assert state_of(master, "B", 0) == (0, S.FINISHED)
    (vertex,) = [v for v in master.graph.vertices if str(v) == "B[1]"]
    assert [one.failure for one in vertex.history] == [WRONG]


def test_of_two_attempts_at_once_the_one_that_finishes_counts():
    master, _ = started()
    for attempt in (0, 1):
        master.step(AttemptSeen("A", 0, attempt, S.RUNNING), 2)
    assert state_of(master, "A") == (0, S.RUNNING)
    master.step(AttemptSeen("A", 0, 1, S.FINISHED), 3)
    assert state_of(master, "A") == (1, S.FINISHED)
    master.step(AttemptSeen("A", 0, 0, S.CANCELED), 4)
    master.step(StageFinished("A"), 5)
    assert state_of(master, "A") == (1, S.FINISHED)
    assert master.graph.job_vertices[0].finished == 1


def test_a_stage_that_is_given_up_ends_the_job_when_the_others_are_over():
    master, _ = started()
    master.step(AttemptSeen("A", 0, 0, S.FAILED, WRONG), 2)
    effects = master.step(StageFailed("A", WRONG), 3)
    assert stages(effects, CancelStage) == ["B"]
    assert master.status is JobStatus.FAILING
    master.step(StageFailed("B", FailureInfo("JobCancelled", "")), 4)
    assert master.status is JobStatus.FAILED
    assert master.failure == WRONG
    assert state_of(master, "C") == (0, S.CANCELED)
    assert all(vertex.state.is_terminal for vertex in master.graph.vertices)


@pytest.mark.parametrize("ends", [StageFinished("B"), StageFailed("B", WRONG)])
def test_a_cancelled_job_waits_for_what_runs(ends):
    master, _ = started()
    master.step(StageFinished("A"), 2)
    assert stages(master.step(CancelBatch(), 3), CancelStage) == ["B"]
    assert master.status is JobStatus.CANCELLING
    assert stages(master.step(ends, 4)) == []
    assert master.status is JobStatus.CANCELED
    assert state_of(master, "A") == (0, S.FINISHED)


def test_a_commit_that_fails_fails_the_job():
    master, _ = started()
    for name in "ABCD":
        master.step(StageFinished(name), 2)
    master.step(ResultsCommitted(WRONG), 3)
    assert master.status is JobStatus.FAILED
    assert master.failure == WRONG


def test_what_a_subtask_has_counted_is_that_of_its_newest_attempt():
    """The driver names this attempt to observers with the counters."""
    master, _ = started()
    master.step(AttemptSeen("B", 1, 0, S.FAILED, WRONG), 2)
    master.step(AttemptSeen("B", 1, 1, S.RUNNING), 3)
    assert master.attempt_of("B", 1).attempt == 1


def finished(*names):
    master, _ = started()
    for name in names:
        master.step(StageFinished(name), 2)
    return master


def test_what_was_made_and_lost_is_made_again_by_further_attempts():
    master = finished("A", "B")
    assert state_of(master, "B", 1) == (0, S.FINISHED)
    master.step(AttemptSeen("C", 0, 0, S.FAILED, WRONG), 3)
    master.step(AttemptSeen("B", 1, 1, S.RUNNING), 4)
    assert state_of(master, "B", 1) == (1, S.RUNNING)
    assert state_of(master, "B", 0) == (0, S.FINISHED)
    assert master.graph.job_vertices[1].finished == 1
    master.step(AttemptSeen("B", 1, 1, S.FAILED, WRONG), 5)
    master.step(AttemptSeen("B", 1, 2, S.FINISHED), 6)
    assert state_of(master, "B", 1) == (2, S.FINISHED)
    assert master.graph.job_vertices[1].finished == 2
    master.step(AttemptSeen("C", 0, 1, S.RUNNING), 7)
    assert stages(master.step(StageFinished("C"), 8)) == ["D"]


@pytest.mark.parametrize("seen", [S.RUNNING, S.FAILED])
def test_an_attempt_that_makes_again_has_finished_when_nobody_can_want_it_any_more(seen):
    master = finished("A", "B")
    master.step(AttemptSeen("A", 0, 1, seen), 3)
    assert state_of(master, "A") == (1, seen)
    master.step(StageFinished("C"), 4)
    assert state_of(master, "A") == (1 + (seen is S.FAILED), S.FINISHED)
    master.step(AttemptSeen("A", 0, 3, S.RUNNING), 5)  # for D, which needs C again
    assert state_of(master, "A") == (3, S.RUNNING)
    assert CommitResults() in master.step(StageFinished("D"), 6)
    assert {vertex.state for vertex in master.graph.vertices} == {S.FINISHED}


@pytest.mark.parametrize("loser", [S.RUNNING, S.FINISHED, S.CANCELED])
def test_one_that_raced_with_the_winner_is_no_new_attempt(loser):
    master = finished("A", "B")
    master.step(AttemptSeen("B", 0, 1, loser, is_speculative=True), 3)
    assert state_of(master, "B", 0) == (0, S.FINISHED)


def test_while_a_job_is_ending_attempts_change_nothing():
    master = finished("A", "B")
    master.step(CancelBatch(), 3)
    for name, attempt in (("A", 1), ("C", 0), ("C", 1)):
        master.step(AttemptSeen(name, 0, attempt, S.FINISHED), 4)
    assert master.status is JobStatus.CANCELLING
    master.step(StageFailed("C", WRONG), 5)
    assert master.status is JobStatus.CANCELED
    assert all(vertex.state.is_terminal for vertex in master.graph.vertices)
    assert state_of(master, "C") == (0, S.CANCELED)


FORWARD = ShipStrategy.FORWARD


def opened(auto=AUTO, max_parallelism=8):
    """A (2 subtasks) -> C by key; B (1) -> C; C -> D forward; D -> E by key. C, D and E are open."""
    edges = [
        ("A", "C", A2A, BLOCKING),
        ("B", "C", A2A, BLOCKING),
        ("C", "D", POINTWISE, BLOCKING),
        ("D", "E", A2A, BLOCKING),
    ]
    names = {"A": 2, "B": 1, "C": UNDECIDED, "D": UNDECIDED, "E": UNDECIDED}
    graph = job_graph(names, edges, job_type=JobType.BATCH)
    graph.auto_parallelism = auto
    for vertex in graph.vertices.values():
        vertex.max_parallelism = max_parallelism
        forward = [edge.pattern is POINTWISE for edge in vertex.inputs]
        vertex.inputs = [
            replace(edge, ship_strategy=FORWARD if is_forward else ShipStrategy.HASH)
            for edge, is_forward in zip(vertex.inputs, forward, strict=True)
        ]
    places = {"C": Subpartitions(0, 8), "E": Subpartitions(8, 8)}
    return BatchMaster(graph, 0, places)


def run_of(effects):
    (found,) = [one for one in effects if isinstance(one, RunStage)]
    return found


def test_an_open_vertex_gets_a_subtask_for_each_volume_that_its_inputs_have_produced():
    master = opened()
    master.step(StartBatch(), 1)
    assert [one.name for one in master.graph.job_vertices] == ["A", "B"]
    master.step(StageFinished("A", (100, 0, 0, 0, 0, 0, 0, 50, 0)), 2)
    run = run_of(master.step(StageFinished("B", (0, 0, 0, 0, 100, 0, 0, 0, 999)), 3))
    assert run.vertex_id == "C"
    assert master.job_graph.vertices["C"].parallelism == 3  # 250 bytes, 100 for each
    assert run.ranges == ((0, 4), (4, 7), (7, 8))
    assert [str(v) for v in master.graph.vertices if v.job_vertex.name == "C"] == [
        "C[0]",
        "C[1]",
        "C[2]",
    ]


def test_what_forward_edges_join_is_decided_together_and_what_comes_behind_later():
    master = opened()
    master.step(StartBatch(), 1)
    master.step(StageFinished("A", (300,)), 2)
    master.step(StageFinished("B"), 3)
    assert [one.name for one in master.graph.job_vertices] == ["A", "B", "C", "D"]
    assert master.job_graph.vertices["D"].parallelism == 3
    run = run_of(master.step(StageFinished("C", (0,) * 17), 4))
    assert (run.vertex_id, run.ranges) == ("D", ())
    run = run_of(master.step(StageFinished("D", (*[900] * 8, *[10] * 8)), 5))
    assert (run.vertex_id, run.ranges) == ("E", ((0, 8),))
    assert CommitResults() in master.step(StageFinished("E"), 6)


@pytest.mark.parametrize(("auto", "most", "expected"), [(AUTO, 4, 4), (AT_LEAST_2, 8, 2)])
def test_limits_of_the_job_and_of_the_vertex_hold(auto, most, expected):
    master = opened(auto, most)
    master.step(StartBatch(), 1)
    master.step(StageFinished("A", (10_000,) if auto is AUTO else (0,)), 2)
    master.step(StageFinished("B"), 3)
    assert master.job_graph.vertices["C"].parallelism == expected


def test_a_job_that_fails_before_all_is_decided_ends():
    master = opened()
    master.step(StartBatch(), 1)
    master.step(StageFinished("A", (300,)), 2)
    master.step(StageFailed("B", WRONG), 3)
    assert master.status is JobStatus.FAILED


def test_its_story_has_every_effect_with_its_cause():
    master, effects = started()
    ran = [line for line in master.story if "RunStage" in str(line)]
    assert len(master.story) == len(effects)
    assert {line.event for line in master.story} == {"StartBatch"}
    assert len(ran) == 2
    master.step(StageFailed("A", WRONG), 2)
    (failing,) = [line for line in master.story if "FAILING" in str(line) and "job" in str(line)]
    assert failing.event == "StageFailed"
    assert "cause=ValueError" in str(failing)


def test_a_step_that_is_not_allowed_tells_the_story_before_it():
    master, _ = started()
    with pytest.raises(EngineBug) as caught:
        master.step(StartBatch(), 2)
    assert f"The last of the story of the BatchMaster of {master.job_graph.job_id}" in str(
        caught.value
    )
    assert "RunStage" in str(caught.value)
