"""Change data capture: tables of PostgreSQL, MySQL and MariaDB as streams of changes. Needs `penstock[postgres-cdc]` or `penstock[mysql-cdc]`."""

from penstock.datastream.connectors.cdc.mysql.source import MySqlSource
from penstock.datastream.connectors.cdc.options import ChangelogMode, StartupOptions
from penstock.datastream.connectors.cdc.postgres.source import PostgresSource
from penstock.datastream.connectors.cdc.records import JsonDebeziumDeserializationSchema

__all__ = [
    "ChangelogMode",
    "JsonDebeziumDeserializationSchema",
    "MySqlSource",
    "PostgresSource",
    "StartupOptions",
]
