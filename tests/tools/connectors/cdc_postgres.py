"""A PostgreSQL server with logical replication, for tests of the source, and fixtures of it."""

import itertools

import psycopg
import pytest

from penstock.connectors.cdc import PostgresSource
from tests.tools.postgres import running_postgres

LOGICAL = (
    "wal_level=logical",
    "max_replication_slots=40",
    "max_wal_senders=40",
    "max_connections=100",
)
_NUMBERS = itertools.count()


class Database:
    """An empty database of a server. `source(*tables)`: a builder with a slot of its own."""

    def __init__(self, server):
        self.server = server
        self.slot = ""

    def connect(self, **more):
        return psycopg.connect(
            host=self.server.folder, user="penstock", dbname="postgres", autocommit=True, **more
        )

    def execute(self, *statements):
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query, *values):
        with self.connect() as connection:
            return connection.execute(query, values or None).fetchall()

    def builder(self, *tables):
        self.slot = f"s{next(_NUMBERS)}"
        return (
            PostgresSource
            .builder()
            .hostname(self.server.folder)
            .database("postgres")
            .username("penstock")
            .slot_name(self.slot)
            .table_list(*(tables or ("public.orders",)))
        )

    def confirmed(self):
        """How far the slot is, as a number."""
        query = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        return int(self.rows(query, self.slot)[0][0])

    def is_read(self):
        """Whether a reader has the slot."""
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        return self.rows(query, self.slot) == [(True,)]

    def end(self):
        return int(self.rows("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])

    def clear(self):
        self.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active",
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
        )
        for (slot,) in self.rows("SELECT slot_name FROM pg_replication_slots"):
            self.drop_slot(slot)
        for (name,) in self.rows("SELECT pubname FROM pg_publication"):
            self.execute(f"DROP PUBLICATION {name}")

    def clear_slots(self):
        """Those of runs that have ended."""
        for (slot,) in self.rows("SELECT slot_name FROM pg_replication_slots WHERE NOT active"):
            self.drop_slot(slot)

    def drop_slot(self, slot):
        """When the process that had it has ended."""
        while self.rows("SELECT FROM pg_replication_slots WHERE slot_name = %s AND active", slot):
            pass
        self.execute(f"SELECT pg_drop_replication_slot('{slot}')")


@pytest.fixture(scope="session")
def logical_postgres():
    with running_postgres(*LOGICAL) as server:
        yield server


@pytest.fixture
def database(logical_postgres):
    found = Database(logical_postgres)
    found.clear()
    yield found
    found.clear()


@pytest.fixture
def own_postgres():
    """A server of the test's own, which it may kill."""
    with running_postgres(*LOGICAL) as server:
        yield Database(server)


@pytest.fixture
def orders(database):
    """With a table `orders` of two columns and three rows."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    return database
