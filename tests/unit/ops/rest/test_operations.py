"""Operations that take their time (Flink AbstractAsynchronousOperationHandlers)."""

import base64
import threading

import pytest

from penstock.ops.rest import operations
from penstock.ops.rest.answers import RestError
from penstock.ops.rest.operations import Operations
from tests.tools.waiting import wait_until

KEY = "c" * 32


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def known(clock):
    return Operations(300.0, clock)


def result(known, subject, key):
    done = {"id": "COMPLETED"}
    return wait_until(
        lambda: (told := known.status(subject, key))["status"] == done and told, "it does not end"
    )["operation"]


def test_an_operation_is_in_progress_until_it_is_completed(known):
    may_end = threading.Event()
    key = known.start("job", lambda: {"done": may_end.wait(60)})
    assert known.status("job", key) == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    may_end.set()
    assert result(known, "job", key) == {"done": True}


def test_an_operation_that_fails_is_completed_with_its_error(known):
    def work():
        raise ValueError("no room")

    told = result(known, "job", known.start("job", work))
    assert told["failure-cause"]["class"] == "builtins.ValueError"
    assert told["failure-cause"]["stack-trace"] == "ValueError: no room"
    assert told["failure-cause"]["serialized-throwable"]


def test_an_error_comes_without_the_credentials_of_addresses(known):
    def work():
        raise ValueError("no room at s3://me:pa55word@bucket/dir?token=t0psecret")

    told = result(known, "job", known.start("job", work))["failure-cause"]
    hidden = "ValueError: no room at s3://******@bucket/dir?token=******"
    assert told["stack-trace"] == hidden
    read = base64.b64decode(told["serialized-throwable"])
    assert hidden.encode() in read
    assert b"pa55word" not in read
    assert b"t0psecret" not in read


def test_a_client_that_asks_twice_starts_one(known):
    started = []

    def work():
        started.append(1)
        return {}

    assert known.start("job", work, KEY) == KEY
    assert known.start("job", work, KEY.upper()) == KEY
    result(known, "job", KEY)
    assert started == [1]


@pytest.mark.parametrize("key", ["x", "g" * 32, ""])
def test_an_id_that_is_none_is_refused(known, key):
    if key:
        with pytest.raises(RestError) as refused:
            known.start("job", dict, key)
        assert refused.value.status == 400
    else:
        assert len(known.start("job", dict, key)) == 32


def test_only_its_own_job_tells_of_an_operation(known):
    key = known.start("job", dict)
    with pytest.raises(RestError) as refused:
        known.status("another", key)
    assert refused.value.status == 404


def test_results_are_kept_for_a_while_after_the_end(known, clock):
    key = known.start("job", dict)
    result(known, "job", key)
    clock.now = 300.0
    known.status("job", key)
    clock.now = 300.1
    with pytest.raises(RestError):
        known.status("job", key)


def test_too_many_at_once_are_refused(known, monkeypatch):
    monkeypatch.setattr(operations, "MOST_AT_ONCE", 1)
    may_end = threading.Event()
    known.start("job", lambda: {"done": may_end.wait(60)})
    with pytest.raises(RestError) as refused:
        known.start("job", dict)
    assert refused.value.status == 503
    may_end.set()


def test_the_end_of_a_program_waits_for_the_readers_of_results(known):
    assert known.wait_until_read(0)
    key = known.start("job", dict)
    assert not known.wait_until_read(0)
    result(known, "job", key)
    assert known.wait_until_read(0)
