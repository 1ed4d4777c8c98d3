"""The names of `penstock.connectors.sql_source`, where PyFlink's programs import them."""

from penstock.connectors.sql_source import Range, SqlSource

__all__ = ["Range", "SqlSource"]
