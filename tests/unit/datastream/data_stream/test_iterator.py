"""An iterator over results whose reader is interrupted. What else it does: tests/jobs/test_jobs_of_this_process.py."""

import contextlib
import sys

import pytest

from penstock.datastream.data_stream.iterator import CloseableIterator
from penstock.engine.model.errors import (
    JobCancelledError,
    JobExecutionError,
    JobSuspendedError,
)
from penstock.engine.model.program import JobOutcome
from penstock.engine.model.states import JobStatus
from tests.tools.hosting.fake_executor import FakeControl


class Interrupted(FakeControl):
    """Ctrl-C comes while its second batch is waited for."""

    def collect(self, stream, *, shows_error=True):
        yield [1]
        raise KeyboardInterrupt


class Ended(FakeControl):
    """Its rows end with a failure, as those of a job do that did not finish."""

    def collect(self, stream, *, shows_error=True):
        yield [1]
        raise JobExecutionError("the job is over")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (JobStatus.CANCELED, JobCancelledError),
        (JobStatus.SUSPENDED, JobSuspendedError),
        (JobStatus.FAILED, JobExecutionError),
    ],
)
def test_rows_end_with_the_error_that_the_result_of_the_job_has(monkeypatch, status, error):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    results = CloseableIterator(Ended(JobOutcome(status, 1, "boom")), "stream")
    assert next(results) == 1
    with pytest.raises(JobExecutionError) as raised:
        next(results)
    assert type(raised.value) is error
    assert list(results) == []


class InterruptedTwice(Interrupted):
    """Ctrl-C comes once more in the first call of a method, which has done its work or not. The end of the job does not come."""

    def __init__(self, method, is_done):
        super().__init__(JobOutcome(JobStatus.FINISHED, 1))
        self.comes_in, self.is_done = method, is_done
        self.asked = 0

    def _pressed(self, method, act):
        if method != self.comes_in:
            return act()
        self.comes_in = None
        if self.is_done:
            act()
        raise KeyboardInterrupt

    def status(self):
        return self._pressed("status", lambda: JobStatus.RUNNING)

    def cancel(self):
        self.is_cancelled = True

    def interrupted(self):
        self.asked += 1
        return self._pressed("interrupted", super().interrupted)

    def wait(self, timeout_s=None):
        return self._pressed("wait", lambda: pytest.fail("it waits"))


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


@pytest.mark.parametrize(
    ("method", "is_done"),
    [("status", True), ("interrupted", False), ("interrupted", True), ("wait", False)],
)
@pytest.mark.parametrize("is_within", [True, False], ids=["with", "without"])
def test_a_second_ctrl_c_waits_for_nothing(method, is_done, is_within):
    control = InterruptedTwice(method, is_done)
    results = CloseableIterator(control, "stream")
    with pytest.raises(KeyboardInterrupt), results if is_within else contextlib.nullcontext():
        list(results)
    assert control.is_cancelled
    # Who was not told by the first one is told by the second one, and who was told knows of the hurry.
    assert control.asked == (1 if method == "status" else 2)
    assert list(results) == []
