"""Databases for the SQL sink: a SQLite file and a real PostgreSQL server. A Kafka broker for its connector."""

import pytest
import sqlalchemy as sa

from tests.kafka_broker import running_broker
from tests.postgres import postgres_server


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


@pytest.fixture
def broker():
    with running_broker() as found:
        yield found
