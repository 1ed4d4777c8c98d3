"""The names of `penstock.connectors.sql_sink`, where PyFlink's programs import them."""

from penstock.connectors.sql_sink import SqlSink

__all__ = ["SqlSink"]
