"""Checkpoints of a job whose tasks end, and checkpoints that turn out to be damaged. Expectations:
docs/spec/checkpoints.md#savepoints-and-stopping, #finished-tasks.
"""

from dataclasses import replace

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.model.checkpoints import CheckpointType, RedistributionMode, SubtaskState
from penstock.engine.model.messages import CheckpointFailureReason as Reason
from penstock.engine.model.messages import (
    DiscardCheckpoint,
    FinalCheckpointAwaited,
    NotifyCheckpointAborted,
    ResetSubtasks,
    SavepointAnswered,
    TriggerCheckpoint,
)
from penstock.engine.model.messages.shared import FailureInfo
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
    written,
)
from tests.tools.machines.job_bench import USER
from tests.tools.machines.job_graphs import job_graph

# ------------------------------------------------------------------ finished tasks


def test_tasks_all_of_whose_producers_have_finished_are_triggered() -> None:
    bench = CheckpointBench()
    bench.finish(ALL[0])
    assert told(bench.fire("checkpoint-trigger"), TriggerCheckpoint) == ["FlatMap[0]", "FlatMap[1]"]
    checkpoint = written(bench.ack(1, *ALL[1:]))
    assert [o.is_fully_finished for o in checkpoint.operators] == [True, False, False]
    assert checkpoint.operators[0].subtasks == (None,)


def awaited(bench: CheckpointBench, *names: str) -> list:
    return [
        effect
        for name in names
        for effect in bench.step(FinalCheckpointAwaited(bench.attempt(name), bench.now_ms))
    ]


def test_when_all_tasks_are_at_their_end_the_last_checkpoint_is_taken_at_once() -> None:
    bench = CheckpointBench()
    bench.finish(ALL[0])
    assert awaited(bench, *ALL[1:4]) == []
    assert told(awaited(bench, ALL[4]), TriggerCheckpoint) == ["FlatMap[0]", "FlatMap[1]"]


def test_it_comes_behind_one_that_is_under_way() -> None:
    bench = CheckpointBench()
    bench.trigger()
    assert awaited(bench, *ALL) == []
    bench.ack(1, *ALL)
    assert ids_of(bench.stored(1), TriggerCheckpoint) == {2}


def test_the_last_checkpoint_that_met_the_end_of_a_task_is_taken_again() -> None:
    bench = CheckpointBench()
    bench.finish(ALL[0])
    assert ids_of(awaited(bench, *ALL[1:]), TriggerCheckpoint) == {1}
    assert ids_of(bench.decline(1, ALL[1], Reason.TASK_CLOSING), TriggerCheckpoint) == set()
    assert ids_of(bench.finish(ALL[1]), TriggerCheckpoint) == {2}


def test_tasks_that_a_checkpoint_has_covered_end_without_another() -> None:
    bench = CheckpointBench()
    assert ids_of(awaited(bench, *ALL), TriggerCheckpoint) == {1}
    bench.complete(1)
    for name in ALL:
        assert ids_of(bench.finish(name), TriggerCheckpoint) == set()


def test_a_savepoint_holds_what_finished_sinks_have_prepared_for_the_end_of_the_job() -> None:
    bench = CheckpointBench(CheckpointSettings(), graph=job_graph({"Left": 2, "Right": 1}, []))
    prepared = replace(state_of("left", list_handle(2, name="committables")), is_finished=True)
    bench.report("Left[0]", S.FINISHED, final_state=prepared)
    assert told(bench.savepoint(), TriggerCheckpoint) == ["Left[1]", "Right[0]"]
    left, right = written(bench.ack(1, "Left[1]", "Right[0]")).operators
    assert left.subtasks[0] == dict(prepared.operators)["left"]
    assert [(one.is_at_end, one.is_fully_finished) for one in (left, right)] == [(False, False)] * 2
    bench.stored(1)
    bench.report("Left[1]", S.FINISHED)
    assert told(bench.savepoint(), TriggerCheckpoint) == ["Right[0]"]
    left, _ = written(bench.ack(2, "Right[0]")).operators
    assert (left.is_at_end, left.is_fully_finished) == (True, False)


