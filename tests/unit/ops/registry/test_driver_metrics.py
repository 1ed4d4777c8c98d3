"""What a driver measures of all its jobs together."""

import pytest

from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from penstock.ops.metrics.entities import JobManagerScope
from penstock.ops.registry.driver_metrics import DriverMetrics
from tests.tools.observation.job_records import JOB, ToldJob, facts

OTHER = JobId("b" * 32)
SPAN_S = 60


@pytest.fixture
def metrics():
    found = DriverMetrics()
    found.began(facts())
    return found


def value(metrics, name, status="RUNNING"):
    job = ToldJob().status(status).now_it_is()
    metrics.measure([job], job.now_ms)
    return metrics.store.value(JobManagerScope(), name)


def test_taskmanagers_that_are_waited_for_are_counted_while_the_job_runs(metrics):
    assert value(metrics, "numPendingTaskManagers") == 0
    metrics.put_starts(JOB, 3, 0)
    assert value(metrics, "numPendingTaskManagers") == 3
    assert value(metrics, "numPendingTaskManagers", str(JobStatus.FINISHED)) == 0


def test_failed_starts_of_all_jobs_have_a_rate_also_of_those_that_are_forgotten(metrics):
    metrics.put_starts(JOB, 0, 40)
    metrics.put_starts(OTHER, 0, 20)
    metrics.keep_time(1000.0)
    metrics.forget(OTHER)
    metrics.keep_time(1005.0)
    rate = value(metrics, "startWorkFailurePerSecond")
    assert (rate.count, rate.per_s) == (60, 60 / SPAN_S)


def test_a_rate_does_not_depend_on_how_often_somebody_asks(metrics):
    """40 failures, then a whole span without one; nobody asks meanwhile, and 20 times before."""
    metrics.put_starts(JOB, 0, 40)
    metrics.keep_time(1000.0)
    for _ in range(20):
        assert value(metrics, "startWorkFailurePerSecond").per_s == 40 / SPAN_S
    for tick in range(2 * SPAN_S):
        metrics.keep_time(1000.0 + tick / 2)
    assert value(metrics, "startWorkFailurePerSecond").per_s == 40 / SPAN_S
    metrics.keep_time(1000.0 + SPAN_S)
    assert value(metrics, "startWorkFailurePerSecond").per_s == 0
