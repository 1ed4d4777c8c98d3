"""Encrypted jobs on executors of their own, and what of a job's secret crosses Spark: nothing."""

from collections import Counter

import pytest
from pyspark.sql import functions as F

from penstock.hosting.spark import worker_launcher
from penstock.hosting.spark.provider import SparkProvider
from penstock.hosting.wire import tls
from penstock.hosting.workers.shared_workers import SharedWorkers
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment, expected_counts, last_counts, word_count

pytestmark = pytest.mark.spark
ENCRYPTED = {
    "security.ssl.internal.enabled": "true",
    "penstock.exchange.local-sockets": "false",
    "taskmanager.numberOfTaskSlots": "1",
}
ISOLATED = ENCRYPTED | {"penstock.cluster.job-isolation": "true"}


@pytest.fixture
def tasks(monkeypatch):
    """What each Spark task of a TaskManager carries, and the credentials of its job."""
    carried = []
    config_of = SparkProvider._config

    def recorded(provider, *arguments):
        config = config_of(provider, *arguments)
        carried.append((repr(config), provider._master.credentials))
        return config

    monkeypatch.setattr(SparkProvider, "_config", recorded)
    return carried


def test_a_keyed_job_over_tls(spark_cluster, tasks, monkeypatch):
    shaken = []
    context_of = tls.server_context
    monkeypatch.setattr(
        "penstock.hosting.jobmanager.control_server.server_context",
        lambda identity: shaken.append(identity) or context_of(identity),
    )
    with word_count(environment(2, **ISOLATED)).execute_and_collect() as updates:
        assert last_counts(updates) == expected_counts()
    assert len(shaken) == 2 * len(tasks)  # Of each TaskManager, and of its supervisor.
    for carried, credentials in tasks:
        assert credentials.secret.hex() not in carried
        assert repr(credentials.secret) not in carried
        assert "PRIVATE" not in carried
    assert not taskmanagers_left()


@pytest.fixture
def crossing(spark_cluster, monkeypatch):
    """What each Spark task of a worker carries, and the credentials of the pool and of the jobs in it."""
    assert not taskmanagers_left(), "a warm worker would need no Spark task"
    carried, known = [], []
    body_of, host = worker_launcher.body_of, SharedWorkers._host

    def recorded(config, archive):
        carried.append(repr(config))
        return body_of(config, archive)

    def hosts(workers, worker_id, start_id, slots):
        known.extend((workers._credentials, workers._wanted[start_id].credentials))
        host(workers, worker_id, start_id, slots)

    monkeypatch.setattr(worker_launcher, "body_of", recorded)
    monkeypatch.setattr(SharedWorkers, "_host", hosts)
    return carried, known


@pytest.mark.long
def test_a_keyed_job_over_tls_in_processes_that_jobs_share(crossing, monkeypatch):
    carried, known = crossing
    shaken = []
    context_of = tls.server_context
    monkeypatch.setattr(
        "penstock.hosting.jobmanager.control_server.server_context",
        lambda identity: shaken.append(identity) or context_of(identity),
    )
    with word_count(environment(2, **ENCRYPTED)).execute_and_collect() as updates:
        assert last_counts(updates) == expected_counts()
    assert len(carried) == 2
    # Of each TaskManager, and of its supervisor with the JobManager and with the pool.
    assert len(shaken) == 3 * len(carried)
    assert len({one.secret for one in known}) == 2
    for text in carried:
        assert not [one for one in known if one.secret.hex() in text or repr(one.secret) in text]
        assert "PRIVATE" not in text
    assert not taskmanagers_left()


@pytest.mark.parametrize(
    "settings", [ENCRYPTED, pytest.param({}, marks=pytest.mark.long)], ids=["TLS", "tags"]
)
def test_a_dataframe_is_fed_to_a_streaming_job(spark_cluster, settings):
    frame = spark_cluster.range(0, 10_000, 1, 3).withColumn("key", F.col("id") % 5)
    env = environment(2, **settings)
    keys = env.from_spark(frame).map(lambda row: row.key)
    with keys.execute_and_collect() as found:
        assert Counter(found) == dict.fromkeys(range(5), 2000)