def test_a_savepoint_that_met_the_end_of_a_task_is_taken_again() -> None:
    bench = CheckpointBench(CheckpointSettings())
    assert ids_of(bench.savepoint(), TriggerCheckpoint) == {1}
    assert told(bench.finish(ALL[0]), TriggerCheckpoint) == ["FlatMap[0]", "FlatMap[1]"]
    bench.ack(2, *ALL[1:])
    assert only(bench.stored(2), SavepointAnswered).location == "chk-2"


def test_it_waits_for_a_task_that_declines_because_it_is_about_to_end() -> None:
    bench = CheckpointBench(CheckpointSettings())
    bench.savepoint()
    assert ids_of(bench.decline(1, ALL[0], Reason.TASK_CLOSING), TriggerCheckpoint) == set()
    assert ids_of(bench.finish(ALL[0]), TriggerCheckpoint) == {2}


def test_it_does_not_wait_longer_than_a_checkpoint_may_take() -> None:
    bench = CheckpointBench(CheckpointSettings(timeout_ms=1000))
    bench.savepoint()
    bench.decline(1, ALL[0], Reason.TASK_CLOSING)
    answer = only(bench.fire("checkpoint-expiry"), SavepointAnswered)
    assert answer.location is None and "CHECKPOINT_EXPIRED" in str(answer.failure)
    assert told(bench.finish(ALL[0]), TriggerCheckpoint) == []


def test_a_savepoint_that_waits_for_the_end_of_a_task_fails_with_the_job() -> None:
    bench = CheckpointBench(CheckpointSettings())
    bench.savepoint()
    bench.decline(1, ALL[0], Reason.TASK_CLOSING)
    answer = only(bench.report(ALL[1], S.FAILED, USER), SavepointAnswered)
    assert answer.location is None and "not RUNNING" in str(answer.failure)


def test_a_savepoint_that_stops_the_job_is_not_taken_again() -> None:
    """Its tasks have stopped for it, so the job fails, and goes on from its last checkpoint."""
    bench = CheckpointBench(CheckpointSettings())
    bench.savepoint(CheckpointType.STOP_SUSPEND)
    answer = only(bench.finish(ALL[0]), SavepointAnswered)
    assert answer.location is None and "TASK_CLOSING" in str(answer.failure)


def test_a_union_list_is_not_whole_without_a_finished_subtask_that_has_output_to_commit() -> None:
    bench = CheckpointBench(CheckpointSettings(), graph=job_graph({"Left": 2, "Right": 1}, []))
    prepared = replace(state_of("left", list_handle(2, name="committables")), is_finished=True)
    bench.report("Left[0]", S.FINISHED, final_state=prepared)
    bench.savepoint()
    union = state_of("left", list_handle(2, RedistributionMode.UNION))
    bench.ack(1, "Left[1]", state=union)
    answer = only(bench.ack(1, "Right[0]"), SavepointAnswered)
    assert answer.location is None and "union list" in str(answer.failure)


def test_who_waited_before_a_restart_does_not_count_after_it() -> None:
    bench = CheckpointBench()
    bench.complete()
    awaited(bench, *ALL[:4])
    bench.report(ALL[4], S.FAILED, USER)
    bench.confirm_cancels()
    bench.fire("restart")
    bench.run_all()
    assert awaited(bench, ALL[4]) == []


def test_who_waits_in_another_region_than_the_restarted_one_still_counts() -> None:
    bench = CheckpointBench(graph=job_graph({"Left": 1, "Right": 1}, []))
    bench.complete()
    awaited(bench, "Left[0]")
    bench.report("Right[0]", S.FAILED, USER)
    bench.fire("restart")
    bench.run_all()
    assert bench.vertex("Left[0]").execution.attempt_id.attempt == 0
    assert told(awaited(bench, "Right[0]"), TriggerCheckpoint) == ["Left[0]", "Right[0]"]


