"""A NATS server for the tests of the connector."""

import itertools

import pytest

from tests.tools.brokers.nats_streams import Streams
from tests.tools.small_servers import nats_server

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def shared_nats():
    with nats_server() as server:
        yield server


@pytest.fixture
def streams(shared_nats):
    """Makes, fills and reads streams of the server."""
    with Streams(shared_nats) as found:
        yield found


@pytest.fixture
def stream(streams):
    """An empty stream with a name of its own, which takes all subjects below it."""
    name = f"s{next(_NUMBERS)}"
    streams.add(name)
    return name
