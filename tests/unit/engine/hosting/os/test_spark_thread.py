"""A thread that runs Spark jobs, beside a context that may be gone at any step."""

from types import SimpleNamespace

import pytest

from penstock.engine.hosting.os.spark_thread import SparkThread


class Properties:
    def __init__(self, pool):
        self.pool = pool

    def clone(self):
        return Properties(self.pool)


def context_of(set_on):
    core = SimpleNamespace(
        getLocalProperties=lambda: Properties("fair"),
        setLocalProperties=lambda given: set_on.append(given.pool),
    )
    return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: core))


def test_the_jobs_run_with_the_local_properties_of_the_maker():
    told = []
    thread = SparkThread(context_of(told), lambda: told.append("ran"), told.append, "jobs")
    thread.start()
    thread.join()
    assert told == ["fair", "ran"]
    assert thread.name == "jobs"
    assert thread.daemon


@pytest.mark.parametrize("is_gone_before", [True, False])
def test_a_context_that_is_gone_is_told_and_no_job_runs(is_gone_before):
    told, refused = [], []
    context = context_of(told)
    if is_gone_before:
        context._jsc = None
    thread = SparkThread(context, lambda: told.append("ran"), refused.append, "jobs")
    context._jsc = None
    thread.start()
    thread.join()
    assert told == []
    assert [type(error) for error in refused] == [AttributeError]
