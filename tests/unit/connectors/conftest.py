"""Databases for the SQL sink: a SQLite file and a real PostgreSQL server. Brokers of Kafka, Pulsar and AMQP for their connectors."""

import os
import uuid
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from tests import kafka_broker, pulsar_broker
from tests.postgres import postgres_server
from tests.unit.connectors.kafka_clients import clients_left


@pytest.fixture(scope="session")
def postgres_url():
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    server = request.getfixturevalue("postgres_url")
    engine = sa.create_engine(server, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    return server


# ruff: ignore[pytest-fixture-autouse] - nobody asks to be watched
@pytest.fixture(autouse=True)
def leave_no_kafka_client():
    """One that is left goes on looking for its broker, with new threads and descriptors while other tests count them."""
    yield
    assert not clients_left(), "a client of Kafka is still there: close it, or what owns it"


@pytest.fixture
def broker():
    with kafka_broker.running_broker() as found:
        yield found


@pytest.fixture(name="pulsar_broker")
def running_pulsar_broker():
    with pulsar_broker.running_broker() as found:
        yield found


@pytest.fixture
def own_amqp():
    """The tests' own AMQP broker, which can plant what a real one does not do."""
    from tests.amqp_broker import running_broker as running_amqp_broker

    with running_amqp_broker() as found:
        yield found


@pytest.fixture
def amqp(request):
    """An AMQP broker: the tests' own, or the one that PENSTOCK_TEST_AMQP names (`tests/amqp_broker`)."""
    uri = os.environ.get("PENSTOCK_TEST_AMQP")
    if uri is None:
        yield request.getfixturevalue("own_amqp")
        return
    from tests.amqp_broker import running_proxy
    from tests.unit.connectors.rabbit_tools import ProxiedBroker

    parts = urlsplit(uri)
    with running_proxy(parts.hostname, parts.port or 5672) as proxy:
        yield ProxiedBroker(uri, proxy)


@pytest.fixture
def queue(amqp):
    """The name of a queue that is nobody else's."""
    from tests.unit.connectors.rabbit_tools import delete_queue

    name = f"penstock-test-{uuid.uuid4()}"
    yield name
    delete_queue(amqp, name)
