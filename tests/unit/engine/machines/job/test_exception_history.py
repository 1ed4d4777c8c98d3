"""What went wrong, failure by failure, by Flink's exception history."""

from penstock.engine.machines.failover import (
    ExponentialDelayRestart,
    FixedDelayRestart,
    InfrastructureOnlyRestart,
)
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import FailJob, FailureInfo, TaskManagerGone
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.job_bench import BROKEN, USER, Bench
from tests.tools.machines.job_graphs import word_count


def running(make_backoff, **more) -> Bench:
    bench = Bench(word_count(), JobSettings(make_backoff=make_backoff, **more))
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    bench.run_all()
    return bench


def fixed():
    return FixedDelayRestart(9, 1000)


def told(bench: Bench) -> list[tuple]:
    return [
        (e.root.failure.kind, e.root.task, [(o.failure.kind, o.task) for o in e.concurrent])
        for e in bench.job.exceptions
    ]


def test_a_failure_is_kept_with_its_task_attempt_and_place() -> None:
    bench = running(fixed)
    bench.report("FlatMap[1]", S.FAILED, USER)
    (entry,) = bench.job.exceptions
    assert entry.root.failure == USER
    assert entry.root.task == "FlatMap[1]"
    assert entry.root.attempt_id.attempt == 0
    assert entry.root.location.resource_id == "tm2"
    assert entry.concurrent == []


def test_what_fails_while_tasks_are_cancelled_is_kept_beside_it() -> None:
    bench = running(fixed)
    bench.report("FlatMap[1]", S.FAILED, USER)
    bench.report("KeyAggSink[0]", S.FAILED, BROKEN)
    assert told(bench) == [
        ("ValueError", "FlatMap[1]", [("PartitionConnectionError", "KeyAggSink[0]")])
    ]


def test_a_kill_for_memory_waits_also_where_peers_have_reported_it_first() -> None:
    bench = running(InfrastructureOnlyRestart)
    bench.report("KeyAggSink[0]", S.FAILED, BROKEN)
    soon = bench.timers["restart-0"]
    bench.step(TaskManagerGone(ResourceId("tm2"), "killed", bench.now_ms, for_memory=True))
    assert soon == 100
    assert bench.timers["restart-1"] == 1000
    assert "OutOfMemory" in str(told(bench))


def test_a_kill_for_memory_counts_once_where_peers_have_reported_it_first() -> None:
    """A strategy that counts would end the job at the second word of one kill."""
    bench = running(fixed)
    bench.report("KeyAggSink[0]", S.FAILED, BROKEN)
    bench.step(TaskManagerGone(ResourceId("tm2"), "killed", bench.now_ms, for_memory=True))
    assert [name for name in bench.timers if name.startswith("restart-")] == ["restart-0"]


def test_a_users_error_behind_a_broken_connection_becomes_the_root() -> None:
    bench = running(fixed)
    bench.report("KeyAggSink[0]", S.FAILED, BROKEN)
    bench.report("FlatMap[1]", S.FAILED, USER)
    assert told(bench) == [
        ("ValueError", "FlatMap[1]", [("PartitionConnectionError", "KeyAggSink[0]")])
    ]


def test_a_lost_task_manager_is_one_entry_with_all_its_tasks() -> None:
    bench = running(fixed)
    bench.lose("tm2")
    assert told(bench) == [
        ("TaskManagerLost", "FlatMap[1]", [("TaskManagerLost", "KeyAggSink[1]")])
    ]


def test_a_global_failure_has_no_task() -> None:
    bench = running(fixed)
    bench.step(FailJob(FailureInfo("EnumeratorFailed", "x"), 1))
    assert told(bench) == [("EnumeratorFailed", None, [])]


def test_each_restart_begins_an_entry_and_old_ones_go() -> None:
    bench = running(fixed, exception_history_size=2)
    for kind in ("first", "second", "third"):
        bench.report("FlatMap[1]", S.FAILED, FailureInfo(kind, "x", is_user_code=True))
        bench.confirm_cancels()
        bench.fire("restart-")
        bench.run_all()
    assert [entry.root.failure.kind for entry in bench.job.exceptions] == ["second", "third"]


def test_failures_that_one_back_off_covers_are_one_entry() -> None:
    bench = running(ExponentialDelayRestart)
    bench.report("FlatMap[1]", S.FAILED, USER)
    bench.step(FailJob(FailureInfo("EnumeratorFailed", "x"), 1))
    assert [len(entry.concurrent) for entry in bench.job.exceptions] == [1]


def test_the_failure_that_ends_the_job_is_kept() -> None:
    bench = running(lambda: FixedDelayRestart(0, 0))
    bench.report("FlatMap[1]", S.FAILED, USER)
    assert told(bench)[0][:2] == ("ValueError", "FlatMap[1]")


def test_failures_and_restarts_are_numbered() -> None:
    bench = running(fixed)
    bench.report("FlatMap[1]", S.FAILED, USER)
    bench.run_all()
    (entry,) = bench.job.exceptions
    assert (entry.root.number, entry.restart, entry.delay_ms) == (1, 1, 1000)
    bench.job.exceptions.begin(USER, 5)
    bench.job.exceptions.add(BROKEN, 6)
    *_, last = bench.job.exceptions
    assert [last.root.number, *(one.number for one in last.concurrent)] == [2, 3]
    assert last.restart == 0
    changes = bench.job.exceptions.changes
    bench.job.exceptions.restarts(7)
    bench.job.exceptions.restarts(8)
    assert (last.restart, last.delay_ms) == (2, 8)
    assert bench.job.exceptions.changes > changes


def test_a_history_that_keeps_nothing_does_not_keep_a_job_from_restarting() -> None:
    bench = running(fixed, exception_history_size=0)
    bench.report("FlatMap[1]", S.FAILED, USER)
    bench.run_all()
    assert list(bench.job.exceptions) == []
    assert bench.job.status is JobStatus.RESTARTING
