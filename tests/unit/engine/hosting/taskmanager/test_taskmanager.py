"""A real TaskManager carries out what its machine decides: a deposed leader's word does not count, the leader's does."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.wire.messages import decode
from penstock.engine.hosting.taskmanager.taskmanager import MOST_QUESTIONS, Answers
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    ExecutionVertexId,
    FencingToken,
    ResourceId,
    VertexId,
)
from penstock.engine.model.messages import (
    AskTaskManager,
    CancelTask,
    DumpThreads,
    Heartbeat,
    ListLogs,
    LogList,
    OfferSlots,
    ReadLog,
    RequestSlot,
    SampleStacks,
    Shutdown,
    SlotFreed,
    TaskManagerAnswer,
)
from penstock.engine.model.states import ExecutionState
from tests.tools.hosting.fake_driver import JOB, SLOT, TOKEN
from tests.tools.programs.gated_program import gated_program
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


DEPOSED = FencingToken("deposed")


@pytest.fixture
def running(gate, run):
    """Two tasks in one slot, which stand still."""
    driver = run(gated_program(gate.name, parallelism=1))
    driver.until_running()
    return driver


@pytest.fixture
def manager(running):
    (one,) = running.managers.values()
    return one


def test_a_deposed_leader_cancels_nothing_and_ends_nothing(running, manager, gate):
    for attempt_id in running.attempts:
        manager.handle(CancelTask(manager.config.resource_id, attempt_id, DEPOSED))
    manager.handle(Shutdown("late", DEPOSED))
    gate.open()
    running.until_ended(ExecutionState.FINISHED)
    assert manager.end_cause is None


def test_the_leader_cancels_and_ends(running, manager):
    running.cancel()
    running.until_ended(ExecutionState.CANCELED)
    manager.handle(Shutdown("it is over", TOKEN))
    assert manager.end_cause == "it is over"


def test_a_slot_that_is_freed_is_given_back_when_its_tasks_have_ended(running, manager):
    message = running.freeing(SLOT)
    manager.handle(replace(message, fencing_token=DEPOSED))
    manager.handle(message)
    running.until(lambda: any(isinstance(one, SlotFreed) for one in running.heard))
    assert set(running.states.values()) <= {ExecutionState.RUNNING, ExecutionState.CANCELED}
    assert not manager.heartbeat().ios


def test_a_slot_that_nobody_takes_is_given_back_after_its_time(running, manager):
    me, other = manager.config.resource_id, AllocationId("other")
    manager.handle(RequestSlot(me, -1, other, JOB, TOKEN))
    running.until(lambda: any(_offers(one, other) for one in running.heard))
    (deadline, _) = manager.slot_timeouts[-1]
    manager.end_slot_timeouts(deadline - 0.001)
    assert manager.slot_timeouts, "one that was taken is looked at in its time too"
    manager.end_slot_timeouts(deadline)
    running.until(lambda: SlotFreed(me, 1, other) in running.heard)


def test_a_task_whose_chain_was_not_sent_fails_and_leaves_its_slot(running, manager):
    running.cancel()
    running.until_ended(ExecutionState.CANCELED)
    manager.modules.chains.clear()
    running.redeploy()
    assert "was not sent" in running.failure().text
    manager.handle(running.freeing(SLOT))
    running.until(lambda: any(isinstance(one, SlotFreed) for one in running.heard))


def test_a_question_of_the_leader_is_answered_and_no_other(running, manager):
    me = manager.config.resource_id
    manager.handle(AskTaskManager(me, 1, ListLogs(), DEPOSED))
    manager.handle(AskTaskManager(me, 2, ListLogs(), TOKEN))
    running.until(lambda: TaskManagerAnswer(me, 2, LogList(())) in running.heard)
    answers = [one for one in running.heard if isinstance(one, TaskManagerAnswer)]
    assert [one.question_id for one in answers] == [2]


def test_what_no_taskmanager_takes_is_refused(manager):
    with pytest.raises(ExternalError, match="does not accept Heartbeat"):
        manager.handle(Heartbeat(manager.config.resource_id, 0))


def _offers(message, allocation_id):
    is_offer = isinstance(message, OfferSlots)
    return is_offer and message.offers[0].allocation_id == allocation_id
