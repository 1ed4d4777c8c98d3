"""Signs of life of a client that collects rows."""

import queue
import threading

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.ids import JobId
from penstock.ops.remote.client import RemoteError
from penstock.ops.remote.job import HeartbeatTimes, LivingReader, heartbeat_times_of
from tests.tools.waiting import wait_until

JOB = JobId("a" * 32)
WAIT_S = 30
NAME = "penstock-client-heartbeat"


class Rest:
    """Answers with what it is given, and then with nothing."""

    def __init__(self, *answers):
        self.told = queue.SimpleQueue()
        self._answers = iter(answers)

    def change(self, method, path, body):
        self.told.put((method, path, body))
        error = next(self._answers, None)
        if error is not None:
            raise error
        return {}


def reader(rest, *batches):
    return LivingReader(iter(batches), rest, JOB, HeartbeatTimes(1, 60_000))


def has_ended():
    return all(one.name != NAME for one in threading.enumerate())


def test_the_session_hears_of_a_client_that_reads_nothing():
    rest = Rest()
    rows = reader(rest, [1])
    told = [rest.told.get(timeout=WAIT_S) for _ in range(3)]
    assert {(method, path) for method, path, _ in told} == {
        ("PATCH", f"/jobs/{JOB}/clientHeartbeat")
    }
    times = [body["expiredTimestamp"] for _, _, body in told]
    assert times == sorted(times)
    assert list(rows) == [[1]]
    wait_until(has_ended, "it goes on after the last row")


def test_it_ends_when_nobody_has_the_iterator_any_more():
    rows = reader(Rest(), [1])
    assert not has_ended()
    del rows
    wait_until(has_ended, "it goes on for nobody")


def test_it_ends_with_the_rows():
    rows = reader(Rest(), [1])
    assert list(rows) == [[1]]
    wait_until(has_ended, "it goes on after the last row")


def test_a_session_that_does_not_answer_is_told_again_until_it_does_not_know_the_job():
    rest = Rest(RemoteError("nobody answers"), None, RemoteError("unknown", 404))
    rows = reader(rest, [1])
    wait_until(has_ended, "it goes on for a job that is not there")
    assert rest.told.qsize() == 3
    assert next(rows) == [1]


@pytest.mark.parametrize(("interval", "timeout"), [("3 min", "3 min"), ("0 ms", "1 s")])
def test_an_interval_that_is_not_below_the_timeout_is_refused(interval, timeout):
    settings = Settings({
        "client.heartbeat.interval": interval, "client.heartbeat.timeout": timeout
    })  # fmt: skip
    with pytest.raises(ConfigurationError, match="client.heartbeat.timeout"):
        heartbeat_times_of(settings)


def test_times_are_flinks_unless_they_are_set():
    assert heartbeat_times_of(Settings({})) == HeartbeatTimes(30_000, 180_000)
