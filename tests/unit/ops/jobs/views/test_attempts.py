from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.views import attempts
from tests.tools.observation.job_records import BEGAN, ToldJob, attempt


def first(told):
    return told.now_it_is().vertices[0].attempts[0]


def test_an_attempt_runs_from_its_deployment_to_its_end():
    told = ToldJob().moves(attempt(), "SCHEDULED", "DEPLOYING", "RUNNING", after_ms=10)
    assert attempts.span_of(first(told), BEGAN + 50) == (BEGAN + 20, -1, 30)
    told.moves(attempt(), "FINISHED", after_ms=5)
    assert attempts.span_of(first(told), BEGAN + 999) == (BEGAN + 20, BEGAN + 35, 15)


def test_an_attempt_that_was_never_deployed_has_no_times():
    told = ToldJob().moves(attempt(), "SCHEDULED")
    assert attempts.span_of(first(told), BEGAN + 50) == (-1, -1, -1)


def test_several_attempts_run_until_the_last_has_ended():
    told = ToldJob().runs().moves(attempt(subtask=0), "FINISHED", after_ms=8)
    both = told.now_it_is().vertices[0].attempts
    assert attempts.span_of_all(both, BEGAN + 20) == (BEGAN, -1, 20)
    told.moves(attempt(subtask=1), "FINISHED", after_ms=4)
    both = told.now_it_is().vertices[0].attempts
    assert attempts.span_of_all(both, BEGAN + 99) == (BEGAN, BEGAN + 12, 12)


def test_each_state_lasts_until_the_next_one():
    told = ToldJob().moves(attempt(), "SCHEDULED", "DEPLOYING", "INITIALIZING", after_ms=10)
    assert attempts.state_durations(first(told), BEGAN + 37) == {
        "CREATED": 10,
        "SCHEDULED": 10,
        "DEPLOYING": 10,
        "INITIALIZING": 7,
        "RUNNING": -1,
    }


def test_counters_are_complete_when_every_attempt_has_reported():
    told = attempts.counters_of([TaskIo(records_in=2, bytes_out=3), None])
    assert (told["read-records"], told["write-bytes"]) == (2, 3)
    assert told["read-records-complete"] is False
    assert attempts.counters_of([TaskIo()])["read-records-complete"] is True


def test_a_distribution_is_of_whole_numbers():
    assert attempts.distribution([1, 2, 6]) == {
        "min": 1, "max": 6, "avg": 3, "sum": 9, "median": 2, "p25": 1, "p75": 6, "p95": 6,
    }  # fmt: skip
    assert set(attempts.distribution([]).values()) == {0}


def test_all_states_are_counted():
    counted = attempts.counts_of(ToldJob().runs().now_it_is().vertices[0].attempts)
    assert set(counted) == {str(state) for state in ExecutionState}
    assert counted["RUNNING"] == 2


def test_taskmanagers_of_two_jobs_have_different_names():
    assert taskmanager_name("a" * 32, "tm-1") != taskmanager_name("b" * 32, "tm-1")
