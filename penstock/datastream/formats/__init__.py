"""Formats of files and messages: pyflink.datastream.formats, and their readers.

What programs use can be imported from here too. Its module is imported when a name is asked for.
"""

from typing import TYPE_CHECKING

from penstock.common.absent import absent, listing
from penstock.connectors.former_names import OF_FORMATS

if TYPE_CHECKING:  # Completion and type checkers find them here.
    from penstock.datastream.formats.avro import AvroBulkWriters as AvroBulkWriters
    from penstock.datastream.formats.avro import AvroInputFormat as AvroInputFormat
    from penstock.datastream.formats.avro import (
        AvroRowDeserializationSchema as AvroRowDeserializationSchema,
    )
    from penstock.datastream.formats.avro import (
        AvroRowSerializationSchema as AvroRowSerializationSchema,
    )
    from penstock.datastream.formats.avro import AvroSchema as AvroSchema
    from penstock.datastream.formats.csv import CsvBulkWriters as CsvBulkWriters
    from penstock.datastream.formats.csv import CsvReaderFormat as CsvReaderFormat
    from penstock.datastream.formats.csv import (
        CsvRowDeserializationSchema as CsvRowDeserializationSchema,
    )
    from penstock.datastream.formats.csv import (
        CsvRowSerializationSchema as CsvRowSerializationSchema,
    )
    from penstock.datastream.formats.csv import CsvSchema as CsvSchema
    from penstock.datastream.formats.debezium import (
        DebeziumJsonDeserializationSchema as DebeziumJsonDeserializationSchema,
    )
    from penstock.datastream.formats.debezium import (
        DebeziumJsonSerializationSchema as DebeziumJsonSerializationSchema,
    )
    from penstock.datastream.formats.json import (
        JsonRowDeserializationSchema as JsonRowDeserializationSchema,
    )
    from penstock.datastream.formats.json import (
        JsonRowSerializationSchema as JsonRowSerializationSchema,
    )
    from penstock.datastream.formats.orc import OrcBulkWriters as OrcBulkWriters
    from penstock.datastream.formats.parquet import AvroParquetReaders as AvroParquetReaders
    from penstock.datastream.formats.parquet import AvroParquetWriters as AvroParquetWriters
    from penstock.datastream.formats.parquet import ParquetBulkWriters as ParquetBulkWriters
    from penstock.datastream.formats.parquet import (
        ParquetColumnarRowInputFormat as ParquetColumnarRowInputFormat,
    )
    from penstock.datastream.formats.protobuf import (
        ProtobufDeserializationSchema as ProtobufDeserializationSchema,
    )
    from penstock.datastream.formats.protobuf import (
        ProtobufSerializationSchema as ProtobufSerializationSchema,
    )
    from penstock.datastream.formats.registry import (
        ConfluentRegistryAvroDeserializationSchema as ConfluentRegistryAvroDeserializationSchema,
    )
    from penstock.datastream.formats.registry import (
        ConfluentRegistryAvroSerializationSchema as ConfluentRegistryAvroSerializationSchema,
    )
    from penstock.datastream.formats.registry import (
        ConfluentRegistryJsonDeserializationSchema as ConfluentRegistryJsonDeserializationSchema,
    )
    from penstock.datastream.formats.registry import (
        ConfluentRegistryJsonSerializationSchema as ConfluentRegistryJsonSerializationSchema,
    )
    from penstock.datastream.formats.registry import SchemaRegistry as SchemaRegistry

__getattr__ = absent(__name__, {}, elsewhere=OF_FORMATS)
__dir__ = listing((), OF_FORMATS)
