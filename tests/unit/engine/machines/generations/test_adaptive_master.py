"""A job over its generations: when it hands over, what the next generation begins with, and what goes wrong meanwhile."""

import pytest

from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.elastic import RescaleCause, RescaleEnd
from penstock.engine.model.messages import (
    CancelJob,
    CheckpointEnded,
    FailJob,
    FailureInfo,
    FinalizeJob,
    FreeSlot,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RescalesChanged,
    ResetSubtasks,
    RestoreCoordinators,
    SavepointAnswered,
    SuspendJob,
    TaskReported,
    TaskStateChanged,
    TimerFired,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.checkpoint_bench import ids_of, only, told
from tests.tools.machines.generation_bench import (
    AT_ONCE,
    COOLDOWN,
    STABLE,
    TWO_EACH,
    GenerationBench,
    declared,
    grown,
    held,
    places,
    replaced,
    running,
)
from tests.tools.machines.job_bench import BROKEN, USER, deployed, statuses


def test_slots_are_asked_for_first_and_the_job_runs_on_meanwhile():
    bench = running()
    effects = bench.rescale(KeyAggSink=(1, 3))
    assert declared(effects) == [3]
    assert held(effects) == set()
    assert bench.names(S.RUNNING) == [*bench.names(*S)]
    effects = bench.offer("tm3")
    assert len(held(effects)) == 1


def test_the_next_generation_begins_with_the_checkpoint_of_the_handover():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    effects = bench.hand_over()
    (one,) = replaced(effects)
    assert bench.parallelism == {**TWO_EACH, "KeyAggSink": 3}
    assert (one.checkpoint_id, one.is_planned) == (checkpoint_id, True)
    assert len(one.former) == 5
    assert only(effects, RestoreCoordinators).checkpoint_id == checkpoint_id
    assert len(deployed(effects)) == 6
    assert not [e for e in effects if isinstance(e, (ResetSubtasks, FinalizeJob))]
    assert statuses(effects) == []
    assert bench.job.status is JobStatus.RUNNING
    assert all(
        v.execution.restore.checkpoint_id == checkpoint_id for v in bench.job.state.graph.vertices
    )


def test_tasks_are_told_that_the_checkpoint_is_complete_before_they_end():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    effects = bench.stored(checkpoint_id)
    assert len(told(effects, NotifyCheckpointComplete)) == 5
    assert replaced(effects) == []


def test_attempts_of_the_next_generation_have_numbers_that_no_task_has_had():
    bench = grown()
    old = bench.attempt("Source[0]")
    bench.hand_over()
    assert {v.execution.attempt_id.attempt for v in bench.job.state.graph.vertices} == {1}
    assert bench.step(TaskReported(TaskStateChanged(old, S.FAILED, USER), bench.now_ms)) == []
    assert bench.job.status is JobStatus.RUNNING


def test_the_next_generation_takes_periodic_checkpoints_with_higher_ids():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.hand_over()
    bench.run_all()
    assert bench.complete() == checkpoint_id + 1
    assert bench.job.checkpoints.store.latest_id == checkpoint_id + 1


def test_fewer_subtasks_give_their_slots_back():
    bench = running()
    bench.rescale(FlatMap=(1, 1), KeyAggSink=(1, 1))
    effects = bench.hand_over()
    freed = [e.allocation_id for e in effects if isinstance(e, FreeSlot)]
    assert len(freed) == 1
    assert set(deployed(effects)) == {"Source[0]", "FlatMap[0]", "KeyAggSink[0]"}


@pytest.mark.parametrize("end", ["declined", "expired", "not stored", "no coordinator"])
def test_if_the_checkpoint_fails_the_tasks_go_on_and_it_is_tried_again(end):
    bench = running(coordinated=("Source",))
    bench.rescale(KeyAggSink=(1, 3))
    bench.offer("tm3")
    (checkpoint_id,) = ids_of([*bench.job.checkpoints.coordinator.pending.values()], object)
    if end == "no coordinator":
        effects = bench.coordinators_done(checkpoint_id, "enumerator is ill")
    else:
        bench.coordinators_done(checkpoint_id)
        if end == "declined":
            effects = bench.decline(checkpoint_id, "FlatMap[1]")
        elif end == "expired":
            effects = bench.fire("checkpoint-expiry")
        else:
            bench.ack_all(checkpoint_id)
            effects = bench.not_stored(checkpoint_id)
    assert only(effects, CheckpointEnded).location is None
    assert len(told(effects, NotifyCheckpointAborted)) == 5
    assert statuses(effects) == []
    assert bench.parallelism == TWO_EACH
    (again,) = bench.job.checkpoints.coordinator.pending
    assert again == checkpoint_id + 1


def test_a_failed_handover_is_tried_again_after_the_cooldown():
    bench = running(elastic=AdaptiveSettings(executing=COOLDOWN))
    bench.rescale(KeyAggSink=(1, 3))
    bench.offer("tm3")
    assert not bench.job.checkpoints.coordinator.pending
    (checkpoint_id,) = held(bench.pass_time(10_000))
    effects = bench.decline(checkpoint_id, "FlatMap[1]")
    assert held(effects) == set()
    assert held(bench.pass_time(9_999)) == set()
    assert held(bench.pass_time(1)) == {checkpoint_id + 1}


def test_periodic_checkpoints_go_on_after_a_failed_handover():
    bench = running(elastic=AdaptiveSettings(executing=COOLDOWN))
    bench.rescale(KeyAggSink=(1, 3))
    bench.offer("tm3")
    (checkpoint_id,) = held(bench.pass_time(10_000))
    bench.decline(checkpoint_id, "FlatMap[1]")
    assert bench.complete() == checkpoint_id + 1


def test_a_failure_during_the_handover_restarts_the_job_with_what_is_asked_for():
    bench = running()
    checkpoint_id = bench.complete()
    bench.rescale(KeyAggSink=(1, 3))
    bench.offer("tm3")
    assert held(bench.effects)
    bench.report("FlatMap[0]", S.FAILED, BROKEN)
    bench.confirm_cancels()
    effects = bench.fire("restart")
    (one,) = replaced(effects)
    assert (one.checkpoint_id, one.is_planned) == (checkpoint_id, False)
    assert bench.parallelism["KeyAggSink"] == 3
    assert statuses(effects) == ["RUNNING"]


def test_a_task_that_fails_after_the_handover_is_complete_changes_nothing():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    bench.report("FlatMap[0]", S.FAILED, BROKEN)
    effects = bench.confirm_cancels()
    (one,) = replaced(effects)
    assert (one.checkpoint_id, one.is_planned) == (checkpoint_id, True)
    assert bench.job.status is JobStatus.RUNNING
    assert [entry.root.failure for entry in bench.job.exceptions] == [BROKEN]


def test_a_taskmanager_lost_after_the_handover_is_complete_makes_the_next_generation_smaller():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    bench.lose("tm3")
    bench.lose("tm2")
    bench.confirm_cancels()
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}
    assert bench.job.status is JobStatus.RUNNING


