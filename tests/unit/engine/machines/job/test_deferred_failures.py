"""A consumer that lost its producer waits for the producer's own report, which has the cause (docs/spec/failover.md#the-cause-of-a-failure)."""

import pytest

from penstock.engine.machines.failover import FixedDelayRestart
from penstock.engine.machines.job.failure_handler import CAUSE_WAIT_MS
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.messages import CancelJob, FailJob, FailureInfo, JobStatusChanged
from penstock.engine.model.states import ExecutionState as S
from tests.tools.machines.job_bench import USER, Bench, statuses
from tests.tools.machines.job_bench import running_word_count as running

LOST = FailureInfo("ProducerFailed", "the producer failed: UserCodeError")
CONSUMERS = ("KeyAggSink[0]", "KeyAggSink[1]")


def restarting() -> JobSettings:
    return JobSettings(make_backoff=lambda: FixedDelayRestart(3, 1000))


def told(bench: Bench) -> list:
    return [e.failure for e in bench.effects if isinstance(e, JobStatusChanged)]


@pytest.mark.parametrize("first", [1, 2])
def test_a_job_that_does_not_restart_tells_the_cause_and_never_that_it_restarts(first):
    bench = running()
    for name in CONSUMERS[:first]:
        assert statuses(bench.report(name, S.FAILED, LOST)) == []
    bench.report("FlatMap[0]", S.FAILED, USER)
    assert statuses(bench.effects) == ["FAILING"]
    bench.confirm_cancels()
    assert bench.job.status.name == "FAILED"
    assert bench.job.failure == USER


def test_a_job_that_restarts_tells_the_cause():
    bench = running(restarting())
    bench.report(CONSUMERS[0], S.FAILED, LOST)
    bench.report("FlatMap[0]", S.FAILED, USER)
    assert statuses(bench.effects) == ["RESTARTING"]
    assert told(bench) == [USER]
    bench.confirm_cancels()
    bench.fire("restart-")
    assert all(v.state is not S.FAILED for v in bench.job.state.graph.vertices)


def test_the_consumer_of_a_consumer_waits_for_the_cause_too():
    bench = running(restarting())
    for name in ("FlatMap[0]", "FlatMap[1]", *CONSUMERS):
        assert statuses(bench.report(name, S.FAILED, LOST)) == []
    bench.report("Source[0]", S.FAILED, USER)
    assert told(bench) == [USER]


def test_the_order_of_the_two_reports_does_not_matter():
    def history(*reports):
        bench = running(restarting())
        for name, failure in reports:
            bench.report(name, S.FAILED, failure)
        (entry,) = bench.job.exceptions
        return bench.job.failure, entry.root.task, {one.task for one in entry.concurrent}

    cause, consequence = ("FlatMap[0]", USER), (CONSUMERS[0], LOST)
    assert history(consequence, cause) == history(cause, consequence)


def test_the_history_has_the_cause_with_what_followed_from_it():
    bench = running(restarting())
    bench.report(CONSUMERS[0], S.FAILED, LOST)
    bench.report("FlatMap[0]", S.FAILED, USER)
    (entry,) = bench.job.exceptions
    assert entry.root.failure == USER
    assert [one.failure for one in entry.concurrent] == [LOST]


def test_a_lost_taskmanager_is_a_cause_too():
    bench = running()
    bench.report(CONSUMERS[1], S.FAILED, LOST)
    bench.lose("tm1")
    assert statuses(bench.effects) == ["RESTARTING"]
    assert told(bench)[0].kind == "TaskManagerLost"


def test_without_a_cause_the_consumers_report_decides_after_a_while():
    bench = running()
    bench.report(CONSUMERS[0], S.FAILED, LOST)
    bench.report(CONSUMERS[1], S.FAILED, LOST)
    bench.fire("cause-of-failure")
    assert bench.now_ms == CAUSE_WAIT_MS
    assert statuses(bench.effects) == ["RESTARTING"]
    assert told(bench) == [LOST]


def test_the_timer_of_a_failure_whose_cause_has_come_changes_nothing():
    bench = running(restarting())
    bench.report(CONSUMERS[0], S.FAILED, LOST)
    bench.report("FlatMap[0]", S.FAILED, USER)
    assert statuses(bench.fire("cause-of-failure")) == []


@pytest.mark.parametrize("event", [CancelJob(1), FailJob(USER, 1)])
def test_a_job_that_ends_meanwhile_ends(event):
    bench = running()
    bench.report(CONSUMERS[0], S.FAILED, LOST)
    bench.step(event)
    bench.confirm_cancels()
    assert bench.job.status.is_terminal


def test_the_report_of_a_consumer_whose_producers_have_all_reported_waits_for_nothing():
    bench = running()
    bench.finish("Source[0]", "FlatMap[0]", "FlatMap[1]")
    bench.report(CONSUMERS[0], S.FAILED, LOST)
    assert statuses(bench.effects) == ["RESTARTING"]
