"""The commit on the driver, at the end of a job without checkpoints."""

import pytest

from penstock.engine.hosting.jobmanager.coordinators.coordinators import commit_all
from penstock.engine.hosting.shipping.pickling import serialize
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.engine.model.messages import Committable


class PutsOff:
    """Commits one of what it is given at a time."""

    def __init__(self):
        self.calls = []

    def commit(self, committables):
        self.calls.append(list(committables))
        return committables[1:]

    def abort(self, job_prefix):
        self.calls.append(job_prefix)


def test_it_waits_for_what_a_committer_puts_off():
    waits = []
    committer, without_any = PutsOff(), PutsOff()
    committables = [Committable(1, serialize(name)) for name in "abc"]
    commit_all({1: committer, 2: without_any}, committables, "job-1", waits.append)
    assert committer.calls == [["a", "b", "c"], ["b", "c"], ["c"], "job-1"]
    assert without_any.calls == [[], "job-1"]
    assert waits == [1.0, 1.0]


class Away(PutsOff):
    """Its server is away for so many calls of `abort`, or refuses them for good."""

    def __init__(self, failures, error=ExternalError):
        super().__init__()
        self.failures, self.error = failures, error

    def commit(self, committables):
        self.calls.append(list(committables))

    def abort(self, job_prefix):
        super().abort(job_prefix)
        if self.failures:
            self.failures -= 1
            raise self.error("away")


def test_leftovers_are_dropped_when_the_server_is_back():
    waits = []
    away, later = Away(2), PutsOff()
    commit_all({1: away, 2: later}, [Committable(1, serialize("a"))], "job-1", waits.append)
    assert away.calls == [["a"], "job-1", "job-1", "job-1"]
    assert later.calls == [[], "job-1"]
    assert waits == [1.0, 1.0]


@pytest.mark.parametrize("error", [ExternalError, RefusedForGood])
def test_leftovers_that_cannot_be_dropped_do_not_change_what_became_of_the_job(caplog, error):
    waits = []
    away = Away(100, error)
    commit_all({1: away}, [], "job-1", waits.append)
    assert away.calls == [[], *["job-1"] * (1 if error is RefusedForGood else 5)]
    assert [one.getMessage() for one in caplog.records] == [
        f"job=job-1 leftovers=KEPT {error.__name__}: away"
    ]
    assert caplog.records[0].exc_info is None