def test_a_job_that_is_cancelled_during_the_handover_is_cancelled():
    bench = grown()
    bench.step(CancelJob(bench.now_ms))
    bench.confirm_cancels()
    assert bench.job.status is JobStatus.CANCELED


def test_a_job_that_is_cancelled_while_its_tasks_end_is_cancelled():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    bench.report("Source[0]", S.FINISHED)
    bench.step(CancelJob(bench.now_ms))
    effects = bench.confirm_cancels()
    assert bench.job.status is JobStatus.CANCELED
    assert replaced(effects) == []


def test_a_suspended_job_gives_everything_to_the_next_driver():
    bench = grown()
    bench.step(SuspendJob(bench.now_ms))
    assert bench.job.status is JobStatus.SUSPENDED


def test_a_savepoint_that_is_under_way_comes_before_the_handover():
    bench = running()
    (savepoint_id,) = ids_of(bench.savepoint(), TriggerCheckpoint)
    bench.rescale(KeyAggSink=(1, 3))
    assert held(bench.offer("tm3")) == set()
    bench.ack_all(savepoint_id)
    effects = bench.stored(savepoint_id)
    assert only(effects, SavepointAnswered).location is not None
    assert len(held(effects)) == 1


def test_a_savepoint_asked_for_during_the_handover_is_taken_by_the_next_generation():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    assert bench.savepoint() == []
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    bench.end_all()
    assert [e for e in bench.effects if isinstance(e, SavepointAnswered)] == []
    bench.run_all()
    (savepoint_id,) = bench.job.checkpoints.coordinator.pending
    bench.ack_all(savepoint_id)
    assert only(bench.stored(savepoint_id), SavepointAnswered).location is not None


