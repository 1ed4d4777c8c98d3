"""Whose session it is, and what happens when it goes."""

import os
import queue
import threading
import time

import pytest

from penstock.engine.hosting.program import spark_host as host
from penstock.engine.hosting.spark import background_jobs, shared_provider
from penstock.engine.hosting.spark import session as spark_session
from penstock.engine.hosting.spark.provider import SparkPlace, SparkProvider
from penstock.engine.hosting.spark.session import active_session, session_for
from penstock.engine.hosting.spark.slots import SparkSlots, configuration_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, JobExecutionError
from penstock.engine.model.slot_size import UNSIZED
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


def test_the_users_session_is_never_taken_for_ours(spark):
    ui = spark.conf.get("spark.ui.enabled")
    before = dict(spark.sparkContext.getConf().getAll())
    assert in_thread(lambda: session_for(Settings({}), 64, {})).sparkContext is spark.sparkContext
    assert spark_session.Embedded.session is None
    assert spark.sparkContext._jsc is not None
    assert dict(spark.sparkContext.getConf().getAll()) == before
    assert spark.conf.get("spark.ui.enabled") == ui


def test_a_job_that_waits_for_a_core_is_cancelled_at_once(spark, monkeypatch):
    """Its TaskManagers cannot be told to end: no core has taken them yet. So nobody waits until they have."""
    for module in (background_jobs, shared_provider):
        monkeypatch.setattr(module, "STOP_WAIT_S", 3600.0)
    monkeypatch.setattr(SparkPlace, "max_taskmanagers", lambda _self, _wanted=None: None)
    release = threading.Event()
    busy = threading.Thread(target=lambda: hold_all_cores(spark))
    busy.start()
    tracker = spark.sparkContext.statusTracker()
    while sum(tracker.getStageInfo(s).numActiveTasks for s in tracker.getActiveStageIds()) < 4:
        release.wait(0.05)
    env = environment(1)
    env.from_collection([1]).print()
    client = env.execute_async("waits")
    try:
        while len(tracker.getActiveStageIds()) < 2:
            release.wait(0.05)
        client.cancel().result()
        with pytest.raises(JobExecutionError):
            client.get_job_execution_result().result()
        assert client.get_job_status().result().name == "CANCELED"
    finally:
        spark.sparkContext.cancelJobGroup("busy")
        busy.join()


def hold_all_cores(spark):
    def hold(_rows):
        time.sleep(1e6)
        yield 1

    spark.sparkContext.setJobGroup("busy", "all cores", interruptOnCancel=True)
    with pytest.raises(Exception, match=r"(?i)cancel"):
        spark.sparkContext.parallelize(range(4), 4).mapPartitions(hold).collect()


def test_speculation_is_refused_at_submit(spark, monkeypatch):
    there = configuration_of(spark.sparkContext)
    speculative = {**there, "spark.speculation": "true"}
    monkeypatch.setattr(host, "configuration_of", lambda _context: speculative)
    env = environment(1)
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=r"spark\.speculation"):
        env.execute("speculative")


def test_a_session_that_is_stopped_in_the_middle_ends_the_job(spark, spark_on, tmp_path):
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
    provider = SparkProvider(spark, 1)
    assert provider.describe() == "the SparkSession was stopped"
    assert provider.max_taskmanagers(1) == 0


def test_a_context_that_is_stopped_while_a_process_is_submitted_is_told(spark, monkeypatch):
    """PySpark hands local properties to a new thread once that runs, and raises there if the context is gone."""
    context = spark.sparkContext
    jobs = background_jobs.BackgroundJobs(
        background_jobs.ContextTasks(context, SparkSlots(context)), "group"
    )
    told: queue.Queue = queue.Queue()
    start = threading.Thread.start

    def start_and_stop(thread):
        if thread.name == "penstock-host-tm-1":
            monkeypatch.setattr(context, "_jsc", None)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_and_stop)
    jobs.start("tm-1", UNSIZED, lambda: None, lambda *ended: told.put(ended))
    name, cause = told.get()
    monkeypatch.undo()
    assert name == "tm-1"
    assert cause.startswith("cannot submit to Spark (the SparkSession was stopped)")
