"""A server for each test of the connector, in a process of its own."""

import pytest

from tests.tools.http_peer import http_peer


@pytest.fixture
def peer():
    with http_peer() as server:
        yield server
