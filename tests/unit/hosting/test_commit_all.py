"""The commit on the driver, at the end of a job without checkpoints."""

from penstock.hosting.coordinators.coordinators import commit_all
from penstock.hosting.shipping.pickling import serialize
from penstock.model.messages import Committable


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
