"""A broker for the tests of the connector."""

import uuid

import pytest

from tests.tools.small_servers import mosquitto


@pytest.fixture(scope="session")
def shared_mosquitto():
    with mosquitto() as server:
        yield server.port


@pytest.fixture
def port(shared_mosquitto):
    return shared_mosquitto


@pytest.fixture
def topic():
    """Nobody else's."""
    return f"t/{uuid.uuid4().hex}"
