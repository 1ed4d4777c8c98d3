"""Change data capture: tables of PostgreSQL, MySQL and MariaDB as streams of changes.

Needs `penstock[postgres-cdc]` or `penstock[mysql-cdc]`."""

from penstock.connectors.cdc.mysql.source import MySqlSource
from penstock.connectors.cdc.options import ChangelogMode, StartupOptions
from penstock.connectors.cdc.postgres.source import PostgresSource
from penstock.connectors.cdc.records import JsonDebeziumDeserializationSchema

__all__ = [
    "ChangelogMode",
    "JsonDebeziumDeserializationSchema",
    "MySqlSource",
    "PostgresSource",
    "StartupOptions",
]
