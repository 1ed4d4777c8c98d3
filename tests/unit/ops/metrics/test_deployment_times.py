"""How long tasks are deployed, and since when all run (Flink DeploymentStateTimeMetrics, JobStatusMetrics)."""

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.states import ExecutionState
from penstock.ops.metrics.job_metrics import DeploymentTimes, StateKind

ALL = frozenset(StateKind)
STATES = {
    "s": "SCHEDULED", "d": "DEPLOYING", "i": "INITIALIZING", "r": "RUNNING",
    "f": "FINISHED", "x": "FAILED", "c": "CANCELED",
}  # fmt: skip


def told(script, job_type=JobType.STREAMING) -> DeploymentTimes:
    """`script`: `ms:subtask+state` words, for example `10:0d` for subtask 0 that is DEPLOYING at 10 ms."""
    times = DeploymentTimes(job_type)
    for word in script.split():
        at_ms, _, move = word.partition(":")
        attempt = AttemptId(ExecutionVertexId(VertexId("v"), int(move[0])), 0)
        times.moved(attempt, ExecutionState(STATES[move[1]]), int(at_ms))
    return times


def values(times, now_ms) -> dict:
    return {one.name: one.value for one in times.measured(now_ms, ALL)}


def deploying(times, now_ms):
    found = values(times, now_ms)
    return tuple(found[f"deploying{kind}"] for kind in ("State", "Time", "TimeTotal"))


def all_run(times, now_ms):
    name = "allSubTasksRunningOrFinished"
    found = values(times, now_ms)
    return tuple(found[f"{name}{kind}"] for kind in ("State", "Time", "TimeTotal"))


def test_before_anything_is_deployed_all_times_are_0():
    assert set(values(told(""), 5).values()) == {0}
    assert deploying(told("1:0s 2:1s"), 9) == (0, 0, 0)


def test_a_streaming_job_is_deployed_until_the_last_task_initializes():
    begun = "1:0s 1:1s 10:0d 12:0i 15:1d"
    assert deploying(told("1:0s 1:1s 10:0d 12:0i"), 14) == (1, 4, 4)  # subtask 1 waits for a slot
    assert deploying(told(begun), 30) == (1, 20, 20)
    assert deploying(told(f"{begun} 40:1i"), 50) == (0, 0, 30)


def test_a_batch_job_is_deployed_until_the_first_task_initializes():
    begun = "1:0s 1:1s 10:0d 12:1d"
    assert deploying(told(begun, JobType.BATCH), 14) == (1, 4, 4)
    assert deploying(told(f"{begun} 20:0i", JobType.BATCH), 30) == (0, 0, 10)


def test_a_batch_job_does_not_tell_whether_all_run():
    names = values(told("1:0s", JobType.BATCH), 1)
    assert set(names) == {"deployingState", "deployingTime", "deployingTimeTotal"}


def test_deployments_add_up_over_restarts():
    once = "10:0d 20:0i 25:0r 30:0x"
    assert deploying(told(f"{once} 40:0s 50:0d 55:0i"), 60) == (0, 0, 15)


def test_a_deployment_that_is_given_up_ends():
    assert deploying(told("10:0d 20:0x"), 30) == (0, 0, 10)


def test_all_run_from_the_last_subtask_on():
    begun = "1:0s 1:1s 2:0d 2:1d 3:0r"
    assert all_run(told(begun), 9) == (0, 0, 0)
    assert all_run(told(f"{begun} 5:1r"), 9) == (1, 4, 4)


def test_those_that_have_finished_count_as_running():
    assert all_run(told("1:0s 1:1s 2:0r 3:1r 5:0f"), 9) == (1, 6, 6)


def test_a_failed_subtask_does_not_run_until_its_next_attempt_does():
    failed = "1:0s 1:1s 2:0r 3:1r 10:0x"
    assert all_run(told(failed), 15) == (0, 0, 7)
    assert all_run(told(f"{failed} 20:0s 30:0r"), 34) == (1, 4, 7 + 4)


def test_nothing_lasts_after_the_end_of_the_job():
    times = told("1:0d 2:0r 4:0f")
    times.ended(6)
    assert all_run(times, 100) == (0, 0, 4)
