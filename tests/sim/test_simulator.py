"""The simulator itself: seeds hold, say enough, repeat, and fail where they should."""

import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest

from penstock.engine.hosting.jobmanager.machine_shell import MachineShell
from penstock.engine.hosting.jobmanager.taskmanager_watch import TaskManagerWatch
from penstock.engine.machines.execution import execution
from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state import job_status
from penstock.engine.machines.resources.resource_manager import ResourceManager
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.model.states import JobStatus
from simulation import runner
from simulation.elastic import ElasticName
from simulation.invariants import JOB_MOVES, TASK_MOVES, Invariants, Name, Violation
from simulation.scenario import AT_MOMENTS, FaultKind, Moment
from simulation.summary import Summary
from simulation.world import SeedResult, World, run_seed

SEEDS = 120


def test_every_invariant_holds_in_hundreds_of_seeds_and_they_say_enough() -> None:
    """Every fault kind, every named moment, every invariant; no seed is too small."""
    summary = runner.summarize(run_seed(seed) for seed in range(SEEDS))
    assert [result.violation for result in summary.failed] == []
    assert summary.seeds == SEEDS
    assert summary.problems() == []
    text = "\n".join(summary.lines())
    for word in (*FaultKind, *Moment, *Name, "DeployTask", "Heartbeat", "FINISHED"):
        assert word in text


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_without_faults_jobs_finish_with_first_attempts(seed: int) -> None:
    world = World(seed, is_calm=True)
    world.run()
    for cluster in world.clusters:
        assert cluster.status is JobStatus.FINISHED
        vertices = cluster.job.state.graph.vertices
        assert {v.execution.attempt_id.attempt for v in vertices} == {0}
        assert cluster.watcher.resets == 0


def test_the_driver_is_not_imitated() -> None:
    world = World(3)
    world.run()
    cluster = world.clusters[0]
    shell = cluster.master.shell
    assert isinstance(shell, MachineShell)
    own = set(vars(type(shell))) - {"__module__", "__doc__", "__annotations__"}
    hooks = {"_step_job", "_step_resources", "end_taskmanager"}  # call the driver's, then look
    assert {name for name in own if not name.startswith("__")} == hooks
    assert type(shell.job_master) is JobMaster
    assert type(shell.resource_manager) is ResourceManager
    assert type(cluster.master.watch) is TaskManagerWatch
    assert all(type(tm.executor) is TaskExecutor for tm in cluster.taskmanagers.values())


# ---------------------------------------------------------------------- the same seed, the same trace

