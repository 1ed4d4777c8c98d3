"""The way of a checkpoint through the coordinator. Expectations:
docs/spec/checkpoints.md#coordinator, #savepoints-and-stopping, #finished-tasks.
"""

from dataclasses import replace

import pytest

from penstock.engine.machines.checkpoints.coordinator import FailureCounter
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.messages import (
    CancelJob,
    CheckpointEnded,
    CheckpointFailureReason,
    CheckpointNotStored,
    CheckpointStored,
    CoordinatorsCheckpointEnded,
    DeployTask,
    DiscardCheckpoint,
    DiscardStates,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    ResetSubtasks,
    RestoreCoordinators,
    SavepointAnswered,
    SetTimer,
    SnapshotCoordinators,
    StoreCheckpoint,
    SuspendJob,
    TimerFired,
    TriggerCheckpoint,
)
from penstock.engine.model.messages import CheckpointFailureReason as Reason
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.checkpoint_bench import (
    ALL,
    EVERY_SECOND,
    CheckpointBench,
    ids_of,
    list_handle,
    only,
    state_of,
    told,
    with_operators,
    written,
)
from tests.tools.machines.job_bench import USER, Bench, statuses
from tests.tools.machines.job_graphs import A2A, BLOCKING, job_graph, word_count

STOP = CheckpointType.STOP_SUSPEND

# ------------------------------------------------------------------ the way up


def test_sources_are_triggered_and_all_are_told_when_all_have_acknowledged() -> None:
    bench = CheckpointBench()
    effects = bench.fire("checkpoint-trigger")
    assert told(effects, TriggerCheckpoint) == ["Source[0]"]
    assert bench.ack(1, *ALL[:4]) == []
    checkpoint = written(bench.ack(1, ALL[4]))
    assert [o.uid for o in checkpoint.operators] == ["source", "flatmap", "keyaggsink"]
    assert [len(o.subtasks) for o in checkpoint.operators] == [1, 2, 2]
    effects = bench.stored(1)
    assert len(told(effects, NotifyCheckpointComplete)) == 5
    assert only(effects, CoordinatorsCheckpointEnded).is_completed


def test_a_taskmanager_is_told_once_of_all_its_tasks() -> None:
    bench = CheckpointBench()
    bench.ack(bench.trigger(), *ALL)
    notices = [one for one in bench.stored(1) if isinstance(one, NotifyCheckpointComplete)]
    assert sorted(one.resource_id for one in notices) == ["tm1", "tm2"]


def test_the_first_one_comes_between_the_least_pause_and_the_interval() -> None:
    for draw, delay_ms in ((-1.0, 200), (0.0, 600), (1.0, 1000)):
        settings = replace(EVERY_SECOND, min_pause_ms=200, draw=lambda draw=draw: draw)
        bench = CheckpointBench(settings)
        assert bench.timers["checkpoint-trigger"] == delay_ms
    bench.fire("checkpoint-trigger")
    assert bench.timers["checkpoint-trigger"] == 2000


def test_nothing_is_triggered_before_all_tasks_run() -> None:
    bench = Bench(with_operators(word_count()), CheckpointBench().job.settings)
    bench.start()
    bench.offer("tm1")
    assert ids_of(bench.fire("checkpoint-trigger"), TriggerCheckpoint) == set()


def test_coordinators_of_operators_come_before_tasks() -> None:
    bench = CheckpointBench(coordinated=("Source",))
    effects = bench.fire("checkpoint-trigger")
    assert ids_of(effects, SnapshotCoordinators) == {1}
    assert ids_of(effects, TriggerCheckpoint) == set()
    assert told(bench.coordinators_done(1), TriggerCheckpoint) == ["Source[0]"]
    checkpoint = written(bench.ack(1, *ALL))
    assert checkpoint.operators[0].coordinator_state == b"enumerator"


def test_the_end_of_a_checkpoint_tells_the_size_of_its_metadata() -> None:
    bench = CheckpointBench()
    bench.ack(bench.trigger(), *ALL)
    effects = bench.step(CheckpointStored(1, "chk-1", bench.now_ms, metadata_bytes=321))
    assert only(effects, CheckpointEnded).metadata_bytes == 321


