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
