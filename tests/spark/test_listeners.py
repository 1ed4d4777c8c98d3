"""Who listens to everything that Spark and Penstock send gets no secret.

Spark has its defaults here: it encrypts nothing. What the listener may get is a ticket: that it does shows that it hears what Spark's
tasks carry.
"""

from pathlib import Path

import psutil
import pytest
from pyspark.sql import functions as F

from penstock.datastream import RuntimeExecutionMode
from penstock.engine.hosting.network.wire import dialling
from penstock.engine.hosting.reporting import say
from tests.spark.programs import environment, expected_counts, last_counts, word_count
from tests.spark.sessions import FAILS_FAST, LOCAL_CLUSTER
from tests.tools.identities import secrets_of
from tests.tools.listener import AS_ROOT, Listener

pytestmark = [pytest.mark.spark, AS_ROOT]
TCP = {"penstock.exchange.local-sockets": "false"}


@pytest.fixture
def cluster(spark_on):
    return spark_on(LOCAL_CLUSTER, spark_broadcast_compress="false", **FAILS_FAST)


class Known:
    """What the driver knows and nobody else may learn by listening."""

    def __init__(self) -> None:
        self.secrets: set[bytes] = set()
        self.tickets: set[bytes] = set()


@pytest.fixture
def known(monkeypatch):
    kept = Known()
    begin, new = dialling.Tickets.__init__, dialling.Tickets.new

    def kept_credentials(tickets, credentials):
        kept.secrets.update(secrets_of(credentials))
        begin(tickets, credentials)

    def kept_ticket(tickets, admits=1):
        ticket = new(tickets, admits)
        kept.tickets.add(ticket.one_time_token)
        return ticket

    monkeypatch.setattr(dialling.Tickets, "__init__", kept_credentials)
    monkeypatch.setattr(dialling.Tickets, "new", kept_ticket)
    return kept


def told_to_processes() -> bytes:
    """Arguments and environments of all processes that this one has started, and of their children."""
    told = b""
    for process in psutil.Process().children(recursive=True):
        for name in ("cmdline", "environ"):
            try:
                told += Path(f"/proc/{process.pid}/{name}").read_bytes()
            except OSError:  # It has ended.
                continue
    return told


@pytest.mark.parametrize(
    "settings",
    [
        TCP,
        pytest.param(
            TCP
            | {"penstock.cluster.job-isolation": "true", "security.ssl.internal.enabled": "false"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["shared", "isolated"],
)
def test_a_listener_hears_tickets_and_no_secret(cluster, known, settings):
    with (
        Listener() as listener,
        word_count(environment(2, **settings)).execute_and_collect() as updates,
    ):
        first = next(updates)
        told = told_to_processes()
        assert last_counts([first, *updates]) == expected_counts()
    assert len(known.secrets) > 3
    assert listener.has_heard(known.tickets)
    assert not listener.has_heard(known.secrets)
    assert not [one for one in known.secrets if one in told or one.hex().encode() in told]


def test_a_listener_hears_no_secret_of_a_dataframe_that_is_fed(cluster, known):
    frame = cluster.range(0, 1000, 1, 3).withColumn("key", F.col("id") % 5)
    with (
        Listener() as listener,
        environment(2, **TCP)
        .from_spark(frame)
        .map(lambda row: row.id)
        .execute_and_collect() as ids,
    ):
        assert sorted(ids) == list(range(1000))
    assert listener.has_heard(known.tickets)
    assert not listener.has_heard(known.secrets)


@pytest.mark.parametrize(
    "mode",
    [
        RuntimeExecutionMode.STREAMING,
        pytest.param(RuntimeExecutionMode.BATCH, marks=pytest.mark.long),
    ],
)
def test_a_network_that_spark_does_not_protect_is_told_when_a_job_is_submitted(
    cluster, monkeypatch, capsys, mode
):
    monkeypatch.setattr(say, "_SAID", set())
    env = environment(2).set_runtime_mode(mode)
    for _ in range(2):
        with env.from_collection([1, 2]).map(str).execute_and_collect() as found:
            assert sorted(found) == ["1", "2"]
    told = capsys.readouterr().err
    for setting in ("spark.authenticate", "spark.network.crypto.enabled"):
        assert told.count(f"{setting}=true") == 1
