"""Databases for the SQL sinks: a SQLite file and a real PostgreSQL server. Brokers for their connectors."""

import pytest
import sqlalchemy as sa

from tests.tools.brokers.fixtures import (
    amqp,
    broker,
    leave_no_kafka_client,
    own_amqp,
    queue,
    running_pulsar_broker,
)
from tests.tools.postgres import postgres_server

__all__ = ["amqp", "broker", "leave_no_kafka_client", "own_amqp", "queue", "running_pulsar_broker"]


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