def test_a_stop_with_a_savepoint_ends_the_handover():
    bench = grown()
    effects = bench.savepoint(CheckpointType.STOP_SUSPEND)
    assert len(told(effects, NotifyCheckpointAborted)) == 5
    (savepoint_id,) = bench.job.checkpoints.coordinator.pending
    bench.ack_all(savepoint_id)
    bench.stored(savepoint_id)
    for name in bench.names(S.RUNNING):
        effects = bench.report(name, S.FINISHED)
    assert only(effects, FinalizeJob)
    assert replaced(effects) == []


def test_a_stop_that_comes_when_the_handover_is_being_written_stops_the_next_generation():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    assert bench.savepoint(CheckpointType.STOP_SUSPEND) == []
    bench.stored(checkpoint_id)
    bench.end_all()
    bench.run_all()
    (savepoint_id,) = bench.job.checkpoints.coordinator.pending
    trigger = [e for e in bench.effects if isinstance(e, TriggerCheckpoint)]
    assert {one.options.type for one in trigger} == {CheckpointType.STOP_SUSPEND}
    assert savepoint_id == checkpoint_id + 1


def test_vertices_that_have_finished_do_not_keep_the_others_from_a_handover():
    bench = running()
    bench.report("Source[0]", S.FINISHED)
    bench.rescale(KeyAggSink=(1, 3))
    effects = bench.offer("tm3")
    assert len(held(effects)) == 1
    bench.hand_over(effects)
    assert bench.parallelism["KeyAggSink"] == 3


def test_a_job_that_ends_while_it_waits_for_slots_has_ended():
    bench = running()
    bench.rescale(KeyAggSink=(1, 3))
    effects = bench.finish_all()
    assert only(effects, FinalizeJob)


def test_two_requests_become_one_change_if_the_second_comes_before_the_slots():
    bench = running()
    bench.rescale(KeyAggSink=(1, 3))
    bench.rescale(KeyAggSink=(1, 4))
    bench.offer("tm3")
    bench.hand_over()
    assert bench.parallelism["KeyAggSink"] == 3, "with less than is desired, what suffices is taken"


def test_a_request_during_the_handover_counts_for_the_next_generation():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.rescale(KeyAggSink=(1, 1), FlatMap=(1, 1))
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    bench.end_all()
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}


def test_a_request_for_what_the_job_has_changes_nothing():
    bench = running()
    assert held(bench.rescale(KeyAggSink=(1, 2))) == set()


def test_slots_that_come_one_after_the_other_within_the_stabilization_make_one_change():
    bench = running(elastic=AdaptiveSettings(executing=STABLE))
    bench.rescale(KeyAggSink=(1, 5))
    assert held(bench.offer("tm3")) == set()
    bench.pass_time(1_000)
    assert held(bench.offer("tm4")) == set()
    bench.pass_time(1_000)
    assert len(held(bench.offer("tm5"))) == 1, "all that is desired is there"
    bench.hand_over()
    assert bench.parallelism["KeyAggSink"] == 5


def test_with_less_than_is_desired_the_change_waits_for_the_stabilization():
    bench = running(elastic=AdaptiveSettings(executing=STABLE))
    bench.rescale(KeyAggSink=(1, 5))
    bench.offer("tm3")
    assert held(bench.pass_time(4_999)) == set()
    assert len(held(bench.pass_time(1))) == 1


