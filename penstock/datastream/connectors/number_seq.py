"""The names of `penstock.connectors.number_seq`, where PyFlink's programs import them."""

from penstock.connectors.number_seq import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
