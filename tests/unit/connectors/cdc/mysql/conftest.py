"""A MariaDB server with a binlog for the tests of the source."""

from tests.tools.connectors.cdc_mariadb import (
    binlog_mariadb,
    database,
    orders,
    own_mariadb,
    positions,
)

__all__ = ["binlog_mariadb", "database", "orders", "own_mariadb", "positions"]
