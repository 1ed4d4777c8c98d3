"""A PostgreSQL server with logical replication for the tests of the source."""

from tests.tools.connectors.cdc_postgres import database, logical_postgres, orders, own_postgres

__all__ = ["database", "logical_postgres", "orders", "own_postgres"]
