"""Who is given the error of a job, and when it is shown instead. The law: a user sees it once."""

import gc
import signal

import pytest

from penstock.engine.hosting.os.waiting import (
    Given,
    Interruptible,
    Reader,
    awaited,
    owe,
    wait_for_end,
)
from penstock.engine.model.ids import JobId

JOB = JobId("job of test_waiting")


@pytest.fixture
def shown():
    return []


@pytest.fixture
def fail(shown):
    return lambda job_id=JOB: owe(job_id, lambda: shown.append(job_id))


def test_an_error_that_nobody_is_given_is_not_kept(fail, shown):
    assert fail() is Given.NEVER
    Reader(JOB).let_go()
    assert shown == []


def test_who_waits_is_given_the_error(fail, shown):
    with awaited(JOB):
        assert fail() is Given.NOW
    assert shown == []


def test_a_wait_that_ends_before_the_job_was_not_given_the_error(fail, shown):
    with pytest.raises(TimeoutError), awaited(JOB):
        fail()
        raise TimeoutError
    assert shown == [JOB]


def test_a_reader_between_two_reads_is_given_the_error_later(fail, shown):
    reader = Reader(JOB)
    with reader:
        assert shown == []
    assert fail() is Given.LATER
    reader.was_given()
    reader.let_go()
    assert shown == []


def test_the_error_is_shown_when_the_last_reader_goes_without_it(fail, shown):
    first, last = Reader(JOB), Reader(JOB)
    fail()
    first.let_go()
    first.let_go()
    assert shown == []
    last.let_go()
    last.was_given()
    assert shown == [JOB]


def test_a_forgotten_reader_lets_go(fail, shown):
    reader = Reader(JOB)
    fail()
    del reader
    gc.collect()
    assert shown == [JOB]
    assert fail() is Given.NEVER


def test_each_job_has_its_own_readers(fail, shown):
    reader = Reader(JOB)
    assert fail(JobId("another")) is Given.NEVER
    assert fail() is Given.LATER
    reader.was_given()
    reader.let_go()


class Terminated:
    """The end of a job, for which SIGTERM comes while it is waited for. It ends when it is suspended."""

    def __init__(self):
        self.suspended = []

    def is_set(self):
        return bool(self.suspended)

    def wait(self, timeout=None):
        if not self.suspended:
            signal.raise_signal(signal.SIGTERM)
        return True

    def suspend(self, cause):
        self.suspended.append(cause)
        return "the next driver continues it"


def test_sigterm_suspends_the_job_and_ends_the_program(capsys):
    ended = Terminated()
    job = Interruptible("counts", lambda: None, lambda: "RUNNING", suspend=ended.suspend)
    with pytest.raises(SystemExit) as exits:
        wait_for_end(ended, None, job)
    assert exits.value.code == 128 + signal.SIGTERM
    assert ended.suspended == ["SIGTERM ended the driver"]
    said = "penstock: SIGTERM; job 'counts' is suspended: the next driver continues it.\n"
    assert capsys.readouterr().err == said
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_programs_own_handler_of_sigterm_stays():
    ended = Terminated()
    caught = []
    former = signal.signal(signal.SIGTERM, lambda *_: caught.append(ended.suspend("")))
    try:
        wait_for_end(ended, None, Interruptible("counts", lambda: None, lambda: "RUNNING"))
    finally:
        signal.signal(signal.SIGTERM, former)
    assert len(caught) == 1
