"""Questions to TaskManagers: each gets an answer or a clear error, also from those that have ended."""

import pytest

from penstock.engine.hosting.jobmanager.control_server import Links
from penstock.engine.hosting.jobmanager.questions import (
    LAST_LINES_NAME,
    MOST_KEPT_BYTES,
    MOST_OPEN,
    NoAnswer,
    Questions,
)
from penstock.engine.hosting.reporting.logs.folder import NoSuchLog
from penstock.engine.model.ids import FencingToken, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import (
    DumpThreads,
    ListLogs,
    LogList,
    ProcessEnded,
    ReadLog,
    SampleStacks,
    TaskManagerAnswer,
)

LIST = ListLogs()
ONE, TWO = ResourceId("tm-1"), ResourceId("tm-2")
TOKEN = FencingToken("token")
LINES = b"first\nlast\n"


class Control:
    """The connection of one TaskManager."""

    is_closing = False

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def close(self): ...


class Bench:
    """A loop that makes calls when it is told to, with one registered TaskManager."""

    def __init__(self):
        self.links, self.control = Links(TOKEN), Control()
        self.links.register(TaskManagerLocation(ONE, "host", 1), self.control)
        self.calls, self.now_ms = [], 0
        self.questions = Questions(self.links, self.calls.append, lambda: self.now_ms)

    def ask(self, question=LIST, resource_id=ONE, **more):
        future = self.questions.ask(resource_id, question, **more)
        self.turn()
        return future

    def turn(self):
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def pass_s(self, seconds):
        self.now_ms += int(seconds * 1000)
        self.questions.tick()


@pytest.fixture
def bench():
    return Bench()


def error_of(future):
    assert future.done()
    return str(future.exception())


def test_a_question_carries_the_fencing_token_and_its_answer_comes_back(bench):
    first, second = bench.ask(), bench.ask(DumpThreads(7))
    asked, other = bench.control.sent
    assert (asked.question, asked.fencing_token) == (ListLogs(), TOKEN)
    assert other.question == DumpThreads(7)
    bench.questions.answered(TaskManagerAnswer(ONE, asked.question_id, LogList(())))
    assert first.result(0) == LogList(())
    assert not second.done()


def test_an_answer_of_another_taskmanager_is_none(bench):
    future = bench.ask()
    (asked,) = bench.control.sent
    bench.questions.answered(TaskManagerAnswer(TWO, asked.question_id, LogList(())))
    assert not future.done()


def test_a_failure_is_told_with_its_taskmanager_and_a_missing_file_as_such(bench):
    broken, missing = bench.ask(), bench.ask(ReadLog("nothing"))
    first, second = [one.question_id for one in bench.control.sent]
    bench.questions.answered(TaskManagerAnswer(ONE, first, None, "OSError: disk"))
    bench.questions.answered(TaskManagerAnswer(ONE, second, None, "no file", is_missing=True))
    assert error_of(broken) == "tm-1: OSError: disk"
    assert isinstance(missing.exception(), NoSuchLog)


def test_who_is_silent_fails_the_question_after_its_time(bench):
    future = bench.ask(timeout_s=3.0)
    bench.pass_s(2.9)
    assert not future.done()
    bench.pass_s(0.1)
    assert error_of(future) == "TaskManager tm-1 did not answer in time"
    assert isinstance(future.exception(), NoAnswer)


def test_samples_have_the_time_that_they_take_besides(bench):
    future = bench.ask(SampleStacks((), 100, 50, 100), timeout_s=3.0)
    bench.pass_s(7.9)
    assert not future.done()
    bench.pass_s(0.1)
    assert "in time" in error_of(future)


def test_who_ends_fails_the_question_at_once(bench):
    future = bench.ask()
    bench.links.fence(ONE)
    bench.pass_s(0.1)
    assert error_of(future) == "TaskManager tm-1 ended before it answered"


def test_an_unknown_taskmanager_is_no_one_to_ask(bench):
    assert "no TaskManager tm-2" in error_of(bench.ask(resource_id=TWO))


def test_a_late_answer_and_one_that_nobody_waits_for_change_nothing(bench):
    late, given_up = bench.ask(timeout_s=1.0), bench.ask()
    first, second = [one.question_id for one in bench.control.sent]
    given_up.cancel()
    bench.questions.answered(TaskManagerAnswer(ONE, second, LogList(())))
    bench.pass_s(1)
    bench.questions.answered(TaskManagerAnswer(ONE, first, LogList(())))
    assert isinstance(late.exception(), NoAnswer)


def test_questions_are_bounded(bench):
    futures = [bench.ask() for _ in range(MOST_OPEN + 1)]
    assert "Ask again later" in error_of(futures[-1])
    assert not any(one.done() for one in futures[:-1])


def test_the_end_of_the_job_fails_what_is_open_and_what_was_not_sent_yet(bench):
    sent, unsent = bench.ask(), bench.questions.ask(ONE, ListLogs())
    bench.questions.close()
    assert "the job ended" in error_of(sent)
    assert "the job ended" in error_of(unsent)
    bench.turn()


@pytest.fixture
def ended(bench):
    bench.links.fence(ONE)
    bench.questions.ended(ProcessEnded(ONE, "SIGKILL", LINES), 1234)
    return bench


@pytest.mark.parametrize("is_over", [False, True])
def test_the_last_lines_of_an_ended_one_are_read_like_its_log(ended, is_over):
    """Also when the job is over."""
    if is_over:
        ended.questions.close()
    (file,) = ended.ask(ListLogs()).result(0).files
    assert (file.name, file.size, file.mtime_ms) == (LAST_LINES_NAME, len(LINES), 1234)
    for question, expected in [
        (ReadLog(), LINES),
        (ReadLog(LAST_LINES_NAME), LINES),
        (ReadLog("", 6), b"last\n"),
        (ReadLog("", -5, 4), b"last"),
    ]:
        assert ended.ask(question).result(0).data == expected


@pytest.mark.parametrize("question", [ReadLog("other.log"), ReadLog(is_stdout=True)])
def test_other_files_of_an_ended_one_are_gone(ended, question):
    future = ended.ask(question)
    assert isinstance(future.exception(), NoSuchLog)
    assert LAST_LINES_NAME in str(future.exception())


def test_an_ended_one_has_no_threads(ended):
    assert "no TaskManager tm-1 now" in error_of(ended.ask(DumpThreads()))


def test_what_is_kept_of_all_ended_ones_is_bounded_and_the_oldest_goes(bench):
    half = b"x" * (MOST_KEPT_BYTES // 2)
    for number in range(3):
        bench.questions.ended(ProcessEnded(ResourceId(f"old-{number}"), "", half), 0)
    assert bench.ask(resource_id=ResourceId("old-0")).exception() is not None
    assert bench.ask(resource_id=ResourceId("old-1")).result(0).files
    assert bench.ask(resource_id=ResourceId("old-2")).result(0).files


def test_one_without_a_log_leaves_nothing(bench):
    bench.questions.ended(ProcessEnded(TWO, "SIGKILL"), 0)
    assert "no TaskManager tm-2 now" in error_of(bench.ask(resource_id=TWO))
