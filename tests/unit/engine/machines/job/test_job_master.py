"""One job from submission to its end, by docs/spec/scheduling.md#one-round,
#bulks-that-wait-for-slots, docs/spec/execution-graph.md#states-of-a-job,
docs/spec/failover.md#from-failure-to-restart, and the two examples of
docs/spec/slots.md#sharing-by-local-input: a word count, and Flink's figure.
"""

import pytest

from penstock.engine.machines.failover import FixedDelayRestart, NoRestart
from penstock.engine.machines.job_state.job_settings import JobSettings, job_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import AllocationId
from penstock.engine.model.messages import (
    AnswerOffers,
    CancelJob,
    DeclareRequirements,
    DeployTask,
    FailJob,
    FailureInfo,
    FinalizeJob,
    FreeSlot,
    JobFinalized,
    JobStatusChanged,
    NotEnoughResources,
    ReleasePartitions,
    ResetSubtasks,
    SuspendJob,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.engine.model.options.cluster import LoadBalanceMode
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.job_bench import BROKEN, USER, Bench, cancelled, deployed, statuses
from tests.tools.machines.job_graphs import A2A, figure, job_graph, word_count


def running(graph=None, settings: JobSettings | None = None) -> Bench:
    """The word count, with all tasks running on tm1 and tm2."""
    bench = Bench(graph or word_count(), settings)
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    bench.run_all()
    return bench


COORDINATOR = FailureInfo("EnumeratorFailed", "no such directory")


def fixed(attempts: int = 3) -> JobSettings:
    return JobSettings(make_backoff=lambda: FixedDelayRestart(attempts, 1000))


# ------------------------------------------------------------------ the way up


def test_a_word_count_from_submission_to_its_end() -> None:
    bench = Bench(word_count())
    effects = bench.start()
    assert statuses(effects) == ["RUNNING"]
    assert [e.slots for e in effects if isinstance(e, DeclareRequirements)] == [2]
    assert deployed(bench.offer("tm1")) == {}
    assert deployed(bench.offer("tm2")) == {
        "Source[0]": "tm1",
        "FlatMap[0]": "tm1",
        "FlatMap[1]": "tm2",
        "KeyAggSink[0]": "tm1",
        "KeyAggSink[1]": "tm2",
    }


def test_the_figure_of_flinks_documentation_runs_in_four_slots_with_two_to_spare() -> None:
    bench = Bench(figure())
    bench.start()
    bench.offer("tm1", 3)
    effects = bench.offer("tm2", 3)
    assert len(deployed(effects)) == 11
    (answer,) = [e for e in effects if isinstance(e, AnswerOffers)]
    assert (len(answer.accepted), len(answer.rejected)) == (1, 2)


def test_consumers_know_their_producers_when_they_are_deployed() -> None:
    bench = Bench(word_count())
    bench.start()
    bench.offer("tm1")
    effects = bench.offer("tm2")
    gates = {
        f"{e.deployment.vertex_name}[{e.deployment.attempt_id.subtask}]": e.deployment.gates
        for e in effects
        if isinstance(e, DeployTask)
    }
    (gate,) = gates["KeyAggSink[1]"]
    assert gate.subpartition_index == 1
    assert [channel.location.resource_id for channel in gate.channels] == ["tm1", "tm2"]
    assert gates["Source[0]"] == ()
    assert gates["FlatMap[1]"][0].subpartition_index == 1
    source = next(e for e in effects if isinstance(e, DeployTask)).deployment
    assert [p.subpartitions for p in source.partitions] == [2]


def test_a_job_finishes_when_its_results_are_visible() -> None:
    bench = running()
    effects = bench.finish_all()
    (finalize,) = [e for e in effects if isinstance(e, FinalizeJob)]
    assert len(finalize.committables) == 5
    assert bench.job.status is JobStatus.RUNNING
    effects = bench.step(JobFinalized(9))
    assert statuses(effects) == ["FINISHED"]
    assert {e.allocation_id for e in effects if isinstance(e, FreeSlot)} == {"tm1/0", "tm2/0"}
    assert isinstance(effects[-1], JobStatusChanged)


def test_requirements_fall_as_slots_are_left_and_end_at_zero() -> None:
    bench = running()
    effects = bench.finish("Source[0]", "FlatMap[0]", "KeyAggSink[0]")
    assert [e.slots for e in effects if isinstance(e, DeclareRequirements)] == [1]
    effects = bench.finish("FlatMap[1]", "KeyAggSink[1]")
    assert [e.slots for e in effects if isinstance(e, DeclareRequirements)] == [0]


# ------------------------------------------------------------------ stale news


def test_reports_of_past_attempts_and_repeats_change_nothing() -> None:
    bench = running()
    old = bench.vertex("Source[0]").execution.attempt_id
    assert bench.report("Source[0]", S.RUNNING) == []
    assert bench.report("Source[0]", S.INITIALIZING) == []
    bench.lose("tm1")
    bench.confirm_cancels()
    bench.offer("tm3")
    bench.fire("restart")
    assert bench.vertex("Source[0]").execution.attempt_id.attempt == 1
    stale = bench.vertex("Source[0]").execution
    assert bench.step(TaskReported(TaskStateChanged(old, S.FAILED, USER), 5)) == []
    assert stale.state is S.DEPLOYING


def test_timers_that_ring_late_are_harmless() -> None:
    bench = running()
    for timer in ("slots-0", "restart-0", "idle-slots", "unknown"):
        assert bench.step(TimerFired(timer, 999_999_999)) == []


def test_a_running_report_out_of_order_fails_the_task() -> None:
    bench = Bench(word_count())
    bench.start()
    bench.offer("tm1")
    bench.offer("tm2")
    effects = bench.report("Source[0]", S.RUNNING)
    assert "FAILING" in statuses(effects)
    assert bench.job.failure.kind == "UnexpectedReport"


# ------------------------------------------------------------------ failures


def test_by_default_a_user_failure_ends_the_job_with_its_text() -> None:
    bench = running()
    effects = bench.report("FlatMap[0]", S.FAILED, USER)
    assert statuses(effects) == ["FAILING"]
    assert cancelled(effects) == 4
    effects = bench.confirm_cancels()
    assert statuses(effects) == ["FAILED"]
    assert [e.failure for e in effects if isinstance(e, JobStatusChanged)] == [USER]
    assert [e.slots for e in effects if isinstance(e, DeclareRequirements)][-1] == 0
    assert len([e for e in effects if isinstance(e, FreeSlot)]) == 2


def test_by_default_twenty_lost_task_managers_do_not_end_the_job() -> None:
    bench = running()
    for loss in range(20):
        victim = str(bench.vertex("Source[0]").execution.location.resource_id)
        effects = bench.lose(victim)
        assert statuses(effects) == ["RESTARTING"]
        bench.confirm_cancels()
        bench.offer(f"new{loss}")
        bench.fire("restart")
        assert bench.job.status is JobStatus.RUNNING
        bench.run_all()
    bench.finish_all()
    assert statuses(bench.step(JobFinalized(1))) == ["FINISHED"]
    attempts = [
        p.attempt_id.attempt for p in bench.job.where_tasks_ran() if p.vertex_name == "Source"
    ]
    assert max(attempts) == 20


def test_a_restart_waits_for_the_delay_and_for_the_end_of_the_old_attempts() -> None:
    bench = running()
    bench.lose("tm1")
    effects = bench.fire("restart")
    assert not [e for e in effects if isinstance(e, ResetSubtasks)]
    effects = bench.confirm_cancels()
    (reset,) = [e for e in effects if isinstance(e, ResetSubtasks)]
    assert len(reset.vertices) == 5
    assert not reset.is_global
    effects = bench.offer("tm3")
    assert set(deployed(effects).values()) == {"tm2", "tm3"}


def test_subtasks_are_reset_before_their_new_attempts_are_deployed() -> None:
    bench = running()
    bench.lose("tm1")
    bench.confirm_cancels()
    bench.offer("tm3")
    effects = bench.fire("restart")
    kinds = [type(e) for e in effects]
    assert kinds.index(ResetSubtasks) < kinds.index(DeployTask)


def test_a_broken_connection_does_not_hide_the_user_failure_that_broke_it() -> None:
    bench = running()
    effects = bench.report("KeyAggSink[0]", S.FAILED, BROKEN)
    assert statuses(effects) == ["RESTARTING"]
    effects = bench.report("FlatMap[0]", S.FAILED, USER)
    assert statuses(effects) == ["FAILING"]
    effects = bench.confirm_cancels()
    assert [e.failure for e in effects if isinstance(e, JobStatusChanged)] == [USER]


def test_with_no_restart_a_later_explanation_replaces_a_broken_connection() -> None:
    bench = running(settings=JobSettings(make_backoff=NoRestart))
    bench.report("KeyAggSink[0]", S.FAILED, BROKEN)
    bench.lose("tm2")
    effects = bench.confirm_cancels()
    (failed,) = [e for e in effects if isinstance(e, JobStatusChanged)]
    assert failed.failure.kind == "TaskManagerLost"
    assert failed.failure.lost_task_manager == "tm2"


def test_a_restart_names_the_taskmanager_whose_loss_caused_it() -> None:
    bench = running(settings=fixed(attempts=2))
    (restarting,) = [e for e in bench.lose("tm2") if isinstance(e, JobStatusChanged)]
    assert (restarting.status, restarting.failure.lost_task_manager) == (
        JobStatus.RESTARTING,
        "tm2",
    )


def test_a_restart_names_the_taskmanager_that_shuts_down_with_its_tasks() -> None:
    bench = running(settings=fixed(attempts=2))
    (vertex,) = [v for v in bench.job.state.graph.vertices if str(v) == "Source[0]"]
    known = vertex.execution.location.resource_id
    effects = bench.report("Source[0]", S.CANCELED)
    (restarting,) = [e for e in effects if isinstance(e, JobStatusChanged)]
    assert restarting.failure.lost_task_manager == known


def test_a_strategy_of_the_program_counts_user_failures_and_lost_machines() -> None:
    bench = running(settings=fixed(attempts=2))
    for _ in range(2):
        bench.report("FlatMap[0]", S.FAILED, USER)
        bench.confirm_cancels()
        bench.fire("restart")
        bench.run_all()
    effects = bench.report("FlatMap[0]", S.FAILED, USER)
    assert statuses(effects) == ["FAILING"]


def test_a_failure_that_no_restart_can_mend_ends_the_job() -> None:
    bench = running(settings=fixed())
    hopeless = FailureInfo("NotRestartable", "no", is_recoverable=False)
    assert statuses(bench.report("FlatMap[0]", S.FAILED, hopeless)) == ["FAILING"]


def test_only_the_failed_region_restarts() -> None:
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")])
    bench = Bench(graph, fixed())
    bench.start()
    bench.offer("tm1", 2)
    bench.run_all()
    bench.report("B[1]", S.FAILED, USER)
    assert bench.vertex("A[0]").state is S.RUNNING
    assert bench.vertex("A[1]").state is S.CANCELING
    bench.confirm_cancels()
    effects = bench.fire("restart")
    assert deployed(effects).keys() == {"A[1]", "B[1]"}
    bench.run_all()
    bench.finish_all()
    (finalize,) = [e for e in bench.effects if isinstance(e, FinalizeJob)]
    assert {c.payload for c in finalize.committables} == {"A[0]#0", "A[1]#1", "B[0]#0", "B[1]#1"}


def test_a_second_failure_takes_over_the_first_restart() -> None:
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")])
    bench = Bench(graph, fixed())
    bench.start()
    bench.offer("tm1", 2)
    bench.run_all()
    bench.report("B[0]", S.FAILED, USER)
    bench.step(FailJob(FailureInfo("EnumeratorFailed", "x"), 1))
    bench.confirm_cancels()
    first = bench.step(TimerFired("restart-0", 5000))
    assert not [e for e in first if isinstance(e, ResetSubtasks)]
    second = bench.step(TimerFired("restart-1", 6000))
    (reset,) = [e for e in second if isinstance(e, ResetSubtasks)]
    assert reset.is_global
    assert len(reset.vertices) == 4
    assert bench.job.status is JobStatus.RUNNING


def test_a_failing_coordinator_ends_or_restarts_the_whole_job() -> None:
    failure = FailureInfo("EnumeratorFailed", "no such directory")
    bench = running()
    assert statuses(bench.step(FailJob(failure, 1))) == ["FAILING"]
    bench = running(settings=fixed())
    assert statuses(bench.step(FailJob(failure, 1))) == ["FAILING"]
    assert bench.vertex("Source[0]").state is S.CANCELING


def test_failing_to_finalize_fails_the_job_without_a_restart() -> None:
    bench = running(settings=fixed())
    bench.finish_all()
    effects = bench.step(FailJob(FailureInfo("CommitFailed", "disk full"), 1))
    assert statuses(effects) == ["FAILING", "FAILED"]
    assert bench.step(JobFinalized(2)) == []


def test_a_task_cancelled_without_being_asked_is_restarted() -> None:
    bench = running()
    assert statuses(bench.report("Source[0]", S.CANCELED)) == ["RESTARTING"]


# ------------------------------------------------------------------ cancel


def test_cancel_ends_all_tasks_then_the_job() -> None:
    bench = running()
    effects = bench.step(CancelJob(1))
    assert statuses(effects) == ["CANCELLING"]
    assert cancelled(effects) == 5
    assert statuses(bench.step(CancelJob(1))) == []
    assert bench.step(FailJob(USER, 2)) == []
    assert statuses(bench.confirm_cancels()) == ["CANCELED"]
    assert bench.step(CancelJob(3)) == []
    assert bench.offer("tm9") == [AnswerOffers("tm9", (), ("tm9/0",))]


def test_cancel_before_any_slot_came_ends_at_once() -> None:
    bench = Bench(word_count())
    bench.start()
    effects = bench.step(CancelJob(1))
    assert statuses(effects) == ["CANCELLING", "CANCELED"]
    assert [e.slots for e in effects if isinstance(e, DeclareRequirements)] == [0]


def test_cancel_during_a_restart_and_during_finalizing() -> None:
    bench = running()
    bench.lose("tm1")
    bench.step(CancelJob(1))
    assert statuses(bench.confirm_cancels()) == ["CANCELED"]
    assert bench.step(TimerFired("restart-0", 9999)) == []
    bench = running()
    bench.finish_all()
    assert bench.step(CancelJob(1)) == []
    assert statuses(bench.step(JobFinalized(2))) == ["FINISHED"]


def test_a_lost_machine_ends_the_cancelling_of_its_tasks() -> None:
    bench = running()
    bench.step(CancelJob(1))
    bench.lose("tm1")
    assert statuses(bench.lose("tm2")) == ["CANCELED"]


# ------------------------------------------------------------------ waiting for slots


def test_without_slots_the_job_says_what_it_asked_for_and_why_there_is_none() -> None:
    bench = Bench(word_count(), JobSettings(slot_request_timeout_ms=1000))
    bench.start()
    bench.offer("tm1")
    bench.step(NotEnoughResources(1, "one core is all there is", 10))
    effects = bench.fire("slots")
    assert statuses(effects) == ["FAILING", "FAILED"]
    text = bench.job.failure.text
    assert bench.job.failure.kind == "NoResourceAvailable"
    for word in ("2 slots", "5 tasks", "1 of them", "1 s", "one core", "slot.request.timeout"):
        assert word in text


def test_a_slot_lost_while_others_are_awaited_is_asked_for_again() -> None:
    bench = Bench(word_count())
    bench.start()
    bench.offer("tm1")
    assert statuses(bench.lose("tm1")) == ["RESTARTING"]
    bench.fire("restart")
    bench.offer("tm2")
    assert len(deployed(bench.offer("tm3"))) == 5
    assert bench.step(TimerFired("slots-0", 300_000)) == []


def test_offers_of_a_machine_that_is_gone_are_refused() -> None:
    bench = running()
    bench.lose("tm1")
    assert bench.offer("tm1") == [AnswerOffers("tm1", (), ("tm1/0",))]


# ------------------------------------------------------------------ settings and views


def test_with_local_recovery_tasks_get_their_slots_back() -> None:
    settings = JobSettings(is_local_recovery=True, make_backoff=lambda: FixedDelayRestart(3, 1000))
    graph = job_graph({"A": 3}, [])
    bench = Bench(graph, settings)
    bench.start()
    bench.offer("tm1", 3)
    bench.run_all()
    before = bench.vertex("A[2]").execution.allocation_id
    for name in ("A[0]", "A[2]"):
        bench.report(name, S.FAILED, USER)
    bench.fire("restart-1")
    bench.fire("restart-0")
    assert bench.vertex("A[2]").execution.allocation_id == before
    assert bench.vertex("A[0]").execution.allocation_id == AllocationId("tm1/0")


def test_tasks_are_balanced_over_machines_when_asked() -> None:
    settings = JobSettings(load_balance=LoadBalanceMode.TASKS)
    bench = Bench(job_graph({"A": 1, "B": 3, "C": 2}, [("A", "B", A2A), ("B", "C", A2A)]), settings)
    bench.start()
    assert deployed(bench.offer("tm1", 2)) == {}
    assert len(deployed(bench.offer("tm2", 1))) == 6


def test_the_story_and_the_views_tell_where_tasks_ran() -> None:
    bench = running()
    places = {
        f"{p.vertex_name}[{p.subtask}]": p.location.resource_id for p in bench.job.where_tasks_ran()
    }
    assert places["FlatMap[1]"] == "tm2"
    lines = bench.job.story.last(3)
    assert [line.event for line in lines] == ["TaskReported"] * 3


def test_settings_are_read_from_options_and_nonsense_is_refused() -> None:
    found = job_settings_of(
        Settings({"slot.request.timeout": "7 s", "cluster.evenly-spread-out-slots": "true"})
    )
    assert found.slot_request_timeout_ms == 7000
    assert found.load_balance is LoadBalanceMode.SLOTS
    assert found.selection.is_spreading
    assert job_settings_of(Settings({"state.backend.local-recovery": "true"})).is_local_recovery
    for key, value in {
        "taskmanager.load-balance.mode": "some",
        "jobmanager.execution.failover-strategy": "individual",
        "restart-strategy.type": "maybe",
    }.items():
        with pytest.raises(ConfigurationError, match=key):
            job_settings_of(Settings({key: value}))


def test_full_failover_restarts_regions_that_did_not_fail() -> None:
    settings = job_settings_of(
        Settings({
            "jobmanager.execution.failover-strategy": "full",
            "restart-strategy.type": "fixed-delay",
        })
    )
    bench = Bench(job_graph({"A": 2}, []), settings)
    bench.start()
    bench.offer("tm1", 2)
    bench.run_all()
    bench.report("A[0]", S.FAILED, USER)
    assert bench.vertex("A[1]").state is S.CANCELING


# ------------------------------------------------------------------ suspend


def test_a_suspended_job_lets_go_of_everything_at_once_and_commits_nothing() -> None:
    bench = running()
    effects = bench.step(SuspendJob(1))
    assert statuses(effects) == ["SUSPENDED"]
    assert cancelled(effects) == 5
    assert sum(isinstance(e, FreeSlot) for e in effects) == 2
    assert not [e for e in effects if isinstance(e, FinalizeJob | ReleasePartitions)]
    assert [e.slots for e in effects if isinstance(e, DeclareRequirements)] == [0]
    assert {v.state for v in bench.job.state.graph.vertices} == {S.CANCELED}
    assert bench.confirm_cancels() == bench.step(CancelJob(2)) == bench.step(SuspendJob(3)) == []
    assert bench.offer("tm9") == [AnswerOffers("tm9", (), ("tm9/0",))]


def test_a_job_is_suspended_from_wherever_it_is() -> None:
    bench = Bench(word_count())
    assert statuses(bench.step(SuspendJob(0))) == ["SUSPENDED"]
    bench = Bench(word_count())
    bench.start()
    assert statuses(bench.step(SuspendJob(1))) == ["SUSPENDED"]
    bench = running()
    bench.lose("tm1")
    assert statuses(bench.step(SuspendJob(1))) == ["SUSPENDED"]
    assert bench.step(TimerFired("restart-0", 9999)) == []
    bench = running(settings=fixed())
    assert statuses(bench.step(FailJob(USER, 1))) == ["FAILING"]
    assert statuses(bench.step(SuspendJob(1))) == ["SUSPENDED"]
    assert bench.confirm_cancels() == bench.step(TimerFired("restart-0", 9999)) == []
    bench = running()
    bench.step(CancelJob(1))
    assert statuses(bench.step(SuspendJob(1))) == ["SUSPENDED"]
    bench = running()
    bench.finish_all()
    assert statuses(bench.step(SuspendJob(1))) == ["SUSPENDED"]
    assert bench.step(JobFinalized(2)) == []
