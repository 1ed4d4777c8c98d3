"""The names of `penstock.formats.orc`, where PyFlink's programs import them."""

from penstock.formats.orc import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