def test_a_coordinator_that_cannot_aborts_the_checkpoint() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, tolerable_failures=1), coordinated=("Source",))
    bench.fire("checkpoint-trigger")
    effects = bench.coordinators_done(1, "connection refused")
    assert len(told(effects, NotifyCheckpointAborted)) == 5
    assert bench.coordinators_done(1) == []


# ------------------------------------------------------------------ acknowledgements that do not count


def test_an_acknowledgement_counts_once_and_of_this_attempt_only() -> None:
    bench = CheckpointBench()
    bench.trigger()
    bench.ack(1, *ALL[:4])
    assert bench.ack(1, ALL[0]) == []
    stranger = AttemptId(bench.attempt(ALL[4]).execution_vertex_id, 7)
    effects = bench.ack(1, ALL[4], attempt=stranger)
    assert ids_of(effects, DiscardStates) == {1}
    assert ids_of(effects, StoreCheckpoint) == set()


def test_a_late_acknowledgement_takes_its_snapshot_along_only_if_the_checkpoint_was_aborted() -> (
    None
):
    bench = CheckpointBench(replace(EVERY_SECOND, tolerable_failures=1))
    bench.trigger()
    bench.decline(1, ALL[0])
    assert ids_of(bench.ack(1, ALL[1]), DiscardStates) == {1}
    bench.complete()
    assert bench.ack(2, ALL[1]) == []
    assert bench.ack(77, ALL[1]) == []


# ------------------------------------------------------------------ failures


def test_a_decline_aborts_and_is_counted_against_the_tolerable_ones() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, tolerable_failures=1))
    bench.trigger()
    bench.ack(1, *ALL[:2])
    effects = bench.decline(1, ALL[2])
    assert len(told(effects, NotifyCheckpointAborted)) == 5
    assert only(effects, DiscardStates).states == (state_of("source"), state_of("flatmap"))
    assert bench.job.status is JobStatus.RUNNING
    bench.complete()
    bench.decline(bench.trigger(), ALL[2])
    assert bench.job.status is JobStatus.RUNNING
    bench.decline(bench.trigger(), ALL[2])
    assert bench.job.status is JobStatus.FAILING
    assert "no room" in bench.job.failure.text


def test_a_decline_of_a_task_that_was_not_ready_does_not_count() -> None:
    bench = CheckpointBench()
    effects = bench.decline(bench.trigger(), ALL[0], CheckpointFailureReason.TASK_NOT_READY)
    assert only(effects, CoordinatorsCheckpointEnded).is_completed is False
    assert bench.job.status is JobStatus.RUNNING


def test_a_checkpoint_expires() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, timeout_ms=500, tolerable_failures=1))
    bench.trigger()
    assert bench.timers["checkpoint-expiry"] == 1500
    assert ids_of(bench.fire("checkpoint-expiry"), NotifyCheckpointAborted) == {1}
    assert bench.step(TimerFired("checkpoint-expiry", 9)) == []


def test_what_cannot_be_written_fails_and_is_not_completed() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, tolerable_failures=1))
    bench.complete()
    bench.ack(bench.trigger(), *ALL)
    effects = bench.not_stored(2)
    aborted = next(e for e in effects if isinstance(e, NotifyCheckpointAborted))
    assert (aborted.checkpoint_id, aborted.latest_completed_id) == (2, 1)
    assert len(only(effects, DiscardStates).states) == 5
    assert bench.stored(2) == []


def test_people_are_told_how_large_and_slow_it_was_or_why_it_failed() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, tolerable_failures=1))
    bench.trigger()
    bench.ack(1, *ALL, state=state_of("any", list_handle(3)))
    ended = only(bench.stored(1), CheckpointEnded)
    assert (ended.triggered_ms, ended.size_bytes, ended.location) == (1000, 15, "chk-1")
    ended = only(bench.decline(bench.trigger(), ALL[0]), CheckpointEnded)
    assert (ended.location, ended.reason) == (None, CheckpointFailureReason.CHECKPOINT_DECLINED)
    assert "no room" in ended.text


# ------------------------------------------------------------------ several


