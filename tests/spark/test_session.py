"""Whose session it is, and what happens when it goes."""

import threading

import pytest

from penstock.hosting.spark_session import active_session
from penstock.model.errors import ConfigurationError, JobExecutionError
from tests.spark.programs import environment, expected_counts, last_counts, word_count

pytestmark = pytest.mark.spark


def in_thread(call):
    results = []

    def run():
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def counted():
    with word_count(environment(1)).execute_and_collect() as updates:
        return last_counts(updates)


def test_two_jobs_at_once_share_the_users_session(spark):
    results = []
    threads = [threading.Thread(target=lambda: results.append(counted())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected_counts(), expected_counts()]
    assert spark.sparkContext._jsc is not None


def test_a_thread_without_an_active_session_uses_the_users(spark):
    found = in_thread(active_session)
    assert found.sparkContext is spark.sparkContext
    assert in_thread(counted) == expected_counts()


def test_speculation_is_refused_at_submit(spark):
    spark.sparkContext._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ConfigurationError, match=r"spark\.speculation"):
            word_count(environment(1)).print()
            env = environment(1)
            env.from_collection([1]).print()
            env.execute("speculative")
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")


def test_a_session_that_is_stopped_in_the_middle_ends_the_job(spark, spark_on, tmp_path):
    import os

    fifo = str(tmp_path / "entered")
    os.mkfifo(fifo)

    def enter(value):
        with open(fifo, "w", encoding="utf-8") as entered:
            entered.write("yes")
        threading.Event().wait()
        return value

    env = environment(1)
    env.from_collection([1]).map(enter).print()
    client = env.execute_async("stopped")
    with open(fifo, encoding="utf-8") as entered:
        assert entered.read() == "yes"
    spark.stop()
    with pytest.raises(JobExecutionError, match="SparkSession was stopped"):
        client.get_job_execution_result().result()
