"""ZooKeeper, for the stores that lie there."""

import pytest

from tests.tools.zookeeper import zookeeper_server


@pytest.fixture(scope="package")
def zookeeper():
    with zookeeper_server() as running:
        yield running
