"""A failure of the job as a whole, by docs/spec/failover.md#from-failure-to-restart: failing, restarting, created, running, or failed."""

import pytest

from penstock.engine.machines.failover import FixedDelayRestart
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.messages import (
    CancelJob,
    FailJob,
    FailureInfo,
    FinalizeJob,
    ResetSubtasks,
    TimerFired,
)
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.job_bench import running_word_count as running
from tests.tools.machines.job_bench import statuses

COORDINATOR = FailureInfo("EnumeratorFailed", "no such directory")


def fixed(attempts: int = 3) -> JobSettings:
    return JobSettings(make_backoff=lambda: FixedDelayRestart(attempts, 1000))


def test_a_global_failure_rebuilds_the_job_when_all_tasks_have_ended() -> None:
    bench = running(fixed())
    assert statuses(bench.step(FailJob(COORDINATOR, 1))) == ["FAILING"]
    early = bench.step(TimerFired("restart-0", 5000))  # the delay is over, the tasks are not
    assert statuses(early) == []
    ended = bench.confirm_cancels()
    assert statuses(ended) == ["RESTARTING", "CREATED", "RUNNING"]
    (reset,) = [e for e in ended if isinstance(e, ResetSubtasks)]
    assert reset.is_global
    assert len(reset.vertices) == 5
    assert all(v.execution.attempt_id.attempt == 1 for v in bench.job.state.graph.vertices)
    bench.run_all()
    bench.finish_all()
    assert [e for e in bench.effects if isinstance(e, FinalizeJob)]


def test_after_a_global_failure_the_job_waits_for_the_delay() -> None:
    bench = running(fixed())
    bench.step(FailJob(COORDINATOR, 1))
    assert statuses(bench.confirm_cancels()) == ["RESTARTING"]
    assert statuses(bench.step(TimerFired("restart-0", 5000))) == ["CREATED", "RUNNING"]


def test_a_global_failure_that_a_user_error_makes_worse_ends_the_job() -> None:
    final = FailureInfo("Refused", "no way", is_recoverable=False)
    bench = running(fixed())
    bench.step(FailJob(COORDINATOR, 1))
    assert statuses(bench.step(FailJob(final, 2))) == []
    assert statuses(bench.confirm_cancels()) == ["FAILED"]
    assert bench.step(TimerFired("restart-0", 5000)) == []


def test_global_failures_are_counted_while_the_job_is_failing_too() -> None:
    bench = running(fixed(attempts=1))
    bench.step(FailJob(COORDINATOR, 1))
    bench.step(FailJob(COORDINATOR, 2))
    assert statuses(bench.confirm_cancels()) == ["FAILED"]


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_cancel_stops_a_global_restart(is_ended) -> None:
    bench = running(fixed())
    bench.step(FailJob(COORDINATOR, 1))
    if is_ended:
        bench.confirm_cancels()
        assert statuses(bench.step(CancelJob(2))) == ["CANCELLING", "CANCELED"]
    else:
        assert statuses(bench.step(CancelJob(2))) == ["CANCELLING"]
        assert statuses(bench.confirm_cancels()) == ["CANCELED"]
    assert bench.step(TimerFired("restart-0", 5000)) == []


def test_a_task_manager_lost_in_a_global_failure_holds_nothing_up() -> None:
    bench = running(fixed())
    bench.step(FailJob(COORDINATOR, 1))
    bench.lose("tm1")
    bench.lose("tm2")
    assert bench.job.status is JobStatus.RESTARTING
    assert statuses(bench.step(TimerFired("restart-0", 5000))) == ["CREATED", "RUNNING"]
    bench.offer("tm3", 2)
    bench.run_all()
    assert all(v.state is S.RUNNING for v in bench.job.state.graph.vertices)