DIGEST = """
import hashlib
from simulation.world import run_seed
lines = [line for seed in range(40, 48) for line in run_seed(seed, is_traced=True).trace]
print(hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


def digest(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", DIGEST]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    lines = [line for seed in range(40, 48) for line in run_seed(seed, is_traced=True).trace]
    here = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert len(lines) > 1000
    assert digest("1") == digest("2") == here


def test_another_seed_gives_another_trace() -> None:
    assert run_seed(1, is_traced=True).trace != run_seed(2, is_traced=True).trace


def test_a_seed_that_is_not_repeatable_is_an_error(monkeypatch) -> None:
    count = iter(range(2))
    monkeypatch.setattr(
        runner, "run_seed", lambda seed, **_how: SeedResult(seed, trace=[str(next(count))])
    )
    with pytest.raises(runner.NotRepeatable, match="seed 100"):
        runner.run_checked(100)


# ---------------------------------------------------------------------- the command


def failed(seed: int, **_how: bool) -> SeedResult:
    return SeedResult(seed, violation=("name", "it broke"), events=Counter(Tick=5), trace=["line"])


def test_a_failing_seed_is_printed_and_replayed_by_one_option(monkeypatch, capsys) -> None:
    monkeypatch.setattr(runner, "run_checked", failed)
    assert runner.main(["--seeds", "2", "--processes", "1"]) == 1
    printed = capsys.readouterr().out
    assert "seed 1 FAILED: it broke" in printed
    assert "-m simulation --seed 1 --trace" in printed
    monkeypatch.setattr(runner, "run_seed", failed)
    assert runner.main(["--seed", "1", "--trace"]) == 1
    assert "line\nseed 1 FAILED: it broke" in capsys.readouterr().out


def test_elastic_seeds_say_what_became_of_rescales(capsys) -> None:
    assert runner.main(["--seeds", "4", "--processes", "1", "--elastic"]) == 2
    printed = capsys.readouterr().out
    assert "planned rescales" in printed
    for name in ElasticName:
        assert str(name) in printed


def test_two_processes_give_the_same_sums_as_one(capsys) -> None:
    assert runner.main(["--seeds", "4", "--processes", "1"]) == 2
    one = capsys.readouterr().out.splitlines()
    assert runner.main(["--seeds", "4", "--processes", "2"]) == 2
    two = capsys.readouterr().out.splitlines()
    assert [line for line in one if " s on " not in line] == [
        line for line in two if " s on " not in line
    ]
    assert any(line.startswith("not good enough") for line in one), "four seeds say too little"


# ---------------------------------------------------------------------- what fails a run


def good() -> Summary:
    summary = Summary(seeds=1)
    summary.faults.update(dict.fromkeys(map(str, FaultKind), 1))
    summary.moments.update(dict.fromkeys(map(str, Moment), 1))
    summary.evaluated.update(dict.fromkeys(map(str, Name), 1))
    return summary


def test_a_fault_that_never_fired_fails_the_run() -> None:
    assert good().problems() == []
    for kind in FaultKind:
        summary = good()
        del summary.faults[kind]
        assert summary.problems() == [f"fault '{kind}' never fired"]


def test_an_invariant_that_was_never_evaluated_fails_the_run() -> None:
    for name in Name:
        summary = good()
        del summary.evaluated[name]
        (problem,) = summary.problems()
        assert name in problem


def test_a_named_moment_without_a_fault_fails_the_run() -> None:
    for moment in Moment:
        summary = good()
        del summary.moments[moment]
        assert summary.problems() == [f"no fault struck {moment}"]


def test_too_few_faults_or_too_small_a_seed_fails_the_run() -> None:
    summary = good()
    summary.seeds = 1000
    assert "faults per seed" in summary.problems()[0]
    small = SeedResult(7, simulated_ms=60_000, taskmanagers=2, regions=1, tasks=7)
    summary = good()
    summary.add(small)
    words = ("2 TaskManagers", "1 regions", "7 tasks", "0 events", "1.0 minutes")
    for word, problem in zip(words, summary.problems(), strict=False):
        assert word in problem


def test_a_trivial_state_does_not_count_as_an_evaluation() -> None:
    invariants = Invariants()
    invariants.expect(Name.ONE_OWNER, True, is_trivial=True)
    assert not invariants.evaluated
    invariants.expect(Name.ONE_OWNER, True)
    assert invariants.evaluated[Name.ONE_OWNER] == 1
    with pytest.raises(Violation, match="a slot has one owner"):
        invariants.expect(Name.ONE_OWNER, False, is_trivial=True)


def test_the_moves_that_are_allowed_are_those_of_the_machines() -> None:
    """They are written down twice on purpose; where they differ one of them is wrong."""
    transitions = {
        (state, following)
        for (state, event), (following, _) in execution.TABLE.items()
        if following is not state and event not in {ExecutionEvent.RESET, ExecutionEvent.SUSPEND}
    }
    assert transitions == TASK_MOVES
    own = {
        (status, following)
        for (status, _), following in job_status.TABLE.items()
        if status is not JobStatus.INITIALIZING
    }
    assert {pair for pair in own if pair[0] is not pair[1]} >= JOB_MOVES


def test_faults_at_moments_cover_the_network_and_the_processes() -> None:
    assert {FaultKind.LOSS, FaultKind.CRASH, FaultKind.PAUSE, FaultKind.SILENT} <= set(AT_MOMENTS)
