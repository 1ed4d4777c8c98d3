"""An iterator over results whose reader is interrupted. What else it does: tests/jobs/test_jobs_of_this_process.py."""

import pytest

from penstock.datastream.data_stream.iterator import CloseableIterator
from penstock.model.program import JobOutcome
from penstock.model.states import JobStatus
from tests.tools.hosting.fake_executor import FakeControl


class Interrupted(FakeControl):
    """Ctrl-C comes while its second batch is waited for."""

    def collect(self, stream, *, shows_error=True):
        yield [1]
        raise KeyboardInterrupt


class InterruptedTwice(Interrupted):
    """Ctrl-C comes once more before anything waits for the end of the job, which does not come."""

    def interrupted(self):
        is_first = super().interrupted()
        self.is_over = False
        if is_first:
            raise KeyboardInterrupt
        return is_first

    def wait(self, timeout_s=None):
        raise AssertionError("it waits")


def test_ctrl_c_cancels_the_job_whose_results_are_waited_for():
    control = Interrupted(JobOutcome(JobStatus.FINISHED, 1))
    control.is_over = False
    results = CloseableIterator(control, "stream")
    assert next(results) == 1
    with pytest.raises(KeyboardInterrupt):
        next(results)
    assert control.is_interrupted
    assert control.is_cancelled
    assert list(results) == []


def test_a_second_ctrl_c_waits_for_nothing():
    control = InterruptedTwice(JobOutcome(JobStatus.FINISHED, 1))
    control.is_over = False
    results = CloseableIterator(control, "stream")
    with pytest.raises(KeyboardInterrupt), results:
        list(results)
    assert control.is_cancelled
    assert list(results) == []
