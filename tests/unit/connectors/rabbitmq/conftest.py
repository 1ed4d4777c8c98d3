"""A real RabbitMQ server with TLS, for all tests of this folder that ask for it."""

import uuid
from typing import NamedTuple

import pytest

from tests.tools.brokers.rabbit_queues import delete_queue
from tests.tools.brokers.rabbitmq import rabbitmq_server
from tests.tools.tls_cases import Tls, made_in


class RabbitMQ(NamedTuple):
    """`uri`: without TLS. `tls_port`: where clients have to show a certificate."""

    uri: str
    tls_port: int
    tls: Tls


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory):
    tls = made_in(tmp_path_factory.mktemp("rabbitmq-tls"))
    with rabbitmq_server(tls) as server:
        yield RabbitMQ(f"amqp://guest:guest@127.0.0.1:{server.port}/%2F", server.tls_port, tls)


@pytest.fixture
def queue_name(rabbitmq):
    """A queue of the real server that is nobody else's. The test makes it."""
    name = f"tests-{uuid.uuid4()}"
    yield name
    delete_queue(rabbitmq, name)