def test_one_at_a_time_unless_more_are_allowed() -> None:
    bench = CheckpointBench()
    bench.trigger()
    assert ids_of(bench.fire("checkpoint-trigger"), TriggerCheckpoint) == set()
    bench.fire("checkpoint-trigger")
    bench.ack(1, *ALL)
    assert ids_of(bench.stored(1), TriggerCheckpoint) == {2}
    bench.ack(2, *ALL)
    assert ids_of(bench.stored(2), TriggerCheckpoint) == set()


def test_a_completed_one_subsumes_those_before_it_and_the_last_store() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, max_concurrent=2))
    assert (bench.trigger(), bench.trigger()) == (1, 2)
    bench.ack(2, *ALL)
    effects = bench.stored(2)
    assert ids_of(effects, NotifyCheckpointAborted) == {1}
    assert ids_of(effects, NotifyCheckpointComplete) == {2}
    bench.ack(bench.trigger(), *ALL)
    assert only(bench.stored(3), DiscardCheckpoint).checkpoint.location == "chk-2"


def test_one_is_written_at_a_time_oldest_first() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, max_concurrent=3))
    for _ in range(3):
        bench.trigger()
    bench.ack(1, *ALL)
    assert ids_of(bench.ack(3, *ALL) + bench.ack(2, *ALL), StoreCheckpoint) == set()
    assert written(bench.stored(1)).checkpoint_id == 2
    assert written(bench.stored(2)).checkpoint_id == 3


def test_a_periodic_one_too_soon_after_a_completion_comes_when_the_pause_is_over() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, min_pause_ms=700, draw=lambda: -1.0))
    bench.trigger()  # at 700
    bench.now_ms = 1500
    bench.ack(1, *ALL)
    bench.stored(1)
    effects = bench.fire("checkpoint-trigger")  # at 1700
    assert ids_of(effects, TriggerCheckpoint) == set()
    timers = [e.at_ms for e in effects if isinstance(e, SetTimer)]
    assert timers[-1] == 2200


# ------------------------------------------------------------------ restarts


def test_a_restart_begins_with_the_latest_checkpoint_and_aborts_what_was_under_way() -> None:
    bench = CheckpointBench(coordinated=("Source",))
    bench.fire("checkpoint-trigger")
    bench.coordinators_done(1)
    bench.complete(1)
    bench.fire("checkpoint-trigger")
    bench.coordinators_done(2)
    effects = bench.report(ALL[1], S.FAILED, USER)
    assert ids_of(effects, NotifyCheckpointAborted) == {2}
    bench.confirm_cancels()
    effects = bench.fire("restart")
    assert only(effects, ResetSubtasks).checkpoint_id == 1
    deployments = [e.deployment for e in effects if isinstance(e, DeployTask)]
    assert [d.restore.checkpoint_id for d in deployments] == [1] * 5
    bench.run_all()
    assert ids_of(bench.fire("checkpoint-trigger"), SnapshotCoordinators) == {3}


def test_a_global_restart_takes_coordinators_back_too() -> None:
    bench = CheckpointBench(coordinated=("Source",))
    bench.fire("checkpoint-trigger")
    bench.coordinators_done(1)
    bench.complete(1)
    bench.fire("checkpoint-trigger")
    bench.coordinators_done(2)
    bench.decline(2, ALL[0])
    assert bench.job.status is JobStatus.FAILING
    bench.confirm_cancels()
    restored = only(bench.fire("restart"), RestoreCoordinators)
    assert restored == RestoreCoordinators(1, (("source", b"enumerator"),))


def test_a_restart_waits_for_the_outcome_of_a_checkpoint_that_is_being_written() -> None:
    bench = CheckpointBench()
    bench.ack(bench.trigger(), *ALL)
    bench.report(ALL[1], S.FAILED, USER)
    bench.confirm_cancels()
    assert ids_of(bench.fire("restart"), DeployTask) == set()
    assert bench.job.status is JobStatus.RESTARTING
    assert only(bench.stored(1), ResetSubtasks).checkpoint_id == 1


def test_a_restart_without_a_checkpoint_begins_anew() -> None:
    bench = CheckpointBench()
    bench.ack(bench.trigger(), *ALL)
    bench.report(ALL[1], S.FAILED, USER)
    bench.confirm_cancels()
    bench.fire("restart")
    effects = bench.not_stored(1)
    assert only(effects, ResetSubtasks).checkpoint_id is None
    assert {e.deployment.restore for e in effects if isinstance(e, DeployTask)} == {None}


