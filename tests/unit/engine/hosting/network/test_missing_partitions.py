"""A partition that is not there: timers, questions to the JobMaster and what the consumer does then."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.data_plane import DelayedCalls
from penstock.engine.hosting.network.partition_registry import TaskEventDispatcher
from penstock.engine.hosting.taskmanager.services.producer_questions import (
    ANSWER_TIMEOUT_MS,
    ProducerQuestions,
    TaskChannelHost,
)
from penstock.engine.model.errors import PartitionNotFound
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import PartitionStateAnswer, PartitionStateQuestion
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.network.gate.missing_partition import NoState
from tests.tools.runtime.gates import result_id

CONSUMER = AttemptId(ExecutionVertexId(VertexId("c"), 0), 0)


def test_calls_are_due_in_the_order_of_their_times():
    calls, done = DelayedCalls(), []
    assert calls.seconds_left(0.0, 1.0) == 1.0
    assert calls.add(5.0, lambda: done.append("late"))
    assert calls.add(2.0, lambda: done.append("early"))
    assert not calls.add(2.0, lambda: done.append("early too"))
    assert calls.seconds_left(1.5, 1.0) == 0.5
    assert calls.seconds_left(9.0, 1.0) == 0.0
    assert calls.take_due(1.9) == []
    for action in calls.take_due(2.0):
        action()
    assert done == ["early", "early too"]
    assert len(calls.take_due(5.0)) == 1


class Questions:
    """Questions with what they send and the timers they set."""

    def __init__(self) -> None:
        self.sent, self.timers, self.answers = [], [], []
        self.questions = ProducerQuestions(self.sent.append, self._later)

    def _later(self, delay_ms, action) -> None:
        assert delay_ms == ANSWER_TIMEOUT_MS
        self.timers.append(action)

    def ask(self, index: int = 0) -> None:
        self.questions.ask(CONSUMER, result_id(index), self.answers.append)

    def answer(self, state, index: int = 0) -> None:
        self.questions.on_answer(PartitionStateAnswer(CONSUMER, result_id(index), state))


def test_a_question_is_answered_once():
    one = Questions()
    one.ask()
    assert one.sent == [PartitionStateQuestion(CONSUMER, result_id(0))]
    one.answer(ExecutionState.RUNNING)
    one.answer(ExecutionState.FAILED)
    one.timers[0]()
    assert one.answers == [ExecutionState.RUNNING]


def test_an_attempt_that_is_not_known_any_more_is_disposed():
    one = Questions()
    one.ask()
    one.answer(None)
    assert one.answers == [NoState.DISPOSED]


def test_a_question_without_an_answer_times_out():
    one = Questions()
    one.ask()
    one.timers[0]()
    one.answer(ExecutionState.RUNNING)
    assert one.answers == [NoState.TIMED_OUT]


def test_the_same_question_is_sent_once_and_each_is_answered():
    one = Questions()
    one.ask()
    one.ask()
    one.ask(1)
    assert len(one.sent) == 2
    one.timers[0]()
    one.answer(ExecutionState.FINISHED)
    assert one.answers == [NoState.TIMED_OUT, ExecutionState.FINISHED]


class Task:
    def __init__(self, state=ExecutionState.RUNNING) -> None:
        self.state = state
        self.did = []

    def cancel(self) -> None:
        self.did.append("cancelled")

    def fail(self, error) -> None:
        self.did.append(error)


@pytest.mark.parametrize(
    ("state", "answer", "expected"),
    [
        (ExecutionState.RUNNING, ExecutionState.RUNNING, "retried"),
        (ExecutionState.RUNNING, ExecutionState.FAILED, "cancelled"),
        (ExecutionState.RUNNING, ExecutionState.CREATED, PartitionNotFound),
        (ExecutionState.CANCELING, ExecutionState.RUNNING, None),
    ],
)
def test_the_answer_decides_what_the_consumer_does(state, answer, expected):
    task = Task(state)
    plane = SimpleNamespace(
        consumers=SimpleNamespace(request=None), call_later=None, task_events=TaskEventDispatcher()
    )
    host = TaskChannelHost(plane, task, lambda _, answered: answered(answer))
    host.ask_producer(result_id(0), lambda: task.did.append("retried"))
    got = task.did[0] if task.did else None
    assert type(got) is expected if isinstance(expected, type) else got == expected


def test_task_events_reach_who_listens_and_are_dropped_otherwise():
    events, seen = TaskEventDispatcher(), []
    events.subscribe(result_id(0), seen.append)
    assert events.publish(result_id(0), "one")
    assert not events.publish(result_id(1), "two")
    events.unregister(result_id(0))
    assert not events.publish(result_id(0), "three")
    assert seen == ["one"]
