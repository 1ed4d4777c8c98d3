"""A Redis server for the tests of the connector."""

import pytest

from tests.tools.small_servers import redis_server


@pytest.fixture(scope="session")
def shared_redis():
    with redis_server() as server:
        yield server


@pytest.fixture
def redis_url(shared_redis):
    """Of an empty database."""
    import redis

    url = f"redis://127.0.0.1:{shared_redis.port}/0"
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url