# ------------------------------------------------------------------ savepoints


def test_a_savepoint_commits_nothing_and_is_no_start_of_a_restart() -> None:
    bench = CheckpointBench()
    effects = bench.savepoint()
    options = only(effects, TriggerCheckpoint).options
    assert (options.type, options.target) == (CheckpointType.SAVEPOINT, "sp")
    checkpoint = written(bench.ack(1, *ALL))
    assert not checkpoint.is_for_recovery
    effects = bench.stored(1)
    assert [type(e) for e in effects] == [CheckpointEnded, SavepointAnswered]
    assert effects[1] == SavepointAnswered("me", "chk-1")
    assert len(bench.job.checkpoints.store) == 0


@pytest.mark.parametrize("timeout_ms", [0, 500])
def test_a_savepoint_is_aligned_where_checkpoints_are_not(timeout_ms: int) -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, aligned_timeout_ms=timeout_ms))
    bench.trigger()
    bench.ack(1, *ALL)
    bench.stored(1)
    options = only(bench.savepoint(), TriggerCheckpoint).options
    assert options.type is CheckpointType.SAVEPOINT
    assert (options.is_unaligned, options.aligned_timeout_ms) == (False, None)


def test_a_savepoint_is_not_subsumed_and_does_not_wait_for_a_checkpoint() -> None:
    bench = CheckpointBench()
    bench.trigger()
    assert ids_of(bench.savepoint(), TriggerCheckpoint) == {2}
    bench.ack(2, *ALL)
    bench.stored(2)
    bench.ack(1, *ALL)
    assert len(told(bench.stored(1), NotifyCheckpointComplete)) == 5


def test_a_savepoint_needs_a_place_and_a_job_that_runs() -> None:
    bench = CheckpointBench()
    assert "directory" in only(bench.savepoint(directory=None), SavepointAnswered).failure.text
    bench.report(ALL[1], S.FAILED, USER)
    assert "not RUNNING" in only(bench.savepoint(), SavepointAnswered).failure.text


def test_a_job_stops_with_a_savepoint() -> None:
    bench = CheckpointBench()
    bench.trigger()
    effects = bench.savepoint(STOP)
    assert ids_of(effects, NotifyCheckpointAborted) == {1}
    assert only(effects, TriggerCheckpoint).options.type is STOP
    assert "stopped" in only(bench.savepoint(), SavepointAnswered).failure.text
    assert bench.fire("checkpoint-trigger") == []
    bench.ack(2, *ALL)
    effects = bench.stored(2)
    assert len(told(effects, NotifyCheckpointComplete)) == 5
    assert SavepointAnswered("me", "chk-2") in effects
    bench.finish_all()
    assert bench.job.status is JobStatus.RUNNING  # results are being made visible


@pytest.mark.parametrize("reason", ["TASK_NOT_READY", "CHECKPOINT_DECLINED"])
def test_a_savepoint_to_stop_with_that_fails_starts_the_job_again(reason: str) -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, tolerable_failures=9))
    bench.savepoint(STOP)
    effects = bench.decline(1, ALL[0], CheckpointFailureReason(reason))
    assert only(effects, SavepointAnswered).location is None
    assert statuses(effects) == ["FAILING"]
    bench.confirm_cancels()
    bench.fire("restart")
    bench.run_all()
    assert bench.trigger() == 2


def test_what_a_task_failure_aborts_does_not_fail_the_job_once_more() -> None:
    bench = CheckpointBench()
    bench.savepoint(STOP)
    assert statuses(bench.report(ALL[1], S.FAILED, USER)) == ["RESTARTING"]


# ------------------------------------------------------------------ the end


def test_a_cancelled_job_discards_what_it_need_not_keep() -> None:
    bench = CheckpointBench()
    bench.complete()
    bench.trigger()
    bench.ack(2, ALL[0])
    effects = bench.step(CancelJob(bench.now_ms)) + bench.confirm_cancels()
    assert bench.job.status is JobStatus.CANCELED
    assert ids_of(effects, DiscardStates) == {2}
    assert only(effects, DiscardCheckpoint).checkpoint.checkpoint_id == 1


