"""The connections of jobs on executors of their own are encrypted, and what of a job's secrets crosses Spark: nothing."""

from collections import Counter

import pytest
from pyspark.sql import functions as F

from penstock.engine.hosting.jobmanager.control_server import ControlServer
from penstock.engine.hosting.network.wire.handshake import (
    ROLE_REGISTRATION,
    ROLE_SUPERVISOR,
    ROLE_TASKMANAGER,
)
from penstock.engine.hosting.spark import session_workers
from penstock.engine.hosting.spark.provider import SparkProvider
from penstock.engine.hosting.spark.shared_workers import SharedWorkers
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment, expected_counts, last_counts, word_count
from tests.tools.identities import secrets_of

pytestmark = pytest.mark.spark
OVER_TCP = {
    "penstock.exchange.local-sockets": "false",
    "taskmanager.numberOfTaskSlots": "1",
}
ISOLATED = OVER_TCP | {"penstock.cluster.job-isolation": "true"}


@pytest.fixture
def connections(monkeypatch):
    """The role and the protocol of each connection that dials the driver."""
    found = []
    authenticate = ControlServer.authenticate

    async def recorded(server, reader, writer):
        handshake = await authenticate(server, reader, writer)
        found.append((handshake.role, writer.get_extra_info("ssl_object").version()))
        return handshake

    monkeypatch.setattr(ControlServer, "authenticate", recorded)
    return found


def assert_keeps_secrets(carried, known):
    assert "PRIVATE" not in carried
    for secret in set().union(*map(secrets_of, known)):
        assert secret.hex() not in carried
        assert repr(secret)[2:-1] not in carried


@pytest.fixture
def tasks(monkeypatch):
    """What each Spark task of a TaskManager carries, and the credentials of its job."""
    carried = []
    config_of = SparkProvider.worker_config

    def recorded(provider, *arguments):
        config = config_of(provider, *arguments)
        carried.append((repr(config), provider.master_address.credentials))
        return config

    monkeypatch.setattr(SparkProvider, "worker_config", recorded)
    return carried


def test_a_keyed_job_over_tls(spark_cluster, tasks, connections):
    with word_count(environment(2, **ISOLATED)).execute_and_collect() as updates:
        assert last_counts(updates) == expected_counts()
    roles = (ROLE_REGISTRATION, ROLE_SUPERVISOR, ROLE_TASKMANAGER)
    assert Counter(connections) == {(role, "TLSv1.3"): len(tasks) for role in roles}
    for carried, credentials in tasks:
        assert_keeps_secrets(carried, [credentials])
    assert not taskmanagers_left()


@pytest.fixture
def crossing(spark_cluster, monkeypatch):
    """What each Spark task of a worker carries, and the credentials of the pool and of the jobs in it."""
    assert not taskmanagers_left(), "a warm worker would need no Spark task"
    carried, known = [], []
    body_of, host = session_workers.body_of, SharedWorkers.host_jobmanager

    def recorded(config, archive):
        carried.append(repr(config))
        return body_of(config, archive)

    def hosts(workers, worker_id, start_id, slots):
        known.extend((workers.credentials, workers.wanted[start_id].credentials))
        host(workers, worker_id, start_id, slots)

    monkeypatch.setattr(session_workers, "body_of", recorded)
    monkeypatch.setattr(SharedWorkers, "host_jobmanager", hosts)
    return carried, known


@pytest.mark.long
def test_a_keyed_job_over_tls_in_processes_that_jobs_share(crossing, connections):
    carried, known = crossing
    with word_count(environment(2, **OVER_TCP)).execute_and_collect() as updates:
        assert last_counts(updates) == expected_counts()
    assert len(carried) == 2
    # A supervisor has a connection to the pool and one to the JobManager.
    times = {ROLE_REGISTRATION: 2, ROLE_SUPERVISOR: 4, ROLE_TASKMANAGER: 2}
    assert Counter(connections) == {(role, "TLSv1.3"): count for role, count in times.items()}
    assert len({one.identity for one in known}) == 2
    for text in carried:
        assert_keeps_secrets(text, known)
    assert not taskmanagers_left()


def test_a_dataframe_is_fed_to_a_streaming_job(spark_cluster):
    frame = spark_cluster.range(0, 10_000, 1, 3).withColumn("key", F.col("id") % 5)
    env = environment(2, **OVER_TCP)
    keys = env.from_spark(frame).map(lambda row: row.key)
    with keys.execute_and_collect() as found:
        assert Counter(found) == dict.fromkeys(range(5), 2000)
