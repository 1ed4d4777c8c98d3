"""The names of `penstock.connectors.file_system`, where PyFlink's programs import them."""

from penstock.connectors.file_system import StreamFormat

__all__ = ["StreamFormat"]