def test_without_checkpoints_after_tasks_finish_there_are_none() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, are_finished_tasks_allowed=False))
    bench.finish(ALL[0])
    assert ids_of(bench.fire("checkpoint-trigger"), TriggerCheckpoint) == set()


def test_a_union_list_of_a_vertex_that_has_finished_in_part_fails_the_checkpoint() -> None:
    bench = CheckpointBench()
    bench.finish(ALL[0], ALL[1])
    bench.trigger()
    union = state_of("flatmap", list_handle(2, RedistributionMode.UNION))
    bench.ack(1, ALL[2], state=union)
    bench.ack(1, *ALL[3:])
    assert bench.job.status is JobStatus.FAILING
    assert "'FlatMap' has finished in 1 of its 2 subtasks" in bench.job.failure.text


def test_a_subtask_that_acknowledges_at_its_end_of_data_counts_as_finished() -> None:
    bench = CheckpointBench()
    bench.trigger()
    bench.ack(1, *ALL[:3], state=SubtaskState(is_finished=True))
    checkpoint = written(bench.ack(1, *ALL[3:]))
    assert [o.is_fully_finished for o in checkpoint.operators] == [True, True, False]


def test_a_subtask_at_its_end_keeps_the_state_that_it_still_has() -> None:
    """A sink's last output is committed when this completes: it must be in it."""
    bench = CheckpointBench()
    bench.trigger()
    at_end = replace(state_of("source", list_handle(1)), is_finished=True)
    bench.ack(1, ALL[0], state=at_end)
    checkpoint = written(bench.ack(1, *ALL[1:]))
    source = checkpoint.operators[0]
    assert (source.is_fully_finished, source.is_at_end) == (False, True)
    assert source.subtasks == (at_end.operators[0][1],)
    assert [o.is_at_end for o in checkpoint.operators] == [True, False, False]


def test_a_task_that_ends_without_an_acknowledgement_aborts_what_waits_for_it() -> None:
    bench = CheckpointBench()
    bench.trigger()
    effects = bench.finish(ALL[0])
    assert told(effects, NotifyCheckpointAborted) == sorted(
        str(bench.attempt(name).execution_vertex_id) for name in ALL[1:]
    )
    assert bench.job.status is JobStatus.RUNNING


# ------------------------------------------------------------------ damaged checkpoints

DAMAGED = FailureInfo("CheckpointDamaged", "/there/chk-2/file has been altered")


def restarted_from(bench: CheckpointBench) -> int | None:
    bench.confirm_cancels()
    return only(bench.fire("restart"), ResetSubtasks).checkpoint_id


def test_a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before() -> None:
    bench = CheckpointBench(replace(EVERY_SECOND, num_retained=2))
    assert (bench.complete(), bench.complete()) == (1, 2)
    bench.report(ALL[1], S.FAILED, USER)
    assert restarted_from(bench) == 2
    effects = bench.report(ALL[2], S.FAILED, DAMAGED)
    assert ids_of([e.checkpoint for e in effects if isinstance(e, DiscardCheckpoint)], object) == {
        2
    }
    assert bench.job.status is JobStatus.FAILING
    assert restarted_from(bench) == 1
    bench.run_all()
    assert bench.complete() == 3


def test_without_an_earlier_one_the_job_ends_and_says_why() -> None:
    bench = CheckpointBench()
    bench.complete()
    bench.report(ALL[1], S.FAILED, USER)
    assert restarted_from(bench) == 1
    bench.report(ALL[2], S.FAILED, DAMAGED)
    bench.confirm_cancels()
    assert bench.job.status is JobStatus.FAILED
    assert "num-retained" in bench.job.failure.text


def test_a_job_without_a_checkpoint_restarts_as_ever() -> None:
    bench = CheckpointBench()
    bench.report(ALL[2], S.FAILED, DAMAGED)
    assert restarted_from(bench) is None
