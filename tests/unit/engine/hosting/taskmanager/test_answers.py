"""A TaskManager's answers: of the right threads and files, bounded, never on its main thread."""

import threading
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.wire.messages import decode
from penstock.engine.hosting.taskmanager.answers import MOST_QUESTIONS, Answers
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.engine.model.messages import (
    AskTaskManager,
    DumpThreads,
    ListLogs,
    ReadLog,
    SampleStacks,
)
from tests.tools.waiting import wait_until

ME = ResourceId("tm-1")


def attempt(subtask):
    return AttemptId(ExecutionVertexId(VertexId("v"), subtask), 0)


class Bench:
    def __init__(self, log_path):
        self.told, self.threads = [], []
        self.tasks = []
        self.answers = Answers(ME, log_path, lambda: self.tasks, self.take)

    def take(self, message):
        self.threads.append(threading.current_thread())
        self.told.append(message)

    def ask(self, question):
        self.answers.take(AskTaskManager(ME, len(self.told), question))
        number = len(self.told) + 1
        wait_until(lambda: len(self.told) >= number, "no answer")
        return self.told[-1]

    def task(self, subtask):
        """A task whose thread is the calling one."""
        here = threading.current_thread()
        task = SimpleNamespace(
            attempt_id=attempt(subtask),
            deployment=SimpleNamespace(title=f"Map ({subtask + 1}/2)#0"),
            is_waiting=False,
            thread_id=here.ident,
        )
        self.tasks.append(task)


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "tm.log").write_text("a line\n")
    made = Bench(str(tmp_path / "tm.log"))
    yield made
    made.answers.close()


def test_logs_are_listed_and_read(bench):
    assert [file.name for file in bench.ask(ListLogs()).answer.files] == ["tm.log"]
    assert bench.ask(ReadLog("tm.log", 2)).answer.data == b"line\n"


def test_answers_are_made_on_threads_of_their_own(bench):
    bench.ask(ListLogs())
    assert bench.threads[0].name.startswith("penstock-answers")


def test_a_file_that_is_not_there_is_told_as_missing(bench):
    told = bench.ask(ReadLog("other"))
    assert told.answer is None
    assert told.is_missing
    assert "'other'" in told.failure


def test_threads_of_tasks_have_their_names(bench):
    bench.task(0)
    names = [one.name for one in bench.ask(DumpThreads(5)).answer.threads]
    assert "Map (1/2)#0" in names
    assert threading.current_thread().name not in names


def test_only_the_tasks_that_were_asked_for_and_are_here_are_sampled(bench):
    bench.task(0)
    bench.task(1)
    answer = bench.ask(SampleStacks((attempt(1), attempt(7)), 2, 1, 100)).answer
    stacks = decode(answer.payload)
    assert len(stacks) == answer.stacks
    assert {one.attempt_id for one in stacks} == {attempt(1)}
    assert sum(one.on_cpu + one.off_cpu for one in stacks) == 2


def test_an_error_is_an_answer_too(bench):
    bench.tasks = None
    told = bench.ask(DumpThreads(5))
    assert told.answer is None
    assert told.failure.startswith("TypeError: ")
    assert not told.is_missing


def test_more_questions_than_it_may_have_are_refused_at_once(bench):
    gate = threading.Event()

    class Slow(list):
        def __iter__(self):
            gate.wait()
            return super().__iter__()

    bench.tasks = Slow()
    for number in range(MOST_QUESTIONS + 1):
        bench.answers.take(AskTaskManager(ME, number, DumpThreads(1)))
    (refused,) = bench.told
    assert refused.question_id == MOST_QUESTIONS
    assert "Ask again later" in refused.failure
    gate.set()
    wait_until(lambda: len(bench.told) == MOST_QUESTIONS + 1, "the others have no answer")