def test_a_suspended_job_touches_nothing() -> None:
    bench = CheckpointBench()
    bench.complete()
    bench.trigger()
    bench.ack(2, ALL[0])
    effects = bench.step(SuspendJob(bench.now_ms))
    assert not [e for e in effects if isinstance(e, DiscardStates | DiscardCheckpoint)]


def test_what_is_written_after_the_end_goes_as_the_others() -> None:
    bench = CheckpointBench()
    bench.ack(bench.trigger(), *ALL)
    effects = bench.step(CancelJob(bench.now_ms)) + bench.confirm_cancels()
    ended = only(effects, CheckpointEnded)
    assert (ended.checkpoint_id, ended.location) == (1, None)
    assert ended.reason is CheckpointFailureReason.COORDINATOR_SHUTDOWN
    effects = bench.step(CheckpointStored(1, "chk-1", bench.now_ms))
    assert only(effects, DiscardCheckpoint).checkpoint.location == "chk-1"
    assert not [e for e in effects if isinstance(e, CheckpointEnded)], "its end was told"
    assert bench.step(CheckpointStored(1, "chk-1", bench.now_ms)) == []


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_savepoint_that_is_written_after_the_end_is_told_then(is_stored) -> None:
    bench = CheckpointBench()
    effects = bench.savepoint()
    (checkpoint_id,) = ids_of(effects, TriggerCheckpoint)
    bench.ack(checkpoint_id, *ALL)
    effects = bench.step(CancelJob(bench.now_ms)) + bench.confirm_cancels()
    assert not [e for e in effects if isinstance(e, CheckpointEnded)]
    reason = CheckpointFailureReason.IO_EXCEPTION
    event = (
        CheckpointStored(checkpoint_id, "sp-1", bench.now_ms)
        if is_stored
        else CheckpointNotStored(checkpoint_id, "full", bench.now_ms, reason)
    )
    ended = only(bench.step(event), CheckpointEnded)
    assert (ended.location, ended.reason) == (("sp-1", None) if is_stored else (None, reason))


def test_a_job_with_blocking_results_takes_none() -> None:
    graph = job_graph({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)])
    bench = CheckpointBench(graph=graph)
    assert "checkpoint-trigger" not in bench.timers
    assert "takes no checkpoints" in only(bench.savepoint(), SavepointAnswered).failure.text


CHECKPOINT = CheckpointType.CHECKPOINT
COUNTED = {
    Reason.IO_EXCEPTION,
    Reason.ASYNC_EXCEPTION,
    Reason.CHECKPOINT_DECLINED,
    Reason.CHECKPOINT_EXPIRED,
    Reason.FINALIZE_FAILURE,
}


@pytest.mark.parametrize("reason", Reason)
def test_only_failures_of_the_checkpoint_itself_count(reason: Reason) -> None:
    assert FailureCounter().on_failure(1, CHECKPOINT, reason) is (reason in COUNTED)


def test_more_than_the_tolerable_in_a_row_fail_the_job_and_an_id_counts_once() -> None:
    counter = FailureCounter(tolerable=1)
    assert not counter.on_failure(1, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    assert not counter.on_failure(1, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    counter.reset()
    assert not counter.on_failure(2, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    assert counter.on_failure(3, CHECKPOINT, Reason.CHECKPOINT_EXPIRED)
    assert "2 checkpoints failed" in counter.failure_of_job(3, Reason.CHECKPOINT_EXPIRED, "").text


@pytest.mark.parametrize("kind", [CheckpointType.STOP_DRAIN, CheckpointType.STOP_SUSPEND])
def test_a_savepoint_to_stop_with_is_not_tolerated(kind: CheckpointType) -> None:
    assert FailureCounter(tolerable=9).on_failure(1, kind, Reason.TASK_NOT_READY)


@pytest.mark.parametrize("reason", sorted(COUNTED))
def test_a_savepoint_that_fails_does_not_count_whoever_could_not_write_it(reason: Reason) -> None:
    counter = FailureCounter()
    assert not counter.on_failure(1, CheckpointType.SAVEPOINT, reason)
    assert counter.continuous == 0