# ---------------------------------------------------------------------- the adaptive scheduler


def adaptive(**more) -> GenerationBench:
    return GenerationBench(AdaptiveSettings(is_adaptive=True, executing=AT_ONCE, **more))


def test_an_adaptive_job_begins_when_all_slots_are_there_that_it_wants():
    bench = adaptive(submission=STABLE)
    assert declared(bench.start()) == [2]
    assert deployed(bench.offer("tm1")) == {}
    assert len(deployed(bench.offer("tm2"))) == 5


def test_an_adaptive_job_begins_with_what_there_is_after_the_stabilization():
    bench = adaptive(submission=STABLE)
    bench.start()
    bench.offer("tm1")
    assert deployed(bench.pass_time(4_999)) == {}
    effects = bench.pass_time(1)
    assert set(deployed(effects)) == {"Source[0]", "FlatMap[0]", "KeyAggSink[0]"}
    assert statuses(effects) == ["RUNNING"]


def test_an_adaptive_job_grows_when_slots_come():
    bench = adaptive(submission=AT_ONCE)
    bench.begin("tm1")
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}
    bench.hand_over(bench.offer("tm2"))
    assert bench.parallelism == TWO_EACH


def test_an_adaptive_job_goes_on_with_fewer_slots_after_a_loss():
    bench = adaptive(submission=AT_ONCE)
    bench.begin("tm1")
    bench.hand_over(bench.offer("tm2"))
    bench.run_all()
    bench.lose("tm2")
    bench.confirm_cancels()
    effects = bench.fire("restart")
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}
    assert [one.is_planned for one in replaced(effects)] == [False]
    assert statuses(effects) == ["RUNNING"]


def test_an_adaptive_job_without_any_slot_fails_at_the_end_of_its_wait():
    bench = adaptive(wait_timeout_ms=60_000)
    bench.start()
    bench.now_ms = 60_000
    bench.step(TimerFired("adaptive-wait", 60_000))
    assert bench.job.status is JobStatus.FAILED
    assert "at least 1 slots" in bench.job.failure.text


def test_an_adaptive_job_is_cancelled_at_once_while_it_waits():
    bench = adaptive()
    bench.start()
    bench.step(CancelJob(0))
    assert bench.job.status is JobStatus.CANCELED


def test_a_failure_of_the_job_while_it_waits_ends_it():
    bench = adaptive()
    bench.start()
    bench.step(FailJob(FailureInfo("ValueError", "the enumerator is ill"), 0))
    assert bench.job.status is JobStatus.FAILED


def test_an_adaptive_job_restarts_after_its_backoff_with_all_slots():
    bench = adaptive(submission=AT_ONCE)
    bench.begin("tm1")
    bench.report("FlatMap[0]", S.FAILED, BROKEN)
    assert deployed(bench.confirm_cancels()) == {}
    assert len(deployed(bench.fire("restart"))) == 3


def test_if_more_than_there_is_is_asked_for_during_a_handover_the_job_goes_on_as_it_was():
    """Flink: a job whose lower bounds are above what there is runs on until there is enough."""
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    bench.rescale(KeyAggSink=(9, 9))
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    (replacing,) = replaced(bench.end_all())
    assert replacing.is_planned
    assert bench.parallelism == TWO_EACH
    assert bench.job.status is JobStatus.RUNNING


def test_a_job_that_waits_for_slots_is_rescaled_to_those_that_there_are_at_once():
    """From its newest checkpoint; it cannot take another one."""
    bench = running()
    (first,) = ids_of(bench.fire("checkpoint-trigger"), TriggerCheckpoint)
    bench.ack_all(first)
    bench.stored(first)
    bench.lose("tm2")
    bench.confirm_cancels()
    bench.fire("restart")
    bench.no_more_slots()
    assert bench.names(S.RUNNING) == []
    effects = bench.rescale(FlatMap=(1, 1), KeyAggSink=(1, 1))
    (replacing,) = replaced(effects)
    assert (replacing.checkpoint_id, replacing.is_planned) == (first, False)
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}
    bench.run_all()
    assert places(bench) == {"tm1"}


