"""The names of `penstock.connectors.datagen`, where PyFlink's programs import them."""

from penstock.connectors.datagen import BatchGeneratorSource, DataGeneratorSource

__all__ = ["BatchGeneratorSource", "DataGeneratorSource"]
