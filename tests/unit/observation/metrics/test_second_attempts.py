"""Metrics of second attempts, by docs/spec/elasticity.md#second-attempts."""

from penstock.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.model.messages import ExecutionStateChanged, ResetSubtasks, SlowSubtasks
from penstock.model.states import ExecutionState as S
from penstock.observation.metrics.second_attempts import SecondAttempts


def attempt(number, subtask=0):
    return AttemptId(ExecutionVertexId(VertexId("copy"), subtask), number)


def moved(attempt_id, old, new, *, is_concurrent=False):
    return ExecutionStateChanged(attempt_id, old, new, 0, is_concurrent=is_concurrent)


def values(*events):
    told = SecondAttempts()
    for event in events:
        told.take(event)
    return {one.name: one.value for one in told.measured()}


SECOND_BEGINS = moved(attempt(1), S.CREATED, S.SCHEDULED, is_concurrent=True)
SECOND_WINS = moved(attempt(1), S.RUNNING, S.FINISHED)
FIRST_WINS = moved(attempt(0), S.RUNNING, S.FINISHED)
FIRST_IS_CANCELLED = moved(attempt(0), S.RUNNING, S.CANCELING, is_concurrent=True)


def effective(*events):
    return values(SlowSubtasks(0), *events)["numEffectiveSpeculativeExecutions"]


def test_a_job_whose_subtasks_are_not_watched_has_none():
    assert values(moved(attempt(0), S.CREATED, S.SCHEDULED), FIRST_WINS) == {}


def test_how_many_are_slow_is_what_was_told_last():
    assert values(SlowSubtasks(0), SlowSubtasks(3))["numSlowExecutionVertices"] == 3


def test_a_second_attempt_that_finishes_first_counts():
    assert effective(SECOND_BEGINS, SECOND_WINS, FIRST_IS_CANCELLED) == 1


def test_the_first_attempt_and_second_ones_that_lose_do_not_count():
    lost = moved(attempt(1), S.RUNNING, S.CANCELING, is_concurrent=True)
    assert effective(SECOND_BEGINS, FIRST_WINS, lost) == 0


def test_a_subtask_that_starts_again_was_not_won():
    again = ResetSubtasks((attempt(0).execution_vertex_id,), is_global=False)
    assert effective(SECOND_BEGINS, SECOND_WINS, again) == 0
    third = moved(attempt(2), S.RUNNING, S.FINISHED)
    assert effective(SECOND_BEGINS, SECOND_WINS, again, third) == 0