def test_a_job_that_has_never_had_its_slots_is_rescaled_too():
    bench = GenerationBench()
    bench.start()
    bench.offer("tm1")
    effects = bench.rescale(FlatMap=(1, 1), KeyAggSink=(1, 1))
    (replacing,) = replaced(effects)
    assert replacing.checkpoint_id is None
    bench.run_all()
    assert places(bench) == {"tm1"}


def elastic_bench(**more):
    elastic = AdaptiveSettings(executing=AT_ONCE, submission=AT_ONCE, history_size=9, **more)
    made = GenerationBench(elastic)
    made.begin("tm1", "tm2")
    return made


def recorded(made):
    return [(one.cause, one.end) for one in made.master.timeline.history]


def test_a_change_that_was_asked_for_succeeds():
    made = elastic_bench()
    made.rescale(KeyAggSink=(1, 3))
    made.hand_over(made.offer("tm3"))
    assert recorded(made) == [(RescaleCause.UPDATE_REQUIREMENT, RescaleEnd.SUCCEEDED)]
    (one,) = made.master.timeline.history
    change = one.vertices["KeyAggSink"]
    assert (change.before, change.after, change.desired, change.sufficient) == (2, 3, 3, 1)
    assert [span.state for span in one.states][-1] == "Executing"


def test_a_handover_that_fails_is_told_and_tried_again_as_another_rescale():
    made = elastic_bench()
    made.rescale(KeyAggSink=(1, 3))
    made.offer("tm3")
    (checkpoint_id,) = made.job.checkpoints.coordinator.pending
    made.decline(checkpoint_id, "FlatMap[1]")
    first, second = recorded(made)
    assert first == (RescaleCause.UPDATE_REQUIREMENT, RescaleEnd.EXCEPTION_OCCURRED)
    assert second == (RescaleCause.NEW_RESOURCE_AVAILABLE, None)


def test_another_request_makes_the_one_before_void():
    made = elastic_bench()
    made.rescale(KeyAggSink=(1, 3))
    made.rescale(KeyAggSink=(1, 4))
    assert recorded(made)[0][1] is RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED
    ids = [(one.rescale_id, one.requirements_id) for one in made.master.timeline.history]
    assert len({one for pair in ids for one in pair}) == 4


def test_the_end_of_the_job_ends_a_rescale():
    made = elastic_bench()
    made.rescale(KeyAggSink=(1, 3))
    made.step(CancelJob(made.now_ms))
    made.confirm_cancels()
    assert recorded(made) == [(RescaleCause.UPDATE_REQUIREMENT, RescaleEnd.JOB_CANCELED)]


def test_the_first_start_and_a_failover_of_an_adaptive_job_are_rescales():
    made = elastic_bench(is_adaptive=True)
    made.report("FlatMap[0]", S.FAILED, None)
    made.confirm_cancels()
    made.fire("restart")
    causes = [cause for cause, _ in recorded(made)]
    assert causes[0] is RescaleCause.INITIAL_SCHEDULE
    assert RescaleCause.RECOVERABLE_FAILOVER in causes


def news(effects):
    return [one.rescales for one in effects if isinstance(one, RescalesChanged)]


def test_news_is_told_once_and_first_that_there_is_nothing():
    made = elastic_bench()
    (found,) = news(made.rescale(KeyAggSink=(1, 3)))
    assert found.is_under_way
    made.offer("tm3")
    (checkpoint_id,) = held(made.effects)
    assert news(made.ack(checkpoint_id, made.names(S.RUNNING)[0])) == []
    made.ack_all(checkpoint_id)
    made.stored(checkpoint_id)
    (*_, last) = news(made.end_all())
    (one,) = last.kept
    assert one.end is RescaleEnd.SUCCEEDED


def test_a_job_that_is_not_elastic_has_no_news():
    made = GenerationBench()
    made.begin("tm1", "tm2")
    assert news(made.effects) == []
