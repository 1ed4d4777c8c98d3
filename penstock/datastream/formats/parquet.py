"""The names of `penstock.formats.parquet`, where PyFlink's programs import them."""

from penstock.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
    ParquetFormat,
    ParquetWriterFactory,
)

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "ParquetFormat",
    "ParquetWriterFactory",
]
