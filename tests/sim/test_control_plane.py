"""Hundreds of seeded runs of the control plane; each ends, and for the right reason.

Named invariants, checked after each event: `JobMaster.check`, `ResourceManager.check`, and in the
world: no second attempt lives beside the first, pipelined producers are known, an idle TaskManager
runs nothing.
"""

import pytest

from penstock.machines.job_settings import JobSettings
from penstock.machines.restart_backoff import FixedDelayRestart, NoRestart
from penstock.model.states import ExecutionState, JobStatus
from tests.sim.control_plane import Faults, World
from tests.unit.machines.graphs import A2A, figure, job_graph, word_count


def graph_of(seed: int):
    kind = seed % 4
    if kind == 0:
        return word_count()
    if kind == 1:
        return figure()
    if kind == 2:  # several regions
        return job_graph({"A": 3, "B": 3, "C": 2}, [("A", "B")])
    return job_graph(
        {"A": 2, "B": 4, "C": 3},
        [("A", "B"), ("B", "C", A2A)],
        groups={"C": "other"},
    )


def everything_was_committed_once(world: World) -> None:
    current = {str(v.execution.attempt_id) for v in world.job.execution_graph.vertices}
    assert sorted(c.payload for c in world.committed) == sorted(current)


def everything_was_given_back(world: World) -> None:
    assert not world.resources.needs
    assert world.resources.allocated_to(world.job.job_graph.job_id) == 0
    assert not world.resources.taskmanagers, "idle TaskManagers are released"


@pytest.mark.parametrize("seed", range(40))
def test_without_faults_a_job_finishes_with_first_attempts(seed: int) -> None:
    world = World(seed, graph_of(seed), Faults())
    world.run()
    assert [s.status for s in world.statuses] == [JobStatus.RUNNING, JobStatus.FINISHED]
    assert all(v.execution.attempt_id.attempt == 0 for v in world.job.execution_graph.vertices)
    everything_was_committed_once(world)
    everything_was_given_back(world)


@pytest.mark.parametrize("seed", range(150))
def test_losing_task_managers_never_ends_a_job(seed: int) -> None:
    faults = Faults(kills=1 + seed % 20, start_failure_chance=0.2, repeat_chance=0.2)
    world = World(seed, graph_of(seed), faults)
    world.run()
    assert world.last_status is JobStatus.FINISHED
    states = {v.state for v in world.job.execution_graph.vertices}
    assert states == {ExecutionState.FINISHED}
    everything_was_committed_once(world)
    everything_was_given_back(world)


@pytest.mark.parametrize("seed", range(120))
def test_a_user_failure_ends_the_job_with_that_failure(seed: int) -> None:
    faults = Faults(kills=seed % 3, user_failures=1 + seed % 2, repeat_chance=0.2)
    world = World(seed, graph_of(seed), faults)
    world.run()
    is_raised = world.user_failures_left < faults.user_failures
    if is_raised and world.last_status is JobStatus.FAILED:
        assert world.statuses[-1].failure.kind == "ValueError"
    else:  # a failure can be lost only together with the TaskManager that saw it
        assert not is_raised or faults.kills
        assert world.last_status is JobStatus.FINISHED
    everything_was_given_back(world)


def test_the_faults_are_real() -> None:
    worlds = [World(seed, graph_of(seed), Faults(kills=10)) for seed in range(20)]
    for world in worlds:
        world.run()
    attempts = [
        v.execution.attempt_id.attempt for w in worlds for v in w.job.execution_graph.vertices
    ]
    assert sum(world.resets for world in worlds) > 40
    assert max(attempts) >= 5


@pytest.mark.parametrize("seed", range(60))
def test_a_restart_strategy_counts_all_failures(seed: int) -> None:
    settings = JobSettings(make_backoff=lambda: FixedDelayRestart(attempts=100, delay=10))
    faults = Faults(kills=2, user_failures=3, repeat_chance=0.1)
    world = World(seed, graph_of(seed), faults, settings)
    world.run()
    assert world.last_status is JobStatus.FINISHED
    everything_was_committed_once(world)
    everything_was_given_back(world)


@pytest.mark.parametrize("seed", range(20))
def test_with_no_restart_the_root_cause_is_the_lost_machine(seed: int) -> None:
    settings = JobSettings(make_backoff=NoRestart)
    world = World(seed, figure(), Faults(kills=1, repeat_chance=0.1), settings)
    world.run()
    if world.last_status is JobStatus.FAILED:
        kinds = {"TaskManagerLost", "PartitionConnectionError"}
        assert world.statuses[-1].failure.kind in kinds
        assert world.statuses[-2].status is JobStatus.FAILING
    everything_was_given_back(world)


@pytest.mark.parametrize("seed", range(10))
def test_results_that_cannot_be_made_visible_fail_the_job(seed: int) -> None:
    world = World(seed, graph_of(seed), Faults(finalize_fails=True))
    world.run()
    assert world.last_status is JobStatus.FAILED
    assert world.statuses[-1].failure.kind == "CommitFailed"
    everything_was_given_back(world)
