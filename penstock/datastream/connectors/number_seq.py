"""The names of `penstock.connectors.datagen`, where PyFlink's programs import them."""

from penstock.connectors.datagen import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
