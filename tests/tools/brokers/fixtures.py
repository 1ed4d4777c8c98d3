"""Fixtures: a broker of Kafka, Pulsar or AMQP for one test. A conftest names those that the tests of its folder want."""

import os
import uuid
from urllib.parse import urlsplit

import pytest

from tests.tools.brokers import amqp as rabbit
from tests.tools.brokers import kafka, pulsar
from tests.tools.brokers.apache_kafka import running_kafka
from tests.tools.brokers.kafka_clients import clients_left
from tests.tools.brokers.rabbit_queues import ProxiedBroker, delete_queue


# ruff: ignore[pytest-fixture-autouse] - nobody asks to be watched
@pytest.fixture(autouse=True)
def leave_no_kafka_client():
    """One that is left goes on looking for its broker, with new threads and descriptors while other tests count them."""
    yield
    assert not clients_left(), "a client of Kafka is still there: close it, or what owns it"


@pytest.fixture(scope="session")
def apache_kafka():
    """Apache Kafka, of all tests. It runs when a test begins, and its topics are the tests' own."""
    with running_kafka() as found:
        yield found


@pytest.fixture
def broker(apache_kafka):
    """Apache Kafka without topics: those of a test end with it."""
    yield apache_kafka
    apache_kafka.clear()


@pytest.fixture
def own_kafka():
    """The tests' own Kafka broker, which can plant what a real one does not do."""
    with kafka.running_broker() as found:
        yield found


@pytest.fixture(name="pulsar_broker")
def running_pulsar_broker():
    with pulsar.running_broker() as found:
        yield found


@pytest.fixture
def own_amqp():
    """The tests' own AMQP broker, which can plant what a real one does not do."""
    with rabbit.running_broker() as found:
        yield found


@pytest.fixture
def amqp(request):
    """An AMQP broker: the tests' own, or the one that PENSTOCK_TEST_AMQP names (`tests/tools/brokers/amqp`)."""
    uri = os.environ.get("PENSTOCK_TEST_AMQP")
    if uri is None:
        yield request.getfixturevalue("own_amqp")
        return
    parts = urlsplit(uri)
    with rabbit.running_proxy(parts.hostname, parts.port or 5672) as proxy:
        yield ProxiedBroker(uri, proxy)


@pytest.fixture
def queue(amqp):
    """The name of a queue that is nobody else's."""
    name = f"penstock-test-{uuid.uuid4()}"
    yield name
    delete_queue(amqp, name)
