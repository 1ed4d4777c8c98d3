"""Databases for the SQL sinks: a SQLite file, real PostgreSQL and MariaDB servers. Brokers for their connectors."""

import pytest
import sqlalchemy as sa

from tests.tools.brokers.fixtures import (
    amqp,
    apache_kafka,
    broker,
    leave_no_kafka_client,
    own_amqp,
    own_kafka,
    queue,
    running_pulsar_broker,
)
from tests.tools.mariadb import mariadb_server
from tests.tools.postgres import postgres_server

__all__ = [
    "amqp",
    "apache_kafka",
    "broker",
    "leave_no_kafka_client",
    "own_amqp",
    "own_kafka",
    "queue",
    "running_pulsar_broker",
]


POSTGRESQL, MARIADB = (
    pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb")
)


@pytest.fixture(scope="session")
def postgres_url():
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url():
    with mariadb_server() as url:
        yield url


@pytest.fixture(params=["sqlite", POSTGRESQL, MARIADB])
def url(request, tmp_path):
    """Of an empty database."""
    return empty_database(request, request.param, tmp_path)


@pytest.fixture(params=["sqlite", POSTGRESQL])
def standard_url(request, tmp_path):
    """Of an empty database that knows `||` and `ON CONFLICT`, and keeps parts of seconds in a TIMESTAMP."""
    return empty_database(request, request.param, tmp_path)


def empty_database(request, kind, folder):
    """The URL of an empty database of this kind: sqlite, postgresql or mariadb."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/test.db"
    server = request.getfixturevalue("postgres_url" if kind == "postgresql" else "mariadb_url")
    engine = sa.create_engine(server, poolclass=sa.NullPool)
    name = "public" if kind == "postgresql" else "shop"
    with engine.begin() as connection:
        cascade = "CASCADE" if kind == "postgresql" else ""
        connection.execute(sa.text(f"DROP SCHEMA {name} {cascade}"))
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    return server
